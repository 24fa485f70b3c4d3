"""The state of a cluster in simulation: NumPy arrays with one column per node.

Here: how the numbers of nodes follow from instances, and how they change when an
instance is added or removed. Not here: whether a change is allowed (``rules``) or good
(``score``).
"""
