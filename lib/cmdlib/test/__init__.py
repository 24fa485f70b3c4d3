"""Logical units that test the machinery itself."""
