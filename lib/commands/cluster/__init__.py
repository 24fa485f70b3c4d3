"""The commands of ``gnt-cluster``: `table` lists them."""
