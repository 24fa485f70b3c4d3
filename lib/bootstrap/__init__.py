"""Operations that run without the master daemon, or before it exists.

`init.initialise` creates a cluster on this machine and ends it, `node_add` prepares a
machine for OP_NODE_ADD, `renew_crypto` replaces shared keys while all daemons are
stopped, `failover` moves the master role. Import these modules, not the package;
`options` holds the decisions of callers. Operations of a running
cluster are in ``ganeti.operations``.
"""
