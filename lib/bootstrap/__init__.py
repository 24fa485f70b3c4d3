"""Operations that run without the master daemon, or before it exists.

`init.initialise` creates a cluster on this machine, `node_add` prepares a machine for
OP_NODE_ADD, `renew_crypto` replaces shared keys while all daemons are stopped,
`failover` moves the master role, and `destroy` ends a cluster. Import these modules,
not the package; `options` holds the decisions of callers. Operations of a running
cluster are in ``ganeti.operations``.
"""
