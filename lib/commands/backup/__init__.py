"""The commands of ``gnt-backup``: `table` lists them."""
