"""Logical units that answer queries in a job."""
