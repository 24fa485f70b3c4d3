"""The cluster score and its components.

The score is S = sum of w_j C_j over the components j, in the order of ``WEIGHTS``.
Lower is better, and S has no unit. Most components are the population standard
deviation of a value x_i per online node i, sigma = sqrt(sum (x_i - mu)^2 / u) with u
online nodes; the others are sums and counts. doc/placement.rst lists all of them with
their reasons.

Sums run in node order, because the sum of floating-point numbers depends on the order
and equal states must have equal digits.
"""

from typing import Final

import msgspec
import numpy as np

from ganeti.decisions.htools.score import counts
from ganeti.decisions.htools.score.counts import Count
from ganeti.decisions.htools.score.tag_counts import (
    LocationTags,
    RepeatedPairs,
    RepeatedTags,
)
from ganeti.decisions.htools.state.amounts import ROWS, Floats, Places
from ganeti.decisions.htools.state.node_state import ClusterState


class Metric(msgspec.Struct, frozen=True):
    """A value of each node whose standard deviation is a component of the score.

    Attributes:
        row: the row of ``ROWS`` that instances change.
        whole: the attribute of a state that divides the row; empty for none.
        spindles: the row that replaces it on nodes with exclusive storage, as a share
            of their spindles; empty for none.
        by_speed: divided by the CPU speed of the node as well.
    """

    row: str
    whole: str = ""
    spindles: str = ""
    by_speed: bool = False

    def values(self, state: ClusterState) -> Floats:
        """Return the value of each node."""
        part: Floats = getattr(state, self.row)
        if self.spindles:
            return _disk(state, part, getattr(state, self.spindles))
        if not self.whole:
            return part
        part = per(part, getattr(state, self.whole))
        return part / state.speed if self.by_speed else part


class Component(msgspec.Struct, frozen=True):
    """One summand of the score.

    Attributes:
        name: as in the documented tables.
        weight: the factor of its value.
        metric: its value is the standard deviation of this, or None.
        count: its value is a count, of which this has all changes, or None.
        total_of: its value is the sum of the metric of this component.
        is_fault: it counts faults, which a single move can remove.
    """

    name: str
    weight: float
    metric: Metric | None = None
    count: Count | None = None
    total_of: str = ""
    is_fault: bool = False


#: All components in the order of their sum. Every module that computes scores, their
#: changes or bounds of these takes everything from this table; only reserved memory is
#: known by name. How to add one: doc/placement.rst.
COMPONENTS: Final = (
    Component("free_mem_cv", 0.5, Metric("unallocated", "t_mem")),
    Component("free_disk_cv", 0.5, Metric("f_dsk", "t_dsk", spindles="f_spin")),
    Component("n1_cnt", 1.0, count=counts.FailingInstances(), is_fault=True),
    Component("reserved_mem_cv", 1.0, Metric("r_mem", "t_mem")),
    # Faults weigh more than any unevenness, so that they are removed first.
    Component("offline_all_cnt", 4.0, count=counts.OFFLINE_ALL, is_fault=True),
    Component("offline_pri_cnt", 16.0, count=counts.OFFLINE_PRIMARIES, is_fault=True),
    Component("vcpu_ratio_cv", 0.5, Metric("u_cpu", "t_cpu", by_speed=True)),
    Component("cpu_load_cv", 1.0, Metric("load_cpu")),
    Component("mem_load_cv", 1.0, Metric("load_mem")),
    Component("disk_load_cv", 1.0, Metric("load_dsk")),
    Component("net_load_cv", 1.0, Metric("load_net")),
    Component("pri_tags_score", 2.0, count=RepeatedTags(), is_fault=True),
    Component("spindles_cv", 0.5, Metric("inst_spin", "hi_spin")),
    Component("free_mem_cv_forth", 0.5, Metric("f_mem_later", "t_mem")),
    Component(
        "free_disk_cv_forth",
        0.5,
        Metric("f_dsk_later", "t_dsk", spindles="f_spin_later"),
    ),
    Component(
        "vcpu_ratio_cv_forth", 0.5, Metric("u_cpu_later", "t_cpu", by_speed=True)
    ),
    Component("spindles_cv_forth", 0.5, Metric("inst_spin_later", "hi_spin")),
    Component("location_score", 1.0, count=LocationTags(), is_fault=True),
    Component("location_exclusion_score", 1.0, count=RepeatedPairs(), is_fault=True),
    Component("reserved_mem_rtotal", 0.25, total_of="reserved_mem_cv"),
)
#: Name and weight of each component, in the order of their sum.
WEIGHTS: Final = tuple((item.name, item.weight) for item in COMPONENTS)
#: The same by name.
WEIGHT: Final = dict(WEIGHTS)
#: Metrics by the name of their component, in its order.
METRICS: Final = {item.name: item.metric for item in COMPONENTS if item.metric}
#: Counts by the name of their component, in its order.
COUNTS: Final = {item.name: item.count for item in COMPONENTS if item.count}
#: Component of reserved memory, whose values are maxima and no sums of amounts, and the
#: component that is the sum of its values.
RESERVED: Final = "reserved_mem_cv"
RESERVED_TOTAL: Final = "reserved_mem_rtotal"
#: Component that is a sum -> the component whose values are added.
TOTALS: Final = {item.name: item.total_of for item in COMPONENTS if item.total_of}


def _grouped() -> dict[Metric, tuple[list[str], list[int], list[int]]]:
    """Group metrics that one division computes: names, rows, rows of spindles."""
    groups: dict[Metric, tuple[list[str], list[int], list[int]]] = {}
    for name, metric in METRICS.items():
        if not metric.whole:
            continue
        alike = Metric("", metric.whole, "*" * bool(metric.spindles), metric.by_speed)
        names, rows, spindles = groups.setdefault(alike, ([], [], []))
        names.append(name)
        rows.append(ROWS.index(metric.row))
        if metric.spindles:
            spindles.append(ROWS.index(metric.spindles))
    return groups


_GROUPS: Final = _grouped()
_UNDIVIDED: Final = [(name, m.row) for name, m in METRICS.items() if not m.whole]


def per(part: Floats, whole: Floats) -> Floats:
    """Divide; the result is 0 where ``whole`` is 0."""
    out: Floats = np.divide(part, whole, out=np.zeros(part.shape), where=whole != 0)
    return out


def _disk(state: ClusterState, free: Floats, spindles: Floats) -> Floats:
    # A node without disks counts as one with all of them free.
    part = np.divide(free, state.t_dsk, out=np.ones_like(free), where=state.t_dsk != 0)
    if state.exclusive.any():
        return np.where(state.exclusive, spindles / state.spindle_count, part)
    return part


def metric_values(state: ClusterState) -> dict[str, Floats]:
    """Return the present values of each node: name of ``METRICS`` -> per node."""
    result: dict[str, Floats] = dict.fromkeys(METRICS, state.load_cpu)
    for name, row in _UNDIVIDED:
        result[name] = getattr(state, row)
    for shared, (names, rows, spindles) in _GROUPS.items():
        part = state.rows[rows]
        if spindles:
            values = _disk(state, part, state.rows[spindles])
        else:
            values = per(part, getattr(state, shared.whole))
            if shared.by_speed:
                values = values / state.speed
        result.update(zip(names, values, strict=True))
    return result


def _sums(table: Floats) -> tuple[list[float], list[float]]:
    """Return sum and population standard deviation of each row, added in order."""
    # accumulate adds in node order; a plain sum along rows adds pairwise.
    totals = np.add.accumulate(table, axis=1)[:, -1]
    away = table - (totals / table.shape[1])[:, None]
    away *= away
    variance = np.add.accumulate(away, axis=1)[:, -1] / table.shape[1]
    return totals.tolist(), np.sqrt(variance).tolist()


def variance(values: Floats) -> float:
    """Return the population variance, added in order."""
    if not len(values):
        return 0.0
    mean = total(values) / len(values)
    return total((values - mean) ** 2) / len(values)


def total(values: Floats) -> float:
    """Return the sum, added in order."""
    return float(np.add.accumulate(values)[-1]) if len(values) else 0.0


def components(
    state: ClusterState,
    nodes: Places | None = None,
    *,
    metrics: dict[str, Floats] | None = None,
) -> dict[str, float]:
    """Return the value of each component in order, over some nodes or all.

    ``metrics`` are the present ``metric_values``; they are computed if not given.
    """
    places = np.arange(state.size) if nodes is None else nodes
    up = places[state.online[places]]
    # Without an online node there is nothing to compare.
    if not len(up):
        return dict.fromkeys(WEIGHT, 0.0)
    down = places[state.offline[places]]
    metrics = metrics or metric_values(state)
    totals, deviations = _sums(np.array([*metrics.values()])[:, up])
    out = dict(zip(metrics, deviations, strict=True))
    sums = dict(zip(metrics, totals, strict=True))
    out |= {name: sums[of] for name, of in TOTALS.items()}
    out |= {name: count.value(state, up, down) for name, count in COUNTS.items()}
    return {name: out[name] for name in WEIGHT}


def value(state: ClusterState, nodes: Places | None = None) -> float:
    """Return the score, over some nodes or all."""
    values = components(state, nodes)
    return float(sum(weight * values[name] for name, weight in WEIGHTS))


def ideal(state: ClusterState, nodes: Places | None = None) -> float:
    """Return the score at which a plan is good enough: what failovers must reserve.

    With D the memory reserved for all failovers, T the memory of all nodes and T_max
    that of the largest node, the published value is (D / (T - T_max) - D / T) / 4. It
    is no lower bound of the score.
    """
    places = np.arange(state.size) if nodes is None else nodes
    if len(places) < 2:
        return 0.0
    demand = float(state.peers[places].sum())
    total = float(state.t_mem[places].sum())
    # The largest node may fail; the others hold all reserves then.
    less = total - float(state.t_mem[places].max())
    return 0.25 * (demand / less - demand / total) if less > 0 else 0.0
