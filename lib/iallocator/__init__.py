"""The allocator protocol, master's side: requests, the run on a node, answers.

Requests are built and answers checked by pure functions; only `run` talks to a node.
What to do with an answer belongs to the logical units.
"""

from ganeti.iallocator.answers import Answer, Evacuation, MultiPlacement
from ganeti.iallocator.cluster_cache import ClusterCache
from ganeti.iallocator.requests import (
    Allocate,
    AllocateSecondary,
    Balance,
    Capacity,
    ChangeGroup,
    MultiAllocate,
    NodeEvacuate,
    Relocate,
    Request,
    build,
    relocate,
)
from ganeti.iallocator.run import question, run, run_first

__all__ = [
    "Allocate",
    "AllocateSecondary",
    "Answer",
    "Balance",
    "Capacity",
    "ChangeGroup",
    "ClusterCache",
    "Evacuation",
    "MultiAllocate",
    "MultiPlacement",
    "NodeEvacuate",
    "Relocate",
    "Request",
    "build",
    "question",
    "relocate",
    "run",
    "run_first",
]
