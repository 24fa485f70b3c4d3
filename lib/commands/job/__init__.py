"""The commands of ``gnt-job``: `table` lists them."""
