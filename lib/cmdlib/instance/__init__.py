"""Logical units about instances, one module each, and what they share."""
