"""What ``hspace`` prints: lines for people, ``HTS_KEY=VALUE`` or JSON for programs."""

import abc
import itertools
import sys
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from ganeti.htools.capacity import totals
from ganeti.htools.capacity.search import How, Outcome, Search, by_count
from ganeti.htools.capacity.tiers import Size
from ganeti.htools.capacity.totals import Totals
from ganeti.htools.model import formatting
from ganeti.htools.rules import constraints
from ganeti.htools.state.node_state import State

_PREFIX: Final = "HTS"


def eight(value: float) -> str:
    """Print a score or part."""
    return formatting.fixed(value, 8)


def _whole(value: float) -> str:
    return formatting.fixed(float(value), 0)


def _part(amount: float, whole: float) -> float:
    return amount / whole if whole else float("nan")


def placements(found: Outcome) -> Iterator[str]:
    """Give a line for each new instance: name, nodes, memory, disk, vcpus."""
    nodes = found.after.cluster.nodes
    rows = []
    for number, placed in enumerate(found.placed):
        names = [nodes[node].name for node in placed.nodes]
        size = placed.size
        amounts = [str(size.memory), str(size.disk), str(size.vcpus)]
        rows.append([f"new-{number}", *names, *[""] * (2 - len(names)), *amounts, ""])
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    for row in rows:
        texts = [
            cell.rjust(width) if 3 <= place <= 5 else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield f" {' '.join(texts)}"


class Report(abc.ABC):
    """Prints about one cluster as results come in."""

    def __init__(self, now: State, how: How) -> None:
        """Prepare for a cluster and what is asked of it."""
        self.state, self.how = now, how
        self.initial = totals.totals(now)
        self.has_spindles = bool(now.exclusive.any())

    @abc.abstractmethod
    def begin(self) -> None:
        """Tell of the cluster."""

    @abc.abstractmethod
    def tiered(self, found: Outcome, size: Size) -> None:
        """Tell what tiered allocation found."""

    @abc.abstractmethod
    def standard(self, found: Outcome, size: Size) -> None:
        """Tell what allocation of one size found."""

    def explain(self, search: Search, found: Outcome) -> None:
        """Tell why the last run found no more, beside what programs read."""
        from ganeti.htools.capacity import stop_reasons

        for line in stop_reasons.stop(search, found).lines():
            sys.stderr.write(f"{line}\n")

    @abc.abstractmethod
    def end(self) -> None:
        """Tell that this is all."""


class Text(Report):
    """Lines for people."""

    def begin(self) -> None:
        """Tell of the cluster."""
        mine = self.initial
        spindles = f", SPN {_whole(mine.spindles)}" if self.has_spindles else ""
        count = mine.instances or "no"
        print(f"The cluster has {self.state.size} nodes and the following resources:")
        print(
            f"  MEM {_whole(mine.memory)}, DSK {_whole(mine.disk)},"
            f" CPU {_whole(mine.cpus)}, VCPU {_whole(mine.vcpus)}{spindles}."
        )
        print(f"There are {count} initial instances on the cluster.")

    def _size(self, size: Size) -> str:
        spindles = f", SPN {size.spindles}" if self.has_spindles else ""
        return f"MEM {size.memory}, DSK {size.disk}, CPU {size.vcpus}{spindles}"

    def _head(self, title: str, size: Size) -> None:
        template = self.how.template
        print(f"{title} instance spec is:")
        print(f"  {self._size(size)}, using disk template '{template}'.")

    def tiered(self, found: Outcome, size: Size) -> None:
        """Tell what tiered allocation found."""
        self._head("Tiered (initial size)", size)
        print("Tiered allocation results:")
        for one, number in runs(found):
            print(f"  - {number:3d} instances of spec {self._size(one)}")
        if not found.placed:
            print("  - no instances allocated")
        self._rest(found)

    def standard(self, found: Outcome, size: Size) -> None:
        """Tell what allocation of one size found."""
        self._head("Standard (fixed-size)", size)
        print("Normal (fixed-size) allocation results:")
        print(f"  - {len(found.placed):3d} instances allocated")
        self._rest(found)

    def _rest(self, found: Outcome) -> None:
        after = totals.totals(found.after)
        reason = constraints.KINDS[by_count(found.failures)[0] - 1]
        print(f"  - most likely failure reason: {reason}")
        print(f"  - initial cluster score: {eight(self.initial.score)}")
        print(f"  -   final cluster score: {eight(after.score)}")
        parts = {
            "memory": _part(after.used_memory, after.memory),
            "disk": _part(after.used_disk, after.disk),
            "vcpu": _part(after.used_vcpus, after.vcpus),
        }
        if self.has_spindles:
            parts["spindles"] = _part(after.used_spindles, after.spindles)
        width = max(map(len, parts))
        for name, part in parts.items():
            percent = formatting.fixed(100 * part, 2)
            print(f"  - {name:>{width}s} usage efficiency: {percent:>5s}%")

    def explain(self, search: Search, found: Outcome) -> None:
        """Tell why the last run found no more."""
        from ganeti.htools.capacity import stop_reasons

        for line in stop_reasons.stop(search, found).lines():
            print(line)

    def end(self) -> None:
        """Tell nothing more."""


class Keys(Report):
    """Keys and values for programs."""

    def begin(self) -> None:
        """Tell of the cluster."""
        mine = self.initial
        _tell("CLUSTER_MEM", _whole(mine.memory))
        _tell("CLUSTER_DSK", _whole(mine.disk))
        _tell("CLUSTER_CPU", _whole(mine.cpus))
        _tell("CLUSTER_VCPU", _whole(mine.vcpus))
        _tell("CLUSTER_SPN", _whole(mine.spindles))
        _tell("CLUSTER_NODES", str(self.state.size))
        self._totals("INI", mine)

    def _totals(self, phase: str, mine: Totals) -> None:
        reserved = mine.free_memory - mine.available_memory
        values = {
            "SCORE": eight(mine.score),
            "INST_CNT": str(mine.instances),
            "MEM_FREE": _whole(mine.free_memory),
            "MEM_AVAIL": _whole(mine.available_memory),
            "MEM_RESVD": _whole(reserved),
            "MEM_INST": _whole(mine.used_memory),
            "MEM_OVERHEAD": _whole(mine.missing_memory),
            "MEM_EFF": eight(_part(mine.used_memory, mine.memory)),
            "DSK_FREE": _whole(mine.free_disk),
            "DSK_AVAIL": _whole(mine.available_disk),
            "DSK_RESVD": _whole(mine.free_disk - mine.available_disk),
            "DSK_INST": _whole(mine.used_disk),
            "DSK_EFF": eight(_part(mine.used_disk, mine.disk)),
            "SPN_FREE": _whole(mine.free_spindles),
            "SPN_INST": _whole(mine.used_spindles),
            "SPN_EFF": eight(_part(mine.used_spindles, mine.spindles)),
            "CPU_INST": _whole(mine.used_vcpus),
            "CPU_EFF": eight(_part(mine.used_vcpus, mine.vcpus)),
            "MNODE_MEM_AVAIL": _whole(mine.most_memory),
            "MNODE_DSK_AVAIL": _whole(mine.most_disk),
        }
        for key, value in values.items():
            _tell(f"{phase}_{key}", value)

    def _size(self, prefix: str, size: Size) -> None:
        _tell(f"{prefix}_MEM", str(size.memory))
        _tell(f"{prefix}_DSK", str(size.disk))
        _tell(f"{prefix}_CPU", str(size.vcpus))
        _tell(f"{prefix}_SPN", str(size.spindles))
        _tell(f"{prefix}_RQN", str(self.how.nodes))
        _tell(f"{prefix}_DISK_TEMPLATE", self.how.template)

    def tiered(self, found: Outcome, size: Size) -> None:
        """Tell what tiered allocation found."""
        self._size("TSPEC_INI", size)
        after = totals.totals(found.after)
        self._totals("TRL", after)
        shown = [
            f"{one.memory},{one.disk},{one.vcpus},{one.spindles}={number}"
            for one, number in runs(found)
        ]
        _tell("TSPEC", " ".join(shown))
        self._use("USED", _used(self.initial), _NOTHING)
        self._use("POOL", _used(after), _used(self.initial))
        limits = (after.vcpus, after.cpus, after.memory, after.disk, after.spindles)
        self._use("UNAV", limits, _used(after))

    def _use(self, kind: str, most: "_Use", less: "_Use") -> None:
        for name, one, two in zip(_USES, most, less, strict=True):
            value = one - two
            text = formatting.shown(value) if name == "NPU" else _whole(value)
            _tell(f"KM_{kind}_{name}", text)

    def standard(self, found: Outcome, size: Size) -> None:
        """Tell what allocation of one size found."""
        self._size("SPEC", size)
        after = totals.totals(found.after)
        self._totals("FIN", after)
        _tell("ALLOC_USAGE", eight(_part(self.initial.instances, after.instances)))
        _tell("ALLOC_INSTANCES", str(len(found.placed)))
        kinds = by_count(found.failures)
        if not found.is_redundant:
            kinds = [constraints.N1]
        _tell("ALLOC_FAIL_REASON", constraints.KINDS[kinds[0] - 1].upper())
        for kind in kinds:
            name = constraints.KINDS[kind - 1].upper()
            _tell(f"ALLOC_{name}_CNT", str(found.failures[kind - 1]))

    def end(self) -> None:
        """Tell that this is all."""
        _tell("OK", "1")


class Document(Report):
    """One JSON document, printed at the end."""

    def begin(self) -> None:
        """Begin with the cluster."""
        self._data: dict[str, Any] = {
            "nodes": self.state.size,
            "disk_template": self.how.template,
            "initial": msgspec.structs.asdict(self.initial),
        }
        self._run = ""

    def _note(self, run: str, found: Outcome, size: Size) -> None:
        self._run = run
        self._data[run] = {
            "start": msgspec.structs.asdict(size),
            "final": msgspec.structs.asdict(totals.totals(found.after)),
        }

    def tiered(self, found: Outcome, size: Size) -> None:
        """Note what tiered allocation found."""
        self._note("tiered", found, size)

    def standard(self, found: Outcome, size: Size) -> None:
        """Note what allocation of one size found."""
        self._note("standard", found, size)

    def explain(self, search: Search, found: Outcome) -> None:
        """Note the places and why the last run found no more."""
        from ganeti.htools.capacity import stop_reasons

        self._data[self._run] |= stop_reasons.data(search, found)

    def end(self) -> None:
        """Print it."""
        import json

        print(json.dumps(self._data, indent=2, sort_keys=True))


_Use = tuple[float, float, float, float, float]
_USES: Final = ("CPU", "NPU", "MEM", "DSK", "SPN")
_NOTHING: Final[_Use] = (0.0, 0.0, 0.0, 0.0, 0.0)


def _used(mine: Totals) -> _Use:
    return (
        mine.used_vcpus,
        mine.shares,
        mine.used_memory,
        mine.used_disk,
        mine.used_spindles,
    )


def runs(found: Outcome) -> Iterator[tuple[Size, int]]:
    """Give sizes in order of allocation, and how many of each in a row."""
    for size, members in itertools.groupby(found.placed, lambda placed: placed.size):
        yield size, len(list(members))


def _tell(key: str, value: str) -> None:
    shown = formatting.quoted(value)
    print(f"{_PREFIX}_{key}={shown}")
