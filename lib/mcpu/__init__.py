"""The engine: takes one opcode through locks, checks, hooks and execution."""

from ganeti.mcpu.locks import members
from ganeti.mcpu.planning import Plan, Planner
from ganeti.mcpu.processor import Doors, Processor

__all__ = ["Doors", "Plan", "Planner", "Processor", "members"]
