"""Logical units about OS definitions and external storage providers."""
