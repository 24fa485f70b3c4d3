"""Logical units that test the job engine itself."""
