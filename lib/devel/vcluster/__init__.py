"""Virtual clusters: many nodes as real daemons on one machine.

In *simple* mode a node is a directory, a loopback address and a host name; no
privileges are needed. In *isolated* mode (root) each node has its own network, mount,
PID and UTS namespaces, uses the standard paths, and can be partitioned from others.

`layout` describes nodes and paths, `create` creates the cluster, `node_directories`
creates node directories, `nodes` starts and stops processes on nodes, `isolation` and
`network` implement the isolated mode, `lifecycle` starts and stops a cluster,
`commands` is the command line.
"""
