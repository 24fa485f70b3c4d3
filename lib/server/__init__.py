"""Daemon mains: they read the environment, open the doors and run a service."""
