"""HTTP over mutual TLS between nodes: `server`, `client` and the rules of `tls`.

Transport only: the meaning of requests belongs to `ganeti.protocols.rpc` and to the
daemons.
"""
