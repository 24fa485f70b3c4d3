"""The cluster as it was loaded: groups, nodes, instances and policies.

Here: the values, how their JSON is read and how numbers are printed. Not here: anything
computed from them, which is in ``state``. Source: the loaders, and the allocator's
request (``hail.request``).
"""
