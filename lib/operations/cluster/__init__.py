"""Logical units of the cluster as a whole."""
