"""What happens before there is a master daemon, or without it.

`initialise` makes a cluster on this machine, `joining` prepares a machine for
OP_NODE_ADD, `destroying` is the end. Import these modules, not the package, for
functions; `options` holds what callers decide. What a running cluster does to itself
is in ``ganeti.cmdlib``.
"""
