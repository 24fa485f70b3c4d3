"""SSH between nodes: keys, the files that hold them, and a client.

Import the module: `keys` makes key pairs, `authorized` and `pubkeys` keep the two
key lists, `known_hosts` the cluster's host key, `client` talks (it loads paramiko,
which takes a while). Which node gets which key is not decided here: see
``ganeti.backend.ssh_keys`` and `ganeti.bootstrap`.
"""
