"""Disk drivers, node side: one class each, no policy."""
