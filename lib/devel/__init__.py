"""The product over simulated effects, or many nodes on one machine.

No other package imports it.
"""
