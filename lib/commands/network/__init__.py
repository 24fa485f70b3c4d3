"""The commands of ``gnt-network``: `table` lists them."""
