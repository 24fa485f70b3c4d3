"""The gnt-* commands: one package per program, one module per subcommand.

Code that several commands share belongs to ``ganeti.cli``. The operations themselves
belong to the master daemon.
"""
