"""A node's operations, behind the RPC procedures of `ganeti.rpc.table`."""
