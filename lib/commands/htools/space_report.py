"""Output of ``hspace``: text, ``HTS_KEY=VALUE`` lines, or JSON."""

import abc
import itertools
import sys
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from ganeti.decisions.htools.capacity import totals
from ganeti.decisions.htools.capacity.search import (
    CapacityOptions,
    CapacityOutcome,
    CapacitySearch,
    by_count,
)
from ganeti.decisions.htools.capacity.tiers import InstanceSize
from ganeti.decisions.htools.capacity.totals import Totals
from ganeti.decisions.htools.model import formatting
from ganeti.decisions.htools.rules import constraints
from ganeti.decisions.htools.state.node_state import ClusterState

_PREFIX: Final = "HTS"


def eight(value: float) -> str:
    """Return a score or fraction with eight decimals."""
    return formatting.fixed(value, 8)


def _whole(value: float) -> str:
    return formatting.fixed(float(value), 0)


def _part(amount: float, whole: float) -> float:
    return amount / whole if whole else float("nan")


def placements(outcome: CapacityOutcome) -> Iterator[str]:
    """Yield one line per new instance: name, nodes, memory, disk, vcpus."""
    nodes = outcome.after.cluster.nodes
    rows = []
    for number, placed in enumerate(outcome.placed):
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
    """Report about one cluster, printed step by step."""

    def __init__(self, now: ClusterState, how: CapacityOptions) -> None:
        """Compute the initial totals of a cluster."""
        self.state, self.how = now, how
        self.initial = totals.totals(now)
        self.has_spindles = bool(now.exclusive.any())

    @abc.abstractmethod
    def begin(self) -> None:
        """Print the numbers of the cluster."""

    @abc.abstractmethod
    def tiered(self, outcome: CapacityOutcome, size: InstanceSize) -> None:
        """Print the result of tiered allocation."""

    @abc.abstractmethod
    def standard(self, outcome: CapacityOutcome, size: InstanceSize) -> None:
        """Print the result of standard allocation, with one size."""

    def explain(self, search: CapacitySearch, outcome: CapacityOutcome) -> None:
        """Print on stderr why no further instance fitted in the last run."""
        from ganeti.decisions.htools.capacity import stop_reasons

        for line in stop_reasons.stop(search, outcome).lines():
            sys.stderr.write(f"{line}\n")

    @abc.abstractmethod
    def end(self) -> None:
        """Print the end of the report."""


class TextReport(Report):
    """Report as text."""

    def begin(self) -> None:
        """Print the numbers of the cluster."""
        initial = self.initial
        spindles = f", SPN {_whole(initial.spindles)}" if self.has_spindles else ""
        count = initial.instances or "no"
        print(f"The cluster has {self.state.size} nodes and the following resources:")
        print(
            f"  MEM {_whole(initial.memory)}, DSK {_whole(initial.disk)},"
            f" CPU {_whole(initial.cpus)},"
            f" VCPU {_whole(initial.vcpus)}{spindles}."
        )
        print(f"There are {count} initial instances on the cluster.")

    def _size(self, size: InstanceSize) -> str:
        spindles = f", SPN {size.spindles}" if self.has_spindles else ""
        return f"MEM {size.memory}, DSK {size.disk}, CPU {size.vcpus}{spindles}"

    def _head(self, title: str, size: InstanceSize) -> None:
        template = self.how.template
        print(f"{title} instance spec is:")
        print(f"  {self._size(size)}, using disk template '{template}'.")

    def tiered(self, outcome: CapacityOutcome, size: InstanceSize) -> None:
        """Print the result of tiered allocation."""
        self._head("Tiered (initial size)", size)
        print("Tiered allocation results:")
        for one, number in runs(outcome):
            print(f"  - {number:3d} instances of spec {self._size(one)}")
        if not outcome.placed:
            print("  - no instances allocated")
        self._rest(outcome)

    def standard(self, outcome: CapacityOutcome, size: InstanceSize) -> None:
        """Print the result of standard allocation, with one size."""
        self._head("Standard (fixed-size)", size)
        print("Normal (fixed-size) allocation results:")
        print(f"  - {len(outcome.placed):3d} instances allocated")
        self._rest(outcome)

    def _rest(self, outcome: CapacityOutcome) -> None:
        after = totals.totals(outcome.after)
        reason = constraints.KINDS[by_count(outcome.failures)[0] - 1]
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

    def explain(self, search: CapacitySearch, outcome: CapacityOutcome) -> None:
        """Print why no further instance fitted in the last run."""
        from ganeti.decisions.htools.capacity import stop_reasons

        for line in stop_reasons.stop(search, outcome).lines():
            print(line)

    def end(self) -> None:
        """Print nothing."""


class KeyValueReport(Report):
    """Report as keys and values."""

    def begin(self) -> None:
        """Print the numbers of the cluster."""
        phase_totals = self.initial
        _print_value("CLUSTER_MEM", _whole(phase_totals.memory))
        _print_value("CLUSTER_DSK", _whole(phase_totals.disk))
        _print_value("CLUSTER_CPU", _whole(phase_totals.cpus))
        _print_value("CLUSTER_VCPU", _whole(phase_totals.vcpus))
        _print_value("CLUSTER_SPN", _whole(phase_totals.spindles))
        _print_value("CLUSTER_NODES", str(self.state.size))
        self._totals("INI", phase_totals)

    def _totals(self, phase: str, phase_totals: Totals) -> None:
        reserved = phase_totals.free_memory - phase_totals.available_memory
        values = {
            "SCORE": eight(phase_totals.score),
            "INST_CNT": str(phase_totals.instances),
            "MEM_FREE": _whole(phase_totals.free_memory),
            "MEM_AVAIL": _whole(phase_totals.available_memory),
            "MEM_RESVD": _whole(reserved),
            "MEM_INST": _whole(phase_totals.used_memory),
            "MEM_OVERHEAD": _whole(phase_totals.missing_memory),
            "MEM_EFF": eight(_part(phase_totals.used_memory, phase_totals.memory)),
            "DSK_FREE": _whole(phase_totals.free_disk),
            "DSK_AVAIL": _whole(phase_totals.available_disk),
            "DSK_RESVD": _whole(phase_totals.free_disk - phase_totals.available_disk),
            "DSK_INST": _whole(phase_totals.used_disk),
            "DSK_EFF": eight(_part(phase_totals.used_disk, phase_totals.disk)),
            "SPN_FREE": _whole(phase_totals.free_spindles),
            "SPN_INST": _whole(phase_totals.used_spindles),
            "SPN_EFF": eight(_part(phase_totals.used_spindles, phase_totals.spindles)),
            "CPU_INST": _whole(phase_totals.used_vcpus),
            "CPU_EFF": eight(_part(phase_totals.used_vcpus, phase_totals.vcpus)),
            "MNODE_MEM_AVAIL": _whole(phase_totals.most_memory),
            "MNODE_DSK_AVAIL": _whole(phase_totals.most_disk),
        }
        for key, value in values.items():
            _print_value(f"{phase}_{key}", value)

    def _size(self, prefix: str, size: InstanceSize) -> None:
        _print_value(f"{prefix}_MEM", str(size.memory))
        _print_value(f"{prefix}_DSK", str(size.disk))
        _print_value(f"{prefix}_CPU", str(size.vcpus))
        _print_value(f"{prefix}_SPN", str(size.spindles))
        _print_value(f"{prefix}_RQN", str(self.how.nodes))
        _print_value(f"{prefix}_DISK_TEMPLATE", self.how.template)

    def tiered(self, outcome: CapacityOutcome, size: InstanceSize) -> None:
        """Print the result of tiered allocation."""
        self._size("TSPEC_INI", size)
        after = totals.totals(outcome.after)
        self._totals("TRL", after)
        shown = [
            f"{one.memory},{one.disk},{one.vcpus},{one.spindles}={number}"
            for one, number in runs(outcome)
        ]
        _print_value("TSPEC", " ".join(shown))
        self._use("USED", _used(self.initial), _NOTHING)
        self._use("POOL", _used(after), _used(self.initial))
        limits = (after.vcpus, after.cpus, after.memory, after.disk, after.spindles)
        self._use("UNAV", limits, _used(after))

    def _use(self, kind: str, most: "_Use", less: "_Use") -> None:
        for name, one, two in zip(_USES, most, less, strict=True):
            value = one - two
            text = formatting.shown(value) if name == "NPU" else _whole(value)
            _print_value(f"KM_{kind}_{name}", text)

    def standard(self, outcome: CapacityOutcome, size: InstanceSize) -> None:
        """Print the result of standard allocation, with one size."""
        self._size("SPEC", size)
        after = totals.totals(outcome.after)
        self._totals("FIN", after)
        _print_value(
            "ALLOC_USAGE", eight(_part(self.initial.instances, after.instances))
        )
        _print_value("ALLOC_INSTANCES", str(len(outcome.placed)))
        kinds = by_count(outcome.failures)
        if not outcome.is_redundant:
            kinds = [constraints.N1]
        _print_value("ALLOC_FAIL_REASON", constraints.KINDS[kinds[0] - 1].upper())
        for kind in kinds:
            name = constraints.KINDS[kind - 1].upper()
            _print_value(f"ALLOC_{name}_CNT", str(outcome.failures[kind - 1]))

    def end(self) -> None:
        """Print the end of the report."""
        _print_value("OK", "1")


class Document(Report):
    """One JSON document, printed at the end."""

    def begin(self) -> None:
        """Add the numbers of the cluster."""
        self._data: dict[str, Any] = {
            "nodes": self.state.size,
            "disk_template": self.how.template,
            "initial": msgspec.structs.asdict(self.initial),
        }
        self._run = ""

    def _add(self, run: str, outcome: CapacityOutcome, size: InstanceSize) -> None:
        self._run = run
        self._data[run] = {
            "start": msgspec.structs.asdict(size),
            "final": msgspec.structs.asdict(totals.totals(outcome.after)),
        }

    def tiered(self, outcome: CapacityOutcome, size: InstanceSize) -> None:
        """Add the result of tiered allocation."""
        self._add("tiered", outcome, size)

    def standard(self, outcome: CapacityOutcome, size: InstanceSize) -> None:
        """Add the result of standard allocation."""
        self._add("standard", outcome, size)

    def explain(self, search: CapacitySearch, outcome: CapacityOutcome) -> None:
        """Add the placements and the reason why no further instance fitted."""
        from ganeti.decisions.htools.capacity import stop_reasons

        self._data[self._run] |= stop_reasons.data(search, outcome)

    def end(self) -> None:
        """Print the document."""
        import json

        print(json.dumps(self._data, indent=2, sort_keys=True))


_Use = tuple[float, float, float, float, float]
_USES: Final = ("CPU", "NPU", "MEM", "DSK", "SPN")
_NOTHING: Final[_Use] = (0.0, 0.0, 0.0, 0.0, 0.0)


def _used(phase_totals: Totals) -> _Use:
    return (
        phase_totals.used_vcpus,
        phase_totals.shares,
        phase_totals.used_memory,
        phase_totals.used_disk,
        phase_totals.used_spindles,
    )


def runs(outcome: CapacityOutcome) -> Iterator[tuple[InstanceSize, int]]:
    """Yield sizes in the order of allocation, with the number of each run."""
    for size, members in itertools.groupby(outcome.placed, lambda placed: placed.size):
        yield size, len(list(members))


def _print_value(key: str, value: str) -> None:
    shown = formatting.quoted(value)
    print(f"{_PREFIX}_{key}={shown}")
