"""Main programs of daemons: read the environment, open effects, run a service.

One module per daemon. The services are in the other packages of ``ganeti.daemons``, and
that of the node daemon in ``ganeti.node.calls``.
"""
