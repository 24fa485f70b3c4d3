"""Automatic repair of instances: diagnosis, permitted repairs, and the next step.

The functions are pure. Tags of instances hold the state of repairs; ``tags`` documents
their format. Loading the cluster, submitting jobs and setting tags is done in
``ganeti.commands.htools.harep``.
"""
