"""SSH with paramiko, keys, authorized_keys and known_hosts files."""
