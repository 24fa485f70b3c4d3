"""The cluster score, and how placements and moves change it.

``components`` defines the score. The other modules compute the same score faster, for
many places or moves at once. The choice among them is in ``alloc`` and ``balance``. The
mathematics is explained in doc/placement.rst.
"""
