"""The commands of ``gnt-node``: `table` lists them."""
