"""The commands of ``gnt-os``: `table` lists them."""
