"""Daemon mains: they read the environment, open effect interfaces, run a service.

One module per daemon; `common` has the code that all share. The work of a daemon
belongs to ``ganeti.masterd`` and ``ganeti.backend``.
"""
