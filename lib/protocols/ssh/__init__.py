"""SSH between nodes: keys, the files that hold them, and a client.

Import the modules: `keys` creates key pairs; `authorized_keys` reads and writes the
files of users' keys; `host_keys` are those of nodes, and the file known_hosts;
`client` is the client (it loads paramiko, which is slow to import). The distribution of
keys to nodes is in ``ganeti.node.calls.ssh_keys`` and `ganeti.bootstrap`.
"""
