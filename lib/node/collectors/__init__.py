"""Collectors of the monitoring agent: what a node reports about itself."""
