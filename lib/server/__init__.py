"""Daemon mains: read the environment, open the effect interfaces, run a service.

One module a daemon; `common` is what all share. What a daemon does belongs to
``ganeti.masterd`` and ``ganeti.backend``.
"""
