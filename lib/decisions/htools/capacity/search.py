"""How many more instances fit a cluster, and where, one after another.

``standard`` counts instances of one size, ``tiered`` lets the size shrink each time no
more fit. The answers list every place in order, and why there is not one more. The
given cluster does not change.
"""

from collections.abc import Collection, Sequence
from typing import Final

import msgspec
import numpy as np

from ganeti.decisions.htools.alloc import allocate
from ganeti.decisions.htools.capacity import filler as capacity_filler
from ganeti.decisions.htools.capacity import tiers
from ganeti.decisions.htools.capacity.rejections import Rejections
from ganeti.decisions.htools.capacity.tiers import InstanceSize
from ganeti.decisions.htools.model.cluster import (
    MOVABLE_TEMPLATES,
    NONE,
    Cluster,
    Instance,
)
from ganeti.decisions.htools.model.policy import AllocPolicy, Policy, Spec
from ganeti.decisions.htools.n1.check import GlobalN1
from ganeti.decisions.htools.rules import constraints
from ganeti.decisions.htools.state.node_state import ClusterState

#: Published batch sizes: the least of large batches, and that of small ones.
_LEAST_BATCH: Final = 20
_SMALL_BATCH: Final = 10
#: Primary nodes whose pairs are tested together.
_ROWS: Final = 32


class NoRoomError(Exception):
    """There is no node to try; the text gives the reason."""


class CapacityOptions(msgspec.Struct, frozen=True):
    """Properties of instances besides their size, and the rules that count.

    Attributes:
        template: of their disks.
        spindle_use: of each.
        limit: most instances, None for no limit.
        capacity_checks: the loss of any node must be survived.
        accept_errors: nodes that fail N+1 already do not matter.
        independent: only groups with such nodes are left out, instead of all.
        busy: share of a node that an instance uses.
        extra_disk: MiB that its disk takes besides its size.
    """

    template: str
    spindle_use: int = 1
    limit: int | None = None
    capacity_checks: bool = True
    accept_errors: bool = False
    independent: bool = False
    busy: tuple[float, float, float, float] = (1.0, 1.0, 1.0, 1.0)
    extra_disk: int = 0

    @property
    def nodes(self) -> int:
        """Number of nodes of each instance."""
        return 2 if self.template == "drbd" else 1

    def instance(self, size: InstanceSize, name: str = "new") -> Instance:
        """Return a new instance of a size; it has one disk, or none if diskless."""
        has_disks = bool(size.disk) or self.template != "diskless"
        return Instance(
            name=name,
            memory=size.memory,
            disk=size.disk + self.extra_disk,
            vcpus=size.vcpus,
            primary=NONE,
            template=self.template,
            spindle_use=self.spindle_use,
            spindles=size.spindles,
            disks=(size.disk,) if has_disks else (),
            utilisation=self.busy,
            movable=self.template in MOVABLE_TEMPLATES,
        )


class PlacedInstance(msgspec.Struct, frozen=True):
    """An instance and its nodes, primary first."""

    size: InstanceSize
    nodes: tuple[int, ...]


class CapacityOutcome(msgspec.Struct, frozen=True):
    """The result of a count.

    Attributes:
        placed: in order.
        failures: of the last try, by kind in the order of ``KINDS``.
        after: the state with all of them.
        last: the size of the last try.
        is_redundant: False if nothing was tried because nodes fail N+1 already.
    """

    placed: tuple[PlacedInstance, ...]
    failures: tuple[int, ...]
    after: ClusterState
    last: InstanceSize
    is_redundant: bool = True

    def cluster(self) -> Cluster:
        """Return records of the cluster with the new instances under their names."""
        cluster = self.after.as_cluster()
        old = len(cluster.instances) - len(self.placed)
        named = tuple(
            msgspec.structs.replace(item, name=f"new-{number}")
            for number, item in enumerate(cluster.instances[old:])
        )
        instances = cluster.instances[:old] + named
        return msgspec.structs.replace(cluster, instances=instances)


def by_count(failures: Sequence[int]) -> list[int]:
    """Return kinds of refusals (codes), the most frequent first."""
    return sorted(range(1, len(failures) + 1), key=lambda kind: -failures[kind - 1])


class CapacitySearch:
    """Counts capacity of one state, which does not change."""

    def __init__(
        self,
        state: ClusterState,
        how: CapacityOptions,
        *,
        groups: Collection[int] | None = None,
    ) -> None:
        """Prepare.

        Args:
            state: the cluster.
            how: properties of instances, and the rules that count.
            groups: the only node groups for instances; None for all.

        Raises:
            NoRoomError: there is no node to try.
        """
        self.state, self.how = state, how
        self.ignored = self._bad_groups()
        # Groups that take nothing still count in the score and in the N+1 test.
        every = range(len(state.cluster.groups)) if groups is None else groups
        left = set(every) - self.ignored
        # Where nodes fail already, nothing is placed unless an option accepts it.
        self.refuses = bool(self.bad_nodes()) and not (
            how.accept_errors or (how.independent and self._allocable(left))
        )
        allocable = self._allocable(left)
        self.usable = [
            node
            for node in range(state.size)
            if state.online[node] and int(state.group[node]) in allocable
        ]
        members = np.bincount(state.group[self.usable]) if self.usable else np.zeros(1)
        if members.max() < how.nodes and not self.refuses:
            word = "No" if how.nodes == 1 else "Not enough"
            raise NoRoomError(f"{word} online nodes")
        self._test: tuple[_StateMarker, GlobalN1] | None = None
        self._known_test: GlobalN1 | None = None
        self._last_place = NONE
        self._rejections: tuple[_StateMarker, Rejections] | None = None
        self.policies = {state.cluster.policy_of(node) for node in self.usable}

    def bad_nodes(self) -> list[int]:
        """Return nodes that fail N+1 before anything is placed."""
        state = self.state
        return [int(n) for n in np.nonzero(state.online & state.fails_n1)[0]]

    def _bad_groups(self) -> set[int]:
        """Return groups that take no instances because they fail N+1 already."""
        if self.how.accept_errors:
            return set()
        bad = set()
        if self.how.independent:
            test = GlobalN1(self.state)
            bad = {int(self.state.group[node]) for node in test.failing()}
        return bad | {int(self.state.group[node]) for node in self.bad_nodes()}

    def _allocable(self, groups: set[int]) -> set[int]:
        records = self.state.cluster.groups
        return {
            group
            for group in groups
            if records[group].alloc_policy != AllocPolicy.UNALLOCABLE
        }

    # Answers
    def standard(self, size: InstanceSize) -> CapacityOutcome:
        """Return how many instances of one size fit."""
        if self.refuses:
            return self._refusal(size)
        run = _CapacityRun(self, self.state.copy(), size, self.how.limit)
        run.steps()
        return run.outcome()

    def tiered(self, sizes: Sequence[InstanceSize]) -> CapacityOutcome:
        """Return how many fit if sizes shrink; each start continues the one before."""
        if self.refuses:
            return self._refusal(sizes[0])
        state, placed = self.state.copy(), tuple[PlacedInstance, ...]()
        for size in sizes:
            run = _CapacityRun(self, state, size, self.how.limit)
            run.shrink()
            outcome = run.outcome()
            state, placed = outcome.after, placed + outcome.placed
        return msgspec.structs.replace(outcome, placed=placed)

    def _refusal(self, size: InstanceSize) -> CapacityOutcome:
        failures = [0] * len(constraints.KINDS)
        # The published answer counts one refusal.
        failures[constraints.N1 - 1] = 1
        return CapacityOutcome(
            (), tuple(failures), self.state, size, is_redundant=False
        )

    # Tests
    def test_of(self, state: ClusterState) -> GlobalN1:
        """Return the global N+1 test of a state."""
        ignored = self.ignored if self.how.independent else ()
        self._known_test = GlobalN1(
            state,
            ignored_groups=ignored,
            only_online=self.how.accept_errors,
            known=self._known_test,
        )
        return self._known_test

    def attempt(
        self, state: ClusterState, size: InstanceSize, *, tested: bool
    ) -> tuple[list[int], bool]:
        """Try one instance; return refusals by kind, and whether there is a place.

        Args:
            state: does not change.
            size: of the instance.
            tested: the loss of any node must be survived with it.
        """
        item = self.how.instance(size)
        failures, possible = self.rejections_of(state).counts(item)
        if not possible or not tested:
            return failures, bool(possible)
        test = self._kept_test(state)
        if self._has_safe_place(state, item, test):
            return failures, True
        failures[constraints.N1 - 1] += possible
        return failures, False

    def _has_safe_place(
        self, state: ClusterState, item: Instance, test: GlobalN1
    ) -> bool:
        # Pairs are tested by tables, single nodes by a trial of each.
        if self.how.nodes > 1:
            return self._has_safe_pair(state, item, test)
        table = self.rejections_of(state)
        fine = table.nodes[table.primaries(item) == 0]
        # The place of the last instance is tried first, then the emptiest nodes.
        order = np.lexsort((-state.unallocated[fine], fine != self._last_place))
        for node in fine[order].tolist():
            if test.others_hold(item, node, -1):
                self._last_place = node
                return True
        return False

    def is_hopeless(self, state: ClusterState, size: InstanceSize) -> bool:
        """Return whether one on a single node, this size or larger, surely fails.

        False leaves it open.
        """
        item, test = self.how.instance(size), self._kept_test(state)
        table = self.rejections_of(state)
        fine = table.nodes[table.primaries(item) == 0]
        return all(test.surely_fails(item, node) for node in fine.tolist())

    def rejections_of(self, state: ClusterState) -> Rejections:
        """Return the counts of a state; kept as long as it does not change."""
        kept = self._rejections
        if kept is None or not kept[0].is_of(state):
            item = self.how.instance(InstanceSize(0, 0, 0))
            kept = _StateMarker(state), Rejections(state, item, self.usable)
            self._rejections = kept
        return kept[1]

    def _kept_test(self, state: ClusterState) -> GlobalN1:
        """Return the test of a state, kept as long as it does not change."""
        kept = self._test
        if kept is None or not kept[0].is_of(state):
            kept = _StateMarker(state), self.test_of(state)
            self._test = kept
        return kept[1]

    def _has_safe_pair(
        self, state: ClusterState, item: Instance, test: GlobalN1
    ) -> bool:
        rows, columns, fine = self.rejections_of(state).pairs(item)
        for at in range(0, len(rows), _ROWS):
            part = rows[at : at + _ROWS]
            safe = fine[at : at + _ROWS] & test.failovers.pairs(
                test.state, item, part, columns
            )
            for row, column in np.argwhere(safe):
                if test.others_hold(item, int(part[row]), int(columns[column])):
                    return True
        return False


class _StateMarker:
    """Recognises a state with the same number of instances."""

    def __init__(self, state: ClusterState) -> None:
        self._state, self._count = state, len(state.instances)

    def is_of(self, state: ClusterState) -> bool:
        return self._state is state and self._count == len(state.instances)


class _Filling(msgspec.Struct, frozen=True, eq=False):
    """The longest filling of a state: its size, and the places of each step."""

    state: ClusterState
    size: InstanceSize
    steps: Sequence[list[tuple[int, ...]]]


class _CapacityRun:
    """One run: a state that fills up."""

    def __init__(
        self,
        search: CapacitySearch,
        state: ClusterState,
        size: InstanceSize,
        limit: int | None,
    ) -> None:
        self.search, self.state, self.size = search, state, size
        self.how = search.how
        self.left = limit
        self.placed: list[PlacedInstance] = []
        self.failures: list[int] = []
        self._filling: _Filling | None = None

    def outcome(self) -> CapacityOutcome:
        failures = tuple(self.failures)
        return CapacityOutcome(tuple(self.placed), failures, self.state, self.size)

    # One size
    def steps(self) -> int:
        """Place instances of the present size; return how many.

        With the global N+1 test, it is left out while large batches keep the cluster
        redundant.
        """
        before = len(self.placed)
        left = self.left
        self.failures, possible = self._refusals()
        if not possible or left == 0:
            return 0
        if self.how.capacity_checks:
            while True:
                number = self._batch(self._batch_size(), left)
                if number is None:
                    break
                left = None if left is None else left - number
                self.failures, possible = self._refusals()
                if not possible or left == 0:
                    return len(self.placed) - before
            # From here on the last large batch is taken back.
            left = self._small_batches(left)
        # The published rule has no test for single DRBD instances.
        if self.how.capacity_checks and self.how.nodes == 1:
            self._tested_steps(left)
        else:
            self._add(*self._filled(self.state, left))
            self.failures = self._refusals()[0]
        return len(self.placed) - before

    def _refusals(self) -> tuple[list[int], int]:
        item = self.how.instance(self.size)
        return self.search.rejections_of(self.state).counts(item)

    def _batch_size(self) -> int:
        state = self.state
        # G of doc/placement.rst: what fits without a reserve, less one per node.
        free = np.maximum(0, state.unallocated - state.r_mem)[state.online].sum()
        each = max(1, self.size.memory)
        return max(_LEAST_BATCH, int(free) // each - state.size)

    def _filled(
        self, state: ClusterState, most: int | None
    ) -> tuple[ClusterState, list[tuple[int, ...]]]:
        out = state.copy(same_peers=self.how.nodes == 1)
        item = self.how.instance(self.size)
        filler = capacity_filler.Filler(out, item, self.search.usable)
        known = self._filling
        if known and not (known.state is state and known.size is self.size):
            known = None
        if filler.is_steady and known and most is not None:
            nodes = [place for step in known.steps for place in step]
            if most <= len(nodes):
                return out, filler.repeat(nodes[:most])
        steps = known.steps if known and not filler.is_steady else ()
        nodes = filler.fill(most, steps)
        if not known or len(filler.steps) > len(known.steps):
            self._filling = _Filling(state, self.size, filler.steps)
        return out, nodes

    def _add(self, state: ClusterState, nodes: Sequence[tuple[int, ...]]) -> None:
        self.state = state
        self.placed += [PlacedInstance(self.size, nodes_of) for nodes_of in nodes]

    def _batch(self, size: int, left: int | None) -> int | None:
        """Place a batch; return None if the cluster is not redundant after it."""
        state, nodes = self._filled(
            self.state, size if left is None else min(size, left)
        )
        if not self.search.test_of(state).holds():
            return None
        self._add(state, nodes)
        return len(nodes)

    def _small_batches(self, left: int | None) -> int | None:
        """Place all small batches that keep redundancy; return the limit left."""
        most = self._batch_size()
        if left is not None:
            most = min(most, left)
        low, high = 0, most // _SMALL_BATCH
        best: tuple[ClusterState, list[tuple[int, ...]]] | None = None
        while low < high:
            # Fewer instances are taken to be safer, so that bisection finds the most.
            middle = (low + high + 1) // 2
            filled = self._filled(self.state, middle * _SMALL_BATCH)
            if self.search.test_of(filled[0]).holds():
                low, best = middle, filled
            else:
                high = middle - 1
        if best is not None:
            self._add(*best)
            left = None if left is None else left - len(best[1])
        return left

    def _tested_steps(self, left: int | None) -> None:
        item = self.how.instance(self.size)
        state = self.state.copy(same_peers=True)
        test = self.search.test_of(state)
        while True:
            rules = allocate.AllocationRules(test)
            outcome = allocate.allocate(state, item, self.search.usable, 1, rules)
            self.failures = list(outcome.failures)
            if outcome.nodes is None or left == 0:
                return
            test = test.with_placed(item, outcome.nodes[0])
            self._add(state, [outcome.nodes])
            left = None if left is None else left - 1

    # Sizes that shrink
    def shrink(self) -> None:
        """Place instances, each time of the next smaller size for which one fits."""
        while True:
            self.steps()
            if self.left is not None:
                # Published: each round lowers the limit by all instances placed so far.
                self.left -= len(self.placed)
                if self.left <= 0:
                    return
            smaller = tiers.next_size(
                self._attempt, self.size, self.failures, self._bounds()
            )
            if smaller is None:
                return
            self.size, rounds = smaller
            if self.left is not None:
                self.left -= rounds * len(self.placed)

    def _bounds(self) -> tiers.SizeBounds:
        placed = len(self.placed)
        rounds = None
        if self.left is not None and placed:
            # More rounds than this use up the limit, see shrink().
            rounds = (self.left - 1) // placed
        is_tested = self.how.capacity_checks and self.how.nodes == 1
        is_small = len(self.search.usable) <= capacity_filler.EXACT_NODES
        # With local disks there are several times as many sizes, each slower to try.
        has_disks = self.how.instance(self.size).local
        if not is_tested or not is_small or has_disks:
            return tiers.SizeBounds(self.search.policies, rounds)
        return tiers.SizeBounds(
            self.search.policies,
            rounds,
            lambda size: self.search.is_hopeless(self.state, size),
        )

    def _attempt(self, size: InstanceSize, *, alone: bool) -> tuple[list[int], bool]:
        """Try a size as ``steps`` would, or ``alone`` with every test."""
        tested = self.how.capacity_checks and (alone or self.how.nodes == 1)
        return self.search.attempt(self.state, size, tested=tested)


def sizes_of(policy: Policy) -> tuple[InstanceSize, ...]:
    """Return the largest sizes a policy allows."""
    return tuple(size_of(high) for _low, high in policy.ranges)


def size_of(spec: Spec) -> InstanceSize:
    """Return the size that the record of a policy describes."""
    return InstanceSize(spec.memory, spec.disk, spec.cpus, spec.spindles)
