"""Duties of the master daemon: distribution of files, the address, candidates."""
