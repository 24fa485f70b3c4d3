"""Odd clusters with all their moves, and reports that name the term that is wrong.

Every component of the score, and every rule, has something to do in one of the clusters.
"""

import dataclasses
import functools
import math
import random

import msgspec
import numpy as np
import pytest

from fakes.plain_score import PlainScore
from fakes.some_cluster import every_move, random_cluster
from ganeti.decisions.htools.model.cluster import Cluster, Instance
from ganeti.decisions.htools.rules import moves
from ganeti.decisions.htools.state import node_state

#: Templates of instances that have no secondary and are moved when their node is lost.
_SINGLE = ("plain", "sharedfile")


def odd_cluster(seed: int) -> Cluster:
    """Return nodes of odd sizes, with tags, offline ones, and instances of all kinds.

    The spindles of all instances are known.
    """
    dice = random.Random(f"odd {seed}")
    base = random_cluster(seed, offline=dice.choice([0, 0, 1, 2]), tags=True)
    used = [0] * len(base.nodes)
    for item in base.instances:
        used[item.primary] += item.memory
    nodes = tuple(
        msgspec.structs.replace(
            node,
            # Often just as much is left as an instance or two would take.
            total_memory=float(node.node_memory + taken + left),
            free_memory=left + dice.choice([-512, 0, 0, 4096]),
            tags=(dice.choice(["rack:1", "rack:2"]), dice.choice(["hv:1", "hv:2"])),
            exclusive=dice.random() < 0.2,
            spindles=dice.choice([4, 12]),
            free_spindles=dice.choice([0, 1, 2, 9]),
            total_disk=dice.choice([0.0, 200000.0, 409600.0]),
            free_disk=dice.choice([1024, 10240, 11264, 20480, 200000]),
            cpus=dice.choice([4.0, 8.0]),
            cpu_speed=dice.choice([1.0, 1.5]),
            other_load=dice.choice([0.0, 0.25]),
        )
        for node, taken in zip(base.nodes, used, strict=True)
        for left in [512 * dice.choice([0, 1, 1, 2, 2, 3, 4, 4, 8])]
    )
    words = ["iextags:svc", "nlocation:rack", "migration:hv", "desiredlocation:rack"]
    tags = tuple(f"htools:{word}" for word in words if dice.random() < 0.5)
    if "htools:migration:hv" in tags:
        tags = (*tags, "htools:allowmigration:hv:1::hv:2")
    instances = tuple(_odd(item, dice) for item in base.instances)
    return msgspec.structs.replace(base, nodes=nodes, instances=instances, tags=tags)


def usual_cluster(seed: int) -> Cluster:
    """Return an odd cluster that tables of failures can describe.

    All nodes are online, and no instance is still to come or has an exclusion tag. A
    few that have their primary on the first node have a secondary.
    """
    dice = random.Random(f"usual {seed}")
    base = odd_cluster(seed)
    mirrored = [
        item for item in base.instances if item.primary == 0 and item.secondary > 0
    ]
    mirrored = mirrored[: seed % 4]
    locations = ("htools:nlocation:rack", "htools:desiredlocation:rack")
    return msgspec.structs.replace(
        base,
        nodes=tuple(msgspec.structs.replace(n, offline=False) for n in base.nodes),
        tags=locations if seed % 2 else (),
        instances=tuple(
            msgspec.structs.replace(
                item,
                template="drbd" if item in mirrored else dice.choice(_SINGLE),
                secondary=item.secondary if item in mirrored else -1,
                forthcoming=False,
                disks=(item.disk,),
            )
            for item in base.instances
        ),
    )


def _odd(item: Instance, dice: random.Random) -> Instance:
    shared = dice.random() < 0.25
    return msgspec.structs.replace(
        item,
        template="sharedfile" if shared else item.template,
        secondary=-1 if shared else item.secondary,
        spindles=dice.choice([0, 1, 2]),
        spindle_use=dice.choice([1, 2]),
        auto_balance=dice.random() < 0.9,
        forthcoming=dice.random() < 0.15,
        utilisation=tuple(dice.choice([0.25, 1.0, 1.75]) for _ in range(4)),
        status=dice.choice(["running", "running", "ADMIN_down", "ADMIN_offline"]),
        tags=(*item.tags, *dice.choice([(), ("rack:1",), ("rack:2",), ("rack:3",)])),
    )


SEEDS = range(10)
#: Largest difference of sums of a dozen values in another order.
CLOSE = 1e-9
#: Largest error of a root: that of a variance that is 0 but for rounding.
ROOT = 1e-6
#: Lines of a report that are shown.
_SHOWN = 12


@dataclasses.dataclass(frozen=True)
class After:
    """Effect of a move on the score, computed directly."""

    components: dict[str, float]
    rows: list[dict[str, float]]


class Case:
    """A cluster after some moves, and all moves that it has then."""

    def __init__(self, seed: int) -> None:
        cluster = odd_cluster(seed)
        self.seed = seed
        self.plain = PlainScore(cluster)
        self.state = node_state.derive(cluster)
        #: The moves by which the state came about.
        self.walk: list[tuple[int, moves.Move]] = []
        dice = random.Random(seed)
        for _ in range(seed % 4):
            inst, move = dice.choice(list(every_move(self.state)))
            moves.apply(self.state, inst, move)
            self.walk.append((inst, move))
        self.now = self._after(self.state.pri, self.state.sec)
        self.moves = list(every_move(self.state))
        self.after = [self._after(*self._places(*each)) for each in self.moves]

    def _after(self, primary: list[int], secondary: list[int]) -> After:
        return After(
            self.plain.components(primary, secondary),
            self.plain.values(primary, secondary),
        )

    def _places(self, inst: int, move: moves.Move) -> tuple[list[int], list[int]]:
        primary, secondary = list(self.state.pri), list(self.state.sec)
        primary[inst], secondary[inst] = moves.outcome(self.state, inst, move)
        return primary, secondary

    def change(self, number: int, name: str) -> float:
        """Return by how much a move changes a component."""
        return self.after[number].components[name] - self.now.components[name]

    def node(self, position: int) -> str:
        """Name a node."""
        return f"node {self.state.cluster.nodes[position].name}"

    def move(self, inst: int, move: moves.Move) -> str:
        """Describe a move."""
        item, state = self.state.instances[inst], self.state
        after = ":".join(map(str, moves.outcome(state, inst, move)))
        return (
            f"cluster {self.seed}, {move.kind.name} of {item.name} "
            f"({state.pri[inst]}:{state.sec[inst]} => {after})"
        )


class NewInstance:
    """A cluster, and a new instance like one of its own."""

    def __init__(self, seed: int, cluster: Cluster, **changes: object) -> None:
        self.seed = seed
        pattern = cluster.instances[seed % len(cluster.instances)]
        places = {"name": "new", "primary": -1, "secondary": -1}
        self.item = msgspec.structs.replace(pattern, **places, **changes)
        self.state = node_state.ClusterState(cluster, new_instances=[self.item])
        self.nodes = np.nonzero(self.state.online)[0]
        self.plain = PlainScore(cluster)
        self.plain.cluster = msgspec.structs.replace(
            cluster, instances=(*cluster.instances, self.item)
        )

    def now(self) -> list[dict[str, float]]:
        """Work out the values of all nodes without the instance."""
        plain = PlainScore(self.state.cluster)
        return plain.values(self.state.pri, self.state.sec)

    def _places(self, nodes: tuple[int, ...]) -> tuple[list[int], list[int]]:
        first, second = (*nodes, -1)[:2]
        return [*self.state.pri, first], [*self.state.sec, second]

    def components(self, *nodes: int) -> dict[str, float]:
        """Work out the components with the instance on one or two nodes."""
        return self.plain.components(*self._places(nodes))

    def values(self, *nodes: int) -> list[dict[str, float]]:
        """Work out the values of all nodes with the instance on one or two nodes."""
        return self.plain.values(*self._places(nodes))

    def text(self, name: str, *nodes: int) -> str:
        """Name a component and the nodes of the instance."""
        names = ", ".join(self.state.cluster.nodes[node].name for node in nodes)
        return f"component {name}, cluster {self.seed}, new instance on {names}"


@functools.cache
def case(seed: int) -> Case:
    """Return a cluster with nodes online; tests leave it as it is."""
    return Case(seed)


class Report:
    """Collects what differs, so that one run lists every wrong term."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._compared = 0

    def equal(self, where: str, expected: float, result: float) -> None:
        """Compare a term with what it should be."""
        self._compared += 1
        if not math.isclose(expected, result, rel_tol=CLOSE, abs_tol=CLOSE):
            self._lines.append(f"{where}: expected {expected!r}, found {result!r}")

    def near(self, where: str, expected: float, result: float) -> None:
        """Compare a root, which of almost nothing has few digits."""
        self._compared += 1
        if not abs(expected - result) <= ROOT:
            self._lines.append(f"{where}: expected {expected!r}, found {result!r}")

    def at_most(self, where: str, bound: float, actual: float) -> None:
        """Compare a lower bound with something that it bounds."""
        self._compared += 1
        if not bound <= actual + CLOSE:
            more = bound - actual
            self._lines.append(f"{where}: bound {bound!r} > {actual!r} by {more:.3g}")

    def check(self) -> None:
        """Fail with all that differs, and if nothing was compared."""
        if self._lines:
            left = len(self._lines) - _SHOWN
            more = [f"... and {left} more"] if left > 0 else []
            pytest.fail("\n".join([*self._lines[:_SHOWN], *more]), pytrace=False)
        assert self._compared
