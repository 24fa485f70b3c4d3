"""The cluster as it was loaded: groups, nodes, instances and policies; its readers.

Here: the values, their readers (text files, query answers, monitoring data,
simulation), which turn text or decoded JSON into a ``Cluster``, and how numbers are
printed. Not here: anything computed from them, which is in ``state``. The programs open
files and query daemons.
"""
