"""Logical units of exports: make and remove them."""
