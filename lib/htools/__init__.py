"""Placement: where instances should be, computed from a picture of the cluster.

Pure functions and values: reading files, asking daemons and submitting jobs belong to
the programs (``ganeti.tools.htools``).
"""
