"""The placement programs: input from files and daemons, output, and job submission.

``ganeti.htools`` computes the decisions.
"""
