"""Why there is not one more instance: the end of a run of ``capacity.search``, as data.

A reason has counts of refused places by kind, and for each node the rules that fail.
"""

from collections.abc import Collection, Iterator
from typing import Any, Final

import msgspec

from ganeti.decisions.htools.alloc import refusals
from ganeti.decisions.htools.capacity.search import (
    CapacityOutcome,
    CapacitySearch,
    by_count,
)
from ganeti.decisions.htools.capacity.tiers import InstanceSize
from ganeti.decisions.htools.rules import constraints, reasons

#: Ends of a run: no place is left, the limit, or nodes that failed N+1 before it.
FULL: Final = "full"
LIMIT: Final = "limit"
UNSAFE: Final = "unsafe"
_WORDS: Final = {
    FULL: "no place for one more of",
    LIMIT: "the limit is reached; what speaks against one more of",
    UNSAFE: "nodes lack memory for failovers already, so nothing is placed of",
}


class StopReason(msgspec.Struct, frozen=True):
    """Why a run ended.

    Attributes:
        why: `FULL`, `LIMIT` or `UNSAFE`.
        size: of the instance that would be the next.
        failures: kind -> refused nodes or pairs of nodes, none with zero.
        reasons: the failing rules of each node.
    """

    why: str
    size: InstanceSize
    failures: dict[str, int]
    reasons: tuple[reasons.Reason, ...]

    def data(self) -> dict[str, Any]:
        """Return a JSON object."""
        return {
            "why": self.why,
            "size": msgspec.structs.asdict(self.size),
            "failures": self.failures,
            "reasons": [reason.data() for reason in self.reasons],
        }

    def lines(self) -> Iterator[str]:
        """Yield lines of text."""
        size = self.size
        yield (
            f"Why not one more: {_WORDS[self.why]} MEM {size.memory}, DSK {size.disk},"
            f" CPU {size.vcpus}"
        )
        if self.failures:
            counts = [f"{kind}: {number}" for kind, number in self.failures.items()]
            yield f"  - refused places: {', '.join(counts)}"
        for line in reasons.lines(self.reasons):
            yield f"  - {line}"


def stop(search: CapacitySearch, outcome: CapacityOutcome) -> StopReason:
    """Return why a run ended."""
    failures = {
        constraints.KINDS[kind - 1]: outcome.failures[kind - 1]
        for kind in by_count(outcome.failures)
        if outcome.failures[kind - 1]
    }
    # Nothing was tried, so there are no refusals of places.
    if not outcome.is_redundant:
        return StopReason(UNSAFE, outcome.last, failures, tuple(_unsafe(search)))
    how = search.how
    limit = how.limit
    item = how.instance(outcome.last)
    # With DRBD single placements are not tested, so N+1 is no reason.
    tested = how.capacity_checks and how.nodes == 1
    # Every node is asked, also those that the search could not use.
    against = refusals.against(
        outcome.after,
        item,
        range(outcome.after.size),
        how.nodes,
        capacity=search.test_of(outcome.after) if tested else None,
    )
    # Reasons against the next one are given even if the limit ended the run.
    if limit is not None and len(outcome.placed) >= limit:
        return StopReason(LIMIT, outcome.last, failures, tuple(against))
    against += _together(search, {reason.node for reason in against})
    return StopReason(FULL, outcome.last, failures, tuple(against))


def _together(
    search: CapacitySearch, already: Collection[str]
) -> Iterator[reasons.Reason]:
    """Yield nodes that are fine alone, but not together with other nodes."""
    if search.how.nodes > 1:
        wanted = "another node with memory for its failovers too"
        words = ("FailMem", "secondary node", "", wanted, "none")
    else:
        wanted = "room elsewhere for the instances of any node that is lost"
        words = ("FailN1", "redundancy", "", wanted, "too little")
    nodes = search.state.cluster.nodes
    # These nodes have no reason of their own.
    for name in (nodes[node].name for node in search.usable):
        if name not in already:
            yield reasons.Reason(name, "primary", *words)


def _unsafe(search: CapacitySearch) -> Iterator[reasons.Reason]:
    state = search.state
    for node in search.bad_nodes():
        yield reasons.Reason(
            state.cluster.nodes[node].name,
            "secondary",
            constraints.KINDS[constraints.N1 - 1],
            "memory for failovers",
            "more than",
            float(state.r_mem[node]),
            float(state.unallocated[node]),
            "MiB",
        )


def data(search: CapacitySearch, outcome: CapacityOutcome) -> dict[str, Any]:
    """Return a run as a JSON object: how many, where in order, and why no more."""
    nodes = outcome.after.cluster.nodes
    return {
        "count": len(outcome.placed),
        "instances": [
            {
                "name": f"new-{number}",
                "nodes": [nodes[node].name for node in placed.nodes],
                **msgspec.structs.asdict(placed.size),
            }
            for number, placed in enumerate(outcome.placed)
        ],
        "stopped": stop(search, outcome).data(),
    }
