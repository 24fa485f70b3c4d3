"""How many places are refused an instance, and why: counts without a matrix.

The counts are those of ``htools.alloc``: each node, or each pair of nodes of a group,
by the first rule that refuses it. Work grows with nodes, not with pairs.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from ganeti.htools import grid_checks as checks
from ganeti.htools import model
from ganeti.htools.grid import State

Places = npt.NDArray[np.intp]
Counts = list[int]


def counts(
    state: State, item: model.Instance, usable: Sequence[int]
) -> tuple[Counts, int]:
    """Return refused places by kind (order of ``checks.KINDS``), and possible ones.

    Args:
        state: without the instance.
        item: the newcomer.
        usable: nodes that may be used, online.
    """
    nodes: Places = np.array(list(usable), np.intp)
    own = _primary(state, item, nodes)
    if item.template != "drbd":
        return _sorted(np.bincount(own, minlength=len(checks.KINDS) + 1))
    groups = state.group[nodes]
    sizes = np.bincount(groups, minlength=len(state.cluster.groups))
    partners = sizes[groups] - 1
    found = np.zeros(len(checks.KINDS) + 1, np.int64)
    refused = own != 0
    np.add.at(found, own[refused], partners[refused])
    _add_secondaries(found, state, item, nodes, nodes[~refused])
    return _sorted(found)


def _sorted(found: npt.NDArray[np.int64]) -> tuple[Counts, int]:
    return [int(number) for number in found[1:]], int(found[0])


def _primary(state: State, item: model.Instance, nodes: Places) -> checks.Codes:
    known: dict[tuple[int, bool], int] = {}
    own = checks.verdict(checks.primary(state, item), state.size)[nodes]
    for at, node in enumerate(nodes.tolist()):
        key = (int(state.group[node]), bool(state.exclusive[node]))
        if key not in known:
            rules = state.cluster.groups[key[0]].policy
            found = checks.policy(item, rules, exclusive=key[1])
            known[key] = found[0] if found else 0
        own[at] = known[key] or own[at]
    return own


def _add_secondaries(
    found: npt.NDArray[np.int64],
    state: State,
    item: model.Instance,
    nodes: Places,
    primaries: Places,
) -> None:
    """Count the pairs whose primary is possible.

    Which primary it is matters only for the memory kept for it: each node has one code
    where that is enough, and another where it is not.
    """
    nothing = np.zeros(state.size)
    enough = checks.verdict(checks.secondary(state, item, nothing), state.size)
    lacking = np.full(state.size, np.inf)
    short = checks.verdict(checks.secondary(state, item, lacking), state.size)
    groups = state.group
    number = np.bincount(groups[primaries], minlength=len(state.cluster.groups))
    is_primary = np.zeros(state.size, bool)
    is_primary[primaries] = True
    pairs = number[groups[nodes]] - is_primary[nodes]
    np.add.at(found, enough[nodes], pairs)
    close = state.unallocated <= state.r_mem + item.reserved_memory
    for node in nodes[close[nodes] & (enough != short)[nodes]].tolist():
        kept = state.peers[node, primaries] + item.reserved_memory
        lack = (state.unallocated[node] <= kept) & (groups[primaries] == groups[node])
        lack &= primaries != node
        wrong = int(lack.sum())
        found[enough[node]] -= wrong
        found[short[node]] += wrong
