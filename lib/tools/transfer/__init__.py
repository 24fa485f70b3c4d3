"""``import-export``: the content of one disk copied from or to another node."""
