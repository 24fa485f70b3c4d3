"""Logical units of node groups."""
