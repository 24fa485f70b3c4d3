"""Streams of guests' consoles over the port of the node daemon, and what they carry."""
