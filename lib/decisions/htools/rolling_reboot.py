"""Groups of nodes that may be rebooted together, as ``hroller`` plans them.

Nodes that share an instance get different colours. Then the nodes of each colour are
split until their instances without a secondary fit on other nodes during the reboot.
Source: the manual page of ``hroller``.

The colouring is greedy, in three orders; each gives the next vertex the lowest colour
that none of its neighbours has. A vertex may be its own neighbour and have the same
neighbour several times, which counts in its degree. Known libraries break ties
differently, and ties decide which of several equal answers a user sees.
"""

import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from ganeti.decisions.htools.model.cluster import NONE, Cluster, DataError
from ganeti.decisions.htools.rules import constraints, moves
from ganeti.decisions.htools.rules.moves import Move, MoveKind
from ganeti.decisions.htools.state.node_state import ClusterState

#: Neighbours of each vertex.
Graph = Mapping[int, Sequence[int]]
#: Vertices of each colour, ascending.
Classes = list[list[int]]
_Rank = Callable[[int, dict[int, int]], tuple[int, ...]]


def largest_first(graph: Graph) -> Classes:
    """Colour by degree, the highest vertex first on ties."""
    return _colour(graph, lambda vertex, _known: (len(graph[vertex]), vertex))


def most_colours(graph: Graph) -> Classes:
    """Colour the vertex with the most colours among its neighbours next (DSATUR)."""

    def rank(vertex: int, known: dict[int, int]) -> tuple[int, ...]:
        around = {known[other] for other in graph[vertex] if other in known}
        return len(around), len(graph[vertex]), vertex

    return _colour(graph, rank)


def most_coloured(graph: Graph) -> Classes:
    """Colour the vertex with the most coloured neighbours next."""

    def rank(vertex: int, known: dict[int, int]) -> tuple[int, ...]:
        around = sum(other in known for other in graph[vertex])
        return around, len(graph[vertex]), vertex

    return _colour(graph, rank)


#: The algorithms by printed name, the preferred one first.
ALGORITHMS: Final[Mapping[str, Callable[[Graph], Classes]]] = {
    "LF": largest_first,
    "Dsatur": most_colours,
    "Dcolor": most_coloured,
}


def colour(graph: Graph) -> dict[str, Classes]:
    """Colour a graph with every algorithm."""
    return {name: algorithm(graph) for name, algorithm in ALGORITHMS.items()}


def _colour(graph: Graph, rank: _Rank) -> Classes:
    known: dict[int, int] = {}
    left = set(graph)
    while left:
        vertex = max(left, key=lambda one: rank(one, known))
        left.remove(vertex)
        around = {known[other] for other in graph[vertex] if other in known}
        known[vertex] = next(c for c in range(len(graph)) if c not in around)
    count = max(known.values(), default=-1) + 1
    return [sorted(v for v in known if known[v] == colour) for colour in range(count)]


class RebootOptions(msgspec.Struct, frozen=True):
    """Options of a plan: the nodes, and the treatment of their instances.

    ``group`` and ``tags`` of None take all nodes. ``offline``: instances are shut down
    during the reboot. ``skip``: leave out nodes with primaries that have no secondary;
    ``ignore``: ignore such instances. ``full``: move secondaries away too.
    """

    group: int | None = None
    tags: Collection[str] | None = None
    offline: bool = False
    skip: bool = False
    ignore: bool = False
    full: bool = False


class RebootGroup(msgspec.Struct, frozen=True):
    """Nodes that are rebooted together, and the states before and after."""

    nodes: tuple[int, ...]
    before: ClusterState
    after: ClusterState

    def moved(self) -> dict[int, tuple[int, ...]]:
        """Return the new nodes of instances that get other nodes.

        Instances whose nodes only change roles are left out.
        """
        out = {}
        for inst in range(len(self.after.pri)):
            before, after = _nodes(self.before, inst), _nodes(self.after, inst)
            if set(before) != set(after):
                out[inst] = after
        return out


def _nodes(state: ClusterState, inst: int) -> tuple[int, ...]:
    return tuple(n for n in (state.pri[inst], state.sec[inst]) if n != NONE)


def chosen(state: ClusterState, options: RebootOptions) -> list[int]:
    """Return the nodes to reboot, ascending."""
    cluster = state.cluster
    return [
        n
        for n, node in enumerate(cluster.nodes)
        if not node.offline
        and options.group in {None, node.group}
        and (options.tags is None or set(options.tags) & set(node.tags))
        and not (options.skip and _without_secondary(state, n))
    ]


def graph(
    cluster: Cluster, nodes: Collection[int], *, offline: bool
) -> dict[int, list[int]]:
    """Return the graph that links nodes that must not be rebooted together.

    The vertices are all positions from the lowest to the highest of ``nodes``; only
    those of ``nodes`` are linked. A running instance needs one of its nodes, and its
    secondary must have the memory for all instances that fail over to it.
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
    """Return further pairs of primaries whose instances share a secondary."""
    primaries: list[dict[int, None]] = [{} for _node in cluster.nodes]
    for inst in reversed(cluster.instances):
        if inst.secondary != NONE and not inst.forthcoming:
            primaries[inst.secondary][inst.primary] = None
    pairs = itertools.chain.from_iterable(
        itertools.product(by_node, by_node) for by_node in primaries
    )
    return [pair for pair in dict.fromkeys(pairs) if pair not in known]


def fewest(
    colourings: Mapping[str, Classes],
) -> Classes:
    """Return the colouring with the fewest colours, the first one on ties."""
    return min(colourings.values(), key=len)


def parts(
    state: ClusterState,
    options: RebootOptions,
    nodes: Collection[int],
    classes: Classes,
) -> list[RebootGroup]:
    """Split colours into parts that can be emptied, in the order of their reboots.

    Raises:
        DataError: instances of a node fit on no other node.
    """
    out = [RebootGroup(tuple(members), state, state) for members in classes]
    if not options.ignore:
        out = _split(out, _move_singles, "non-redundant instances")
    if options.full:
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
    """Split parts: as many nodes as can be emptied together, then the rest likewise."""
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


def _without_secondary(state: ClusterState, node: int) -> list[int]:
    """Return the existing primary instances of a node that have no secondary."""
    return [i for i in _existing(state, node) if state.instances[i].template != "drbd"]


def _existing(state: ClusterState, node: int) -> list[int]:
    """Return the primary instances of a node that are not forthcoming."""
    return [i for i in state.primaries[node] if not state.instances[i].forthcoming]


def _move_singles(
    state: ClusterState, node: int, taken: Collection[int]
) -> ClusterState | None:
    moving = _without_secondary(state, node)
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
    """Fail over all instances that have their primary in a part.

    An instance stays if its primary is not to be rebooted and its secondary is in the
    part: the failover would move it to a node that is to be emptied.
    """
    swap = Move(MoveKind.FAILOVER)
    after = part.after.copy()
    for node in part.nodes:
        for inst in _existing(after, node):
            other = after.sec[inst]
            stays = node not in chosen_nodes and other in part.nodes
            if after.instances[inst].template != "drbd" or stays:
                continue
            if moves.failure(after, inst, swap, force=True, is_live=False):
                raise DataError("Failed to migrate instances off nodes")
            moves.apply(after, inst, swap)
    return msgspec.structs.replace(part, after=after)
