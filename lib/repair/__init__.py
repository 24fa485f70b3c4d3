"""Automatic repair of instances: what is broken, what may be done, what comes next.

Pure functions and values, specified by the tags they read and write: loading a cluster,
submitting jobs and setting tags belong to the programs.
"""
