"""The engine: runs one opcode through locks, checks, hooks and execution.

The engine knows phases, not opcodes: a logical unit of ``ganeti.cmdlib`` defines the
locks and the effects of an opcode. ``ganeti.jqueue`` decides when a job runs.
"""

from ganeti.mcpu.locks import members
from ganeti.mcpu.planning import Plan, Planner
from ganeti.mcpu.processor import EngineDeps, Processor

__all__ = ["EngineDeps", "Plan", "Planner", "Processor", "members"]
