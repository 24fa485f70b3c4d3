"""Node calls about guests: start, stop, devices, consoles, migration."""
