"""Tables of nodes and instances, and the health of a cluster, for the programs.

Here: the lines of the output. The programs print them.
"""
