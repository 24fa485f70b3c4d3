"""Counting what still fits: how many more instances, where, and why not one more."""
