"""Logical units of instances, one module each, and shared code."""
