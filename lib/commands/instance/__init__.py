"""The commands of ``gnt-instance``: `table` lists them."""
