"""Rounds of the maintenance daemon: repairs, deaths of nodes, balance."""
