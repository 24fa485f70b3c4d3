"""Readers of a cluster: text files, query answers, monitoring data, simulation.

Each turns text or decoded JSON into a ``Cluster``. Opening files and asking daemons
belongs to the programs.
"""
