"""What tags tell the placement tools: exclusion, location, migration.

All results are NumPy arrays over positions of tags, nodes and instances.
"""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from ganeti.htools.model import Cluster, cluster_tag_values

Bools = npt.NDArray[np.bool_]

_EXCLUSION: Final = "htools:iextags:"
_LOCATION: Final = "htools:nlocation:"
_WANTED: Final = "htools:desiredlocation:"
_MIGRATION: Final = "htools:migration:"
_ALLOWED: Final = "htools:allowmigration:"


@dataclasses.dataclass(frozen=True, slots=True)
class TagRules:
    """Which tags count, and who has them.

    ``exclusion`` is tags x instances, ``location`` tags x nodes; ``lacking`` is
    instances x nodes, the number of wanted location tags a node lacks;
    ``migration`` is nodes x nodes, whether an instance may go from row to column.
    """

    names: tuple[str, ...]
    exclusion: Bools
    location: Bools
    lacking: npt.NDArray[np.int64]
    migration: Bools


def _membership(names: Sequence[str], owners: Sequence[Iterable[str]]) -> Bools:
    place = {name: k for k, name in enumerate(names)}
    found = np.zeros((len(names), len(owners)), dtype=np.bool_)
    for column, tags in enumerate(owners):
        for tag in tags:
            if tag in place:
                found[place[tag], column] = True
    return found


def _with_prefix(tags: Iterable[str], prefixes: tuple[str, ...]) -> list[str]:
    return [tag for tag in tags if prefixes and tag.startswith(prefixes)]


def read(cluster: Cluster, exclusion_prefixes: Iterable[str] = ()) -> TagRules:
    """Work out the tag rules of a cluster.

    ``exclusion_prefixes`` come from the command line; a colon is added to each.
    """
    nodes = [node.tags for node in cluster.nodes]
    instances = [inst.tags for inst in cluster.instances]
    prefixes = (
        *(f"{prefix}:" for prefix in exclusion_prefixes),
        *cluster_tag_values(cluster, _EXCLUSION),
    )
    exclusion = [_with_prefix(tags, prefixes) for tags in instances]
    names = sorted({tag for tags in exclusion for tag in tags})
    location_prefixes = tuple(f"{p}:" for p in cluster_tag_values(cluster, _LOCATION))
    location = [_with_prefix(tags, location_prefixes) for tags in nodes]
    location_names = sorted({tag for tags in location for tag in tags})
    located = _membership(location_names, location)
    wanted_prefixes = tuple(cluster_tag_values(cluster, _WANTED))
    return TagRules(
        names=tuple(names),
        exclusion=_membership(names, exclusion),
        location=located,
        lacking=_lacking(instances, wanted_prefixes, location_names, located),
        migration=_migration(cluster, nodes),
    )


def _lacking(
    instances: Sequence[Iterable[str]],
    prefixes: tuple[str, ...],
    location_names: Sequence[str],
    located: Bools,
) -> npt.NDArray[np.int64]:
    """Count, for each instance and node, the wanted tags that the node lacks."""
    wanted = [_with_prefix(tags, prefixes) for tags in instances]
    if not any(wanted):
        nothing = np.zeros((1, 1), dtype=np.int64)
        return np.broadcast_to(nothing, (len(instances), located.shape[1]))
    has = _membership(location_names, wanted).astype(np.int64).T
    total = np.array([len(set(tags)) for tags in wanted], dtype=np.int64)
    result: npt.NDArray[np.int64] = total[:, None] - has @ located.astype(np.int64)
    return result


def _migration(cluster: Cluster, nodes: Sequence[Iterable[str]]) -> Bools:
    """Tell from which node to which node instances may migrate."""
    prefixes = tuple(f"{p}:" for p in cluster_tag_values(cluster, _MIGRATION))
    own = [set(_with_prefix(tags, prefixes)) for tags in nodes]
    allowed: dict[str, set[str]] = {}
    for rule in cluster_tag_values(cluster, _ALLOWED):
        source, mark, target = rule.partition("::")
        if mark:
            allowed.setdefault(target, set()).add(source)
    receives = [
        tags | {x for tag in tags for x in allowed.get(tag, ())} for tags in own
    ]
    result = np.ones((len(own), len(own)), dtype=np.bool_)
    if any(own):
        for a, needs in enumerate(own):
            result[a] = [needs <= receive for receive in receives]
    return result
