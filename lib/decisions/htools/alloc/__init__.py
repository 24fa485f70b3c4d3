"""Allocation and evacuation: the nodes for one instance, and why others are refused.

Here: decisions for one new or evacuated instance, in one group or in the best of
several. Not here: the format of requests and answers (``hail``), and many instances of
one size (``capacity``).
"""
