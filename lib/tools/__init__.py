"""Helper programs, run on nodes over SSH, by administrators, or by developers.

Each has a row in ``autotools/programs``. Code that daemons or commands import does not
belong here.
"""
