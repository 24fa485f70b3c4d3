"""The master's own state: configuration, queries, locks, jobs, allocators.

Operations use it; it knows none of them.
"""
