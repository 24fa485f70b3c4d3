"""Parameters in requests: converted to their types, checked and merged."""
