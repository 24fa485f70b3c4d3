"""Shared and exclusive locks by level; see ``protocols`` in the design."""

from ganeti.locking.levels import BGL, Level

__all__ = ["BGL", "Level"]
