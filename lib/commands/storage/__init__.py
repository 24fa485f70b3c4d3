"""The commands of ``gnt-storage``: `table` lists them."""
