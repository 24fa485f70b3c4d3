"""Main programs of daemons: read the environment, open effects, run a service.

There is one module per daemon; `common` has the shared parts. The services are in
``ganeti.masterd`` and ``ganeti.backend``.
"""
