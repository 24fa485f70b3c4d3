"""SSH between nodes: keys, the files that hold them, and a client.

Import the modules: `keys` creates key pairs; `authorized_keys`, `pubkeys` and
`known_hosts` read and write the files of these names; `host_keys` are those of nodes;
`client` is the client (it loads paramiko, which is slow to import). The distribution of
keys to nodes is in ``ganeti.node.calls.trust.ssh_keys`` and `ganeti.bootstrap`.
"""
