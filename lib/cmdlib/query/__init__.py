"""Logical units that answer questions through a job."""
