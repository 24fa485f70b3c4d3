"""Groups of nodes that may be down together, as ``hroller`` plans them.

Nodes that share an instance get different colours; then each colour's nodes are split
until the instances without a copy fit on other nodes meanwhile.
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from ganeti.htools.maintenance import graph_colouring
from ganeti.htools.model.cluster import NONE, Cluster, DataError
from ganeti.htools.rules import constraints, moves
from ganeti.htools.rules.moves import Move, MoveKind
from ganeti.htools.state.node_state import ClusterState


class RebootOptions(msgspec.Struct, frozen=True):
    """Which nodes, and what happens to their instances.

    ``group`` and ``tags`` of None take all nodes. ``offline``: instances are shut down
    meanwhile. ``skip``: leave out nodes with primaries that have no copy; ``ignore``:
    pretend there are no such instances. ``full``: move secondaries away too.
    """

    group: int | None = None
    tags: Collection[str] | None = None
    offline: bool = False
    skip: bool = False
    ignore: bool = False
    full: bool = False


class RebootGroup(msgspec.Struct, frozen=True):
    """Nodes that go down together, and the state with them empty."""

    nodes: tuple[int, ...]
    before: ClusterState
    after: ClusterState

    def moved(self) -> dict[int, tuple[int, ...]]:
        """Give the nodes of instances that get other ones.

        Those whose nodes only change roles are left out.
        """
        out = {}
        for inst in range(len(self.after.pri)):
            before, after = _nodes(self.before, inst), _nodes(self.after, inst)
            if set(before) != set(after):
                out[inst] = after
        return out


def _nodes(state: ClusterState, inst: int) -> tuple[int, ...]:
    return tuple(n for n in (state.pri[inst], state.sec[inst]) if n != NONE)


def chosen(state: ClusterState, want: RebootOptions) -> list[int]:
    """List the nodes to reboot, ascending."""
    cluster = state.cluster
    return [
        n
        for n, node in enumerate(cluster.nodes)
        if not node.offline
        and want.group in {None, node.group}
        and (want.tags is None or set(want.tags) & set(node.tags))
        and not (want.skip and _single(state, n))
    ]


def graph(
    cluster: Cluster, nodes: Collection[int], *, offline: bool
) -> dict[int, list[int]]:
    """Link nodes that must not be down together.

    The vertices are all positions from the lowest to the highest of ``nodes``; only
    those of ``nodes`` are linked. Instances that run need both their nodes and, while
    they are failed over, memory on the secondary for all that share it.
    """
    links = [
        pair
        for inst in cluster.instances
        if inst.secondary != NONE
        for pair in (
            (inst.primary, inst.secondary),
            (inst.secondary, inst.primary),
        )
    ]
    if not offline:
        links += _sharing(cluster, set(links))
    out: dict[int, list[int]] = {n: [] for n in range(min(nodes), max(nodes) + 1)}
    for one, two in links:
        if one in nodes and two in nodes:
            out[one].insert(0, two)
    return out


def _sharing(
    cluster: Cluster, known: Collection[tuple[int, int]]
) -> list[tuple[int, int]]:
    """Give the pairs of primaries whose instances share a secondary, not yet known."""
    primaries: list[dict[int, None]] = [{} for _node in cluster.nodes]
    for inst in reversed(cluster.instances):
        if inst.secondary != NONE and not inst.forthcoming:
            primaries[inst.secondary][inst.primary] = None
    pairs = itertools.chain.from_iterable(
        itertools.product(by_node, by_node) for by_node in primaries
    )
    return [pair for pair in dict.fromkeys(pairs) if pair not in known]


def fewest(
    colourings: Mapping[str, graph_colouring.Classes],
) -> graph_colouring.Classes:
    """Choose the colouring with fewest colours, the first one on ties."""
    return min(colourings.values(), key=len)


def parts(
    state: ClusterState,
    want: RebootOptions,
    nodes: Collection[int],
    classes: graph_colouring.Classes,
) -> list[RebootGroup]:
    """Split colours into parts that can be emptied, in the order to reboot them.

    Raises:
        DataError: instances of a node fit nowhere.
    """
    out = [RebootGroup(tuple(members), state, state) for members in classes]
    if not want.ignore:
        out = _split(out, _move_singles, "non-redundant instances")
    if want.full:
        out = [_failed_over(part, nodes) for part in out]
        out = _split(out, _move_secondaries, "secondaries")
    groups = [_only(part, nodes) for part in out]
    master = next(
        (n for n, node in enumerate(state.cluster.nodes) if node.master), NONE
    )
    groups = [
        msgspec.structs.replace(
            p, nodes=tuple(sorted(p.nodes, key=lambda n: n == master))
        )
        for p in groups
        if p.nodes
    ]
    return sorted(groups, key=lambda p: (master in p.nodes, -len(p.nodes)))


def _only(part: RebootGroup, nodes: Collection[int]) -> RebootGroup:
    kept = tuple(node for node in part.nodes if node in nodes)
    return msgspec.structs.replace(part, nodes=kept)


_Emptier = Callable[[ClusterState, int, Collection[int]], ClusterState | None]


def _split(parts: list[RebootGroup], empty: _Emptier, what: str) -> list[RebootGroup]:
    """Take as many nodes of a part as can be emptied, then the same with the rest."""
    out = []
    for part in parts:
        group = list(part.nodes)
        while group:
            taken, after = _taken(part.after, group, empty)
            if not taken:
                raise DataError(f"Not enough capacity to move {what}")
            out.append(RebootGroup(tuple(taken), part.before, after))
            group = [node for node in group if node not in taken]
    return out


def _taken(
    state: ClusterState, group: list[int], empty: _Emptier
) -> tuple[list[int], ClusterState]:
    taken: list[int] = []
    for node in group:
        after = empty(state, node, [*taken, node])
        if after is not None:
            state = after
            taken.append(node)
    return taken, state


def _single(state: ClusterState, node: int) -> list[int]:
    """List primaries of a node that have no second one."""
    return [i for i in _real(state, node) if state.instances[i].template != "drbd"]


def _real(state: ClusterState, node: int) -> list[int]:
    """List primaries of a node that are there already."""
    return [i for i in state.primaries[node] if not state.instances[i].forthcoming]


def _move_singles(
    state: ClusterState, node: int, taken: Collection[int]
) -> ClusterState | None:
    moving = _single(state, node)
    after = state.copy() if moving else state
    for inst in moving:
        checks = constraints.primary(after, after.instances[inst], strict=False)
        codes = constraints.verdict(checks, after.size)
        for target in _targets(after, node, taken):
            if not codes[target]:
                moves.place(after, inst, target, NONE)
                break
        else:
            return None
    return after


def _move_secondaries(
    state: ClusterState, node: int, taken: Collection[int]
) -> ClusterState | None:
    moving = [i for i in state.secondaries[node] if not state.instances[i].forthcoming]
    after = state.copy() if moving else state
    for inst in moving:
        first, item = after.pri[inst], after.instances[inst]
        peers = after.peers[:, first]
        checks = constraints.secondary(after, item, peers, strict=False)
        codes = constraints.verdict(checks, after.size)
        for target in _targets(after, node, {*taken, first}):
            if not codes[target]:
                moves.place(after, inst, first, target)
                break
        else:
            return None
    return after


def _targets(state: ClusterState, node: int, taken: Collection[int]) -> Iterable[int]:
    nodes = state.cluster.nodes
    return (
        t
        for t, other in enumerate(nodes)
        if not other.offline and other.group == nodes[node].group and t not in taken
    )


def _failed_over(part: RebootGroup, chosen_nodes: Collection[int]) -> RebootGroup:
    """Swap the nodes of all instances that have their primary in a part.

    Not of one whose primary stays up or is down already and whose secondary is in the
    part: it would come to a node that is to be emptied.
    """
    swap = Move(MoveKind.FAILOVER)
    after = part.after.copy()
    for node in part.nodes:
        for inst in _real(after, node):
            other = after.sec[inst]
            stays = node not in chosen_nodes and other in part.nodes
            if after.instances[inst].template != "drbd" or stays:
                continue
            if moves.failure(after, inst, swap, force=True, is_live=False):
                raise DataError("Failed to migrate instances off nodes")
            moves.apply(after, inst, swap)
    return msgspec.structs.replace(part, after=after)
