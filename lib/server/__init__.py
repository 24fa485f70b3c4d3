"""Daemon mains: they read the environment, open the doors and run a service.

One module a daemon; `common` is what all share. What a daemon does belongs to
``ganeti.masterd`` and ``ganeti.backend``.
"""
