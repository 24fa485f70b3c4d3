"""The store in a SQLite file on one node."""
