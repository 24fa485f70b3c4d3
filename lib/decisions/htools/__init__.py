"""Placement: where instances should be, computed from the state of a cluster.

Pure functions and values: files, daemons and jobs belong to the programs
(``ganeti.commands.htools``). Each package imports only from those before it: ``model``,
``state``, ``rules``, ``score``, ``n1``, ``alloc``, then ``balance`` and ``capacity``,
``maintenance``, and last ``hail`` and ``report``. The order is checked by the contract
"Order of the placement packages" in ``.importlinter``.
"""
