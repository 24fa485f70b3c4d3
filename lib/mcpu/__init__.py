"""The engine: takes one opcode through locks, checks, hooks and execution."""

from ganeti.mcpu.processor import Doors, Processor

__all__ = ["Doors", "Processor"]
