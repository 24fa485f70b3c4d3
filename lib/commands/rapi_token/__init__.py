"""The commands of ``gnt-rapi-token``: `table` lists them."""
