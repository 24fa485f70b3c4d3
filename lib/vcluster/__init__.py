"""Virtual clusters: many nodes as real daemons on one machine.

In *simple* mode a node is a directory, a loopback address and a host name; it needs
no privileges. In *isolated* mode (root) each node has network, mount, PID and UTS
namespaces of its own, sees the standard paths, and can be cut off from others.

`layout` has the places of things, `create` makes the cluster, `node_directories` makes
node directories, `nodes` starts and ends what runs on them, `isolation` and `network`
are the second mode, `lifecycle` takes a cluster up and down, `commands` is the command
line.
"""
