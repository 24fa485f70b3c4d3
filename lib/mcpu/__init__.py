"""The engine: takes one opcode through locks, checks, hooks and execution."""

from ganeti.mcpu.locks import HeldLocks, LockManager
from ganeti.mcpu.processor import Doors, Processor

__all__ = ["Doors", "HeldLocks", "LockManager", "Processor"]
