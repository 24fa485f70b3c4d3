"""How unevenly a cluster is used: the score of a state, and what it is made of.

Sums run in node order, so that equal states get equal digits. What the score would be
elsewhere is for `htools.score.placement` and, when instances move,
`htools.score.exact_deltas`.
"""

from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from ganeti.htools.state.columns import ROWS
from ganeti.htools.state.node_state import ClusterState

Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]

#: Name and weight of each component, in the order of their sum.
WEIGHTS: Final = (
    ("free_mem_cv", 0.5),
    ("free_disk_cv", 0.5),
    ("n1_cnt", 1.0),
    ("reserved_mem_cv", 1.0),
    ("offline_all_cnt", 4.0),
    ("offline_pri_cnt", 16.0),
    ("vcpu_ratio_cv", 0.5),
    ("cpu_load_cv", 1.0),
    ("mem_load_cv", 1.0),
    ("disk_load_cv", 1.0),
    ("net_load_cv", 1.0),
    ("pri_tags_score", 2.0),
    ("spindles_cv", 0.5),
    ("free_mem_cv_forth", 0.5),
    ("free_disk_cv_forth", 0.5),
    ("vcpu_ratio_cv_forth", 0.5),
    ("spindles_cv_forth", 0.5),
    ("location_score", 1.0),
    ("location_exclusion_score", 1.0),
    ("reserved_mem_rtotal", 0.25),
)
#: The same by name.
WEIGHT: Final = dict(WEIGHTS)
#: Components that are the spread of a number of each node.
SPREADS: Final[dict[str, Callable[[ClusterState], Floats]]] = {
    "free_mem_cv": lambda s: per(s.unallocated, s.t_mem),
    "free_disk_cv": lambda s: _disk(s, s.f_dsk, s.f_spin),
    "reserved_mem_cv": lambda s: per(s.r_mem, s.t_mem),
    "vcpu_ratio_cv": lambda s: per(s.u_cpu, s.t_cpu) / s.speed,
    "cpu_load_cv": lambda s: s.load_cpu,
    "mem_load_cv": lambda s: s.load_mem,
    "disk_load_cv": lambda s: s.load_dsk,
    "net_load_cv": lambda s: s.load_net,
    "spindles_cv": lambda s: per(s.inst_spin, s.hi_spin),
    "free_mem_cv_forth": lambda s: per(s.f_mem_later, s.t_mem),
    "free_disk_cv_forth": lambda s: _disk(s, s.f_dsk_later, s.f_spin_later),
    "vcpu_ratio_cv_forth": lambda s: per(s.u_cpu_later, s.t_cpu) / s.speed,
    "spindles_cv_forth": lambda s: per(s.inst_spin_later, s.hi_spin),
}


def _places(*names: str) -> list[int]:
    return [ROWS.index(name) for name in names]


#: Rows that are parts of the same: they are divided together.
_MEMORY: Final = _places("unallocated", "r_mem", "f_mem_later")
_DISK: Final = _places("f_dsk", "f_dsk_later")
_FREE_SPINDLES: Final = _places("f_spin", "f_spin_later")
_CPU: Final = _places("u_cpu", "u_cpu_later")
_SPINDLES: Final = _places("inst_spin", "inst_spin_later")


def per(part: Floats, whole: Floats) -> Floats:
    """Divide; what has no whole is 0."""
    out: Floats = np.divide(part, whole, out=np.zeros(part.shape), where=whole != 0)
    return out


def _disk(state: ClusterState, free: Floats, spindles: Floats) -> Floats:
    part = np.divide(free, state.t_dsk, out=np.ones_like(free), where=state.t_dsk != 0)
    if state.exclusive.any():
        return np.where(state.exclusive, spindles / state.spindle_count, part)
    return part


class NodeValues(msgspec.Struct, frozen=True):
    """What the score needs of each node: name -> value per node."""

    spreads: dict[str, Floats]
    n1: Floats
    tags: Floats
    location: Floats
    reserved: Floats


def numbers(state: ClusterState) -> NodeValues:
    """Return the numbers of every node as they are now."""
    spreads = _spreads(state)
    return NodeValues(
        spreads,
        np.where(state.fails_n1, state.held, 0.0),
        state.repeated_tags(),
        state.location.copy(),
        spreads["reserved_mem_cv"],
    )


def _spreads(state: ClusterState) -> dict[str, Floats]:
    """Return what ``SPREADS`` gives, in fewer steps."""
    rows = state.rows
    memory, reserved, memory_later = per(rows[_MEMORY], state.t_mem)
    disk, disk_later = _disk(state, rows[_DISK], rows[_FREE_SPINDLES])
    cpu, cpu_later = per(rows[_CPU], state.t_cpu) / state.speed
    spindles, spindles_later = per(rows[_SPINDLES], state.hi_spin)
    return {
        "free_mem_cv": memory,
        "free_disk_cv": disk,
        "reserved_mem_cv": reserved,
        "vcpu_ratio_cv": cpu,
        "cpu_load_cv": state.load_cpu,
        "mem_load_cv": state.load_mem,
        "disk_load_cv": state.load_dsk,
        "net_load_cv": state.load_net,
        "spindles_cv": spindles,
        "free_mem_cv_forth": memory_later,
        "free_disk_cv_forth": disk_later,
        "vcpu_ratio_cv_forth": cpu_later,
        "spindles_cv_forth": spindles_later,
    }


def _sums(table: Floats) -> tuple[list[float], list[float]]:
    """Return sum and population standard deviation of each row, summed in order."""
    totals = np.add.accumulate(table, axis=1)[:, -1]
    away = table - (totals / table.shape[1])[:, None]
    away *= away
    variance = np.add.accumulate(away, axis=1)[:, -1] / table.shape[1]
    return totals.tolist(), np.sqrt(variance).tolist()


def variance(values: Floats) -> float:
    """Return the population variance, summed in order."""
    if not len(values):
        return 0.0
    mean = total(values) / len(values)
    return total((values - mean) ** 2) / len(values)


def total(values: Floats) -> float:
    """Return the sum, made in order."""
    return float(np.add.accumulate(values)[-1]) if len(values) else 0.0


def components(
    state: ClusterState,
    nodes: Places | None = None,
    *,
    values: NodeValues | None = None,
) -> dict[str, float]:
    """Return each component's value in order, over some nodes or all.

    ``values`` are the present numbers of the state; made when not given.
    """
    places = np.arange(state.size) if nodes is None else nodes
    up = places[state.online[places]]
    if not len(up):
        return dict.fromkeys(WEIGHT, 0.0)
    down = places[state.offline[places]]
    values = values or numbers(state)
    every = (
        *values.spreads.values(),
        values.n1,
        values.tags,
        values.location,
        values.reserved,
    )
    totals, spreads = _sums(np.array(every)[:, up])
    out = dict(zip(values.spreads, spreads, strict=False))
    failing, tags, location, reserved = totals[len(out) :]
    primaries = sum(
        not state.instances[index].forthcoming
        for node in down
        for index in state.primaries[node]
    )
    out |= {
        "n1_cnt": failing,
        "offline_all_cnt": total(state.held[down]),
        "offline_pri_cnt": float(primaries),
        "pri_tags_score": tags,
        "location_score": location,
        "location_exclusion_score": float(_shared_places(state, up)),
        "reserved_mem_rtotal": reserved,
    }
    return {name: out[name] for name in WEIGHT}


def _shared_places(state: ClusterState, up: Places) -> int:
    if not state.node_places.size or not state.pri_tags.size:
        return 0
    return int(np.maximum(place_pairs(state, up) - 1, 0).sum())


def place_pairs(state: ClusterState, up: Places) -> npt.NDArray[np.int64]:
    """Return [location tag, exclusion tag] -> how often nodes online have both.

    Instances that are still to come do not count, other than for tags of one node.
    """
    return np.asarray(state.node_places[up].T @ state.present_tags[up])


def value(state: ClusterState, nodes: Places | None = None) -> float:
    """Return the score, over some nodes or all."""
    values = components(state, nodes)
    return float(sum(weight * values[name] for name, weight in WEIGHTS))


def ideal(state: ClusterState, nodes: Places | None = None) -> float:
    """Return the score that cannot be bettered: what failovers must reserve."""
    places = np.arange(state.size) if nodes is None else nodes
    if len(places) < 2:
        return 0.0
    demand = float(state.peers[places].sum())
    total = float(state.t_mem[places].sum())
    less = total - float(state.t_mem[places].max())
    return 0.25 * (demand / less - demand / total) if less > 0 else 0.0
