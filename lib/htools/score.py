"""How far a cluster is from balanced: documented parts, their weights, their sum.

Sums run in node order one after the other, so that equal inputs give equal digits
everywhere. Lower is better.
"""

import dataclasses
from typing import Final

import numpy as np

from ganeti.htools.state import Bools, Fixed, Floats, Row, State

_IDEAL_WEIGHT: Final = 0.25


@dataclasses.dataclass(frozen=True, slots=True)
class Component:
    """One part of the score: its name in outputs and its weight."""

    name: str
    weight: float


COMPONENTS: Final = (
    Component("free_mem_cv", 0.5),
    Component("free_disk_cv", 0.5),
    Component("n1_cnt", 1.0),
    Component("reserved_mem_cv", 1.0),
    Component("offline_all_cnt", 4.0),
    Component("offline_pri_cnt", 16.0),
    Component("vcpu_ratio_cv", 0.5),
    Component("cpu_load_cv", 1.0),
    Component("mem_load_cv", 1.0),
    Component("disk_load_cv", 1.0),
    Component("net_load_cv", 1.0),
    Component("pri_tags_score", 2.0),
    Component("spindles_cv", 0.5),
    Component("free_mem_cv_forth", 0.5),
    Component("free_disk_cv_forth", 0.5),
    Component("vcpu_ratio_cv_forth", 0.5),
    Component("spindles_cv_forth", 0.5),
    Component("location_score", 1.0),
    Component("location_exclusion_score", 1.0),
    Component("reserved_mem_rtotal", 0.25),
)
#: Spread components and the row of amounts each is about.
SPREAD_ROWS: Final = {
    "free_mem_cv": Row.MEMORY,
    "free_disk_cv": Row.DISK,
    "vcpu_ratio_cv": Row.CPU,
    "cpu_load_cv": Row.LOAD_CPU,
    "mem_load_cv": Row.LOAD_MEMORY,
    "disk_load_cv": Row.LOAD_DISK,
    "net_load_cv": Row.LOAD_NET,
    "spindles_cv": Row.SPINDLES,
    "free_mem_cv_forth": Row.ALL_MEMORY,
    "free_disk_cv_forth": Row.ALL_DISK,
    "vcpu_ratio_cv_forth": Row.ALL_CPU,
    "spindles_cv_forth": Row.ALL_SPINDLES,
}
WEIGHTS: Final = {part.name: part.weight for part in COMPONENTS}


def share(fixed: Fixed, name: str, amounts: Floats) -> Floats:
    """Relate amounts (rows x ... x nodes) of a spread component to nodes' capacity."""
    row = SPREAD_ROWS[name]
    found: Floats = amounts[row]
    if row in {Row.MEMORY, Row.ALL_MEMORY}:
        found = found / fixed.total_memory
    elif row in {Row.DISK, Row.ALL_DISK}:
        free = Row.FREE_SPINDLES if row == Row.DISK else Row.ALL_FREE_SPINDLES
        with np.errstate(divide="ignore", invalid="ignore"):
            by_disk = np.where(fixed.total_disk == 0, 1.0, found / fixed.total_disk)
            by_spindle = amounts[free] / fixed.spindle_count
        found = np.where(fixed.exclusive, by_spindle, by_disk)
    elif row in {Row.CPU, Row.ALL_CPU}:
        found = found / fixed.cpus / fixed.cpu_speed
    elif row in {Row.SPINDLES, Row.ALL_SPINDLES}:
        found = found / fixed.high_spindles
    return found


def ordered_sum(values: Floats) -> Floats:
    """Add along the last axis, first to last."""
    if not values.shape[-1]:
        return np.zeros(values.shape[:-1])
    result: Floats = np.add.accumulate(values, axis=-1)[..., -1]
    return result


def spread(values: Floats) -> Floats:
    """Give the population standard deviation along the last axis."""
    count = values.shape[-1]
    mean = ordered_sum(values) / count
    distance = values - mean[..., None]
    result: Floats = np.sqrt(ordered_sum(distance * distance) / count)
    return result


def components(state: State) -> dict[str, float]:
    """Compute all components of the score, in order; all 0 with no node online."""
    fixed, online = state.fixed, state.fixed.online
    if not online.any():
        return {part.name: 0.0 for part in COMPONENTS}
    counts = state.count_primary + state.count_secondary
    reserved = (state.reserved / np.where(online, fixed.total_memory, 1.0))[online]
    found = {
        "n1_cnt": float(counts[online & state.failing].sum()),
        "reserved_mem_cv": float(spread(reserved)),
        "offline_all_cnt": float(counts[~online].sum()),
        "offline_pri_cnt": float(state.count_primary[~online].sum()),
        "pri_tags_score": float(np.maximum(state.tag_count[:, online] - 1, 0).sum()),
        "location_score": float(_location(state)[online].sum()),
        "location_exclusion_score": float(_location_exclusion(state, online)),
        "reserved_mem_rtotal": float(ordered_sum(reserved)),
    }
    with np.errstate(divide="ignore", invalid="ignore"):
        for name in SPREAD_ROWS:
            values = share(fixed, name, state.amounts)[online]
            found[name] = float(spread(values))
    return {part.name: found[part.name] for part in COMPONENTS}


def total(parts: dict[str, float]) -> float:
    """Add weighted components in their order."""
    result = 0.0
    for part in COMPONENTS:
        result += part.weight * parts[part.name]
    return result


def of(state: State) -> float:
    """Compute the score of a state."""
    return total(components(state))


def ideal(state: State) -> float:
    """Compute the score that balancing cannot get below because memory is reserved."""
    memory = state.fixed.total_memory
    if len(memory) < 2:
        return 0.0
    reserved = float(state.peers.sum())
    whole = float(ordered_sum(memory))
    smaller = whole - float(memory.max())
    if smaller <= 0:
        return 0.0
    return _IDEAL_WEIGHT * (reserved / smaller - reserved / whole)


def _location(state: State) -> Floats:
    """Sum over a node's primaries their shared tags and the wanted tags it lacks."""
    fixed = state.fixed
    found = np.zeros(len(fixed.online))
    real = ~fixed.forthcoming & (state.primary >= 0)
    at = state.primary[real]
    lacking = fixed.tags.lacking[np.nonzero(real)[0], at]
    np.add.at(found, at, state.common[real] + lacking)
    return found


def location_pairs(state: State, online: Bools) -> Floats:
    """Count pairs (location tag, exclusion tag) over nodes online."""
    located = state.fixed.tags.location[:, online].astype(np.float64)
    pairs: Floats = located @ state.tag_count[:, online].astype(np.float64).T
    return pairs


def _location_exclusion(state: State, online: Bools) -> float:
    return float(np.maximum(location_pairs(state, online) - 1, 0).sum())
