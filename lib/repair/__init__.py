"""Automatic repair of instances: diagnosis, permitted repairs, and the next step.

Pure functions and values, specified by the tags they read and write: loading a cluster,
submitting jobs and setting tags belong to the programs.
"""
