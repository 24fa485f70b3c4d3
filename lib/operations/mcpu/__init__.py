"""The engine: runs one opcode through locks, checks, hooks and execution.

The engine knows phases, not opcodes: a logical unit of ``ganeti.operations`` defines
the locks and the effects of an opcode. ``ganeti.master.jqueue`` decides when a job
runs.
"""

from ganeti.operations.mcpu.locks import members
from ganeti.operations.mcpu.planning import Plan, Planner
from ganeti.operations.mcpu.processor import EngineDeps, Processor

__all__ = ["EngineDeps", "Plan", "Planner", "Processor", "members"]
