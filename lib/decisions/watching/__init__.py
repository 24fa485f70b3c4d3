"""Verdicts of the watcher on instances, and its records between two runs."""
