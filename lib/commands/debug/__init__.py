"""The commands of ``gnt-debug``: `table` lists them."""
