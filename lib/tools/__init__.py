"""Helper programs: run on nodes over SSH, by administrators, or by developers.

Each has its row in ``autotools/programs``. What daemons or commands import does not
belong here.
"""
