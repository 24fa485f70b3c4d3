"""Readers of a cluster: text files, query answers, monitoring data, simulation.

Each turns text or decoded JSON into a ``Cluster``. The programs open files and query
daemons.
"""
