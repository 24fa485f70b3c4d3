"""Ganeti: a cluster manager for virtual machines.

Layers and packages are described in ``doc/architecture.rst``.
"""
