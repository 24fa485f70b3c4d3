"""The cluster score, and how it changes when an instance is placed or moved.

``components`` defines the score; every other module computes the same score faster, for
many places or moves at once. Not here: the choice among them (``alloc``, ``balance``).
"""
