"""Ways into and out of this product: take-over, other formats, other clusters.

No other package imports it.
"""
