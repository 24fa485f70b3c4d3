"""Balancing: sequences of moves that lower the cluster score.

``greedy`` makes the plan from the moves that ``search`` finds. ``lower_bounds``,
``secants``, ``targets`` and ``refined`` bound the gain of moves, so that few moves are
computed exactly. ``plan`` and ``job_sets`` give the plan to programs. The mathematics
is explained in doc/placement.rst.
"""
