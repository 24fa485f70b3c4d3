"""The maintenance daemon: its status and metrics over HTTP.

What a round decides is `ganeti.decisions.repair.rounds`; the master daemon stores the
state and runs the jobs; ``ganeti.automation.maintenance`` plays the rounds.
"""
