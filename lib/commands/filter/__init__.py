"""The commands of ``gnt-filter``: `table` lists them."""
