"""The engine: takes one opcode through locks, checks, hooks and execution.

It knows phases, not opcodes: what an opcode needs and does is said by its logical unit
in ``ganeti.cmdlib``; when a job runs is decided by ``ganeti.jqueue``.
"""

from ganeti.mcpu.locks import members
from ganeti.mcpu.planning import Plan, Planner
from ganeti.mcpu.processor import Doors, Processor

__all__ = ["Doors", "Plan", "Planner", "Processor", "members"]
