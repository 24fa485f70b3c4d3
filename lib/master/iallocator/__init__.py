"""Master's side of the allocator protocol: requests, the run on a node, answers.

Requests are built and answers checked by pure functions; only `run` calls nodes. The
logical units act on the answers.
"""

from ganeti.master.iallocator.answer_checks import Answer, Evacuation, MultiPlacement
from ganeti.master.iallocator.cluster_cache import ClusterCache
from ganeti.master.iallocator.requests import (
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
from ganeti.master.iallocator.run import not_evacuable, question, run, run_first

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
    "not_evacuable",
    "question",
    "relocate",
    "run",
    "run_first",
]
