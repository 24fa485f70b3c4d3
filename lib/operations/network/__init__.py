"""Logical units about networks: address pools and their connections to groups."""
