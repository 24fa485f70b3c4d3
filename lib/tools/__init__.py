"""Helper programs on nodes: out-of-band, consoles, transfers, images, joining.

Each has a row in ``autotools/programs``. Code that daemons or commands import does not
belong here.
"""
