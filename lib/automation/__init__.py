"""Automatons: the watcher, automatic repair, maintenance and failover.

Rules belong to `ganeti.decisions`; here are the rounds that apply them.
"""
