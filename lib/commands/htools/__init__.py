"""The placement programs: input from files and daemons, output, and job submission.

``ganeti.decisions.htools`` computes the decisions.
"""
