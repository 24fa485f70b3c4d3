"""Logical units of tags, for every kind of object."""
