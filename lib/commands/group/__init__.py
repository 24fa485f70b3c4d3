"""The commands of ``gnt-group``: `table` lists them."""
