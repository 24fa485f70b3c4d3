"""LUXI methods of the master daemon, by subject."""
