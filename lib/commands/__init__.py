"""The gnt-* commands and the placement programs: parse, ask, submit, show.

One package per program, one module per subcommand; `cli` has what they share. The
operations themselves belong to the master daemon.
"""
