"""Tables of nodes and instances, and the health of a cluster, for the programs.

Here: what is printed. Not here: printing it.
"""
