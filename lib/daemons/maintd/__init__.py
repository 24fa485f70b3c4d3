"""The maintenance daemon: polls the agents of the nodes and plays rounds.

What a round decides is `ganeti.decisions.repair.rounds`; the master daemon stores the
state and runs the jobs. This package asks, checks answers, and serves the status.
"""
