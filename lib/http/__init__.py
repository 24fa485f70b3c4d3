"""HTTP over mutual TLS between nodes: `server`, `client` and the rules of `tls`.

Transport only: what a request means is the matter of `ganeti.rpc` and of the daemons.
"""
