"""The simulated state of a cluster: NumPy arrays with one column per node.

Here: how node numbers are computed from instances, and how they change when an
instance is added or removed. Not here: whether a change is allowed (``rules``) or good
(``score``).
"""
