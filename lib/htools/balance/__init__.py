"""Balancing: sequences of moves that lower the cluster score.

``greedy`` makes the plan from the moves that ``search`` finds; the other modules bound
the gain of moves, so that few of them are computed exactly. ``plan`` and ``job_sets``
give the plan to programs.
"""
