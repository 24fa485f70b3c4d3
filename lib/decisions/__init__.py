"""Decisions as pure functions: from a snapshot, reports and the time to a plan.

No module here reads a clock, a file or a socket: all facts are arguments.
"""
