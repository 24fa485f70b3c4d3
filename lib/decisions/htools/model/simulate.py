"""Generator of empty clusters from a few numbers (``--simulate``)."""

import re
from typing import Final

from ganeti.decisions.htools.model.cluster import Cluster, DataError, Group, Node
from ganeti.decisions.htools.model.policy import AllocPolicy

_POLICIES: Final = {
    **{policy.value: policy for policy in AllocPolicy},
    "p": AllocPolicy.PREFERRED,
    "a": AllocPolicy.LAST_RESORT,
    "u": AllocPolicy.UNALLOCABLE,
}
_SIZE: Final = r"^(\d{1,18})\s*([A-Za-z]*)$"
_BINARY: Final[dict[str, int]] = {
    "": 0,
    "m": 0,
    "mib": 0,
    "g": 1,
    "gib": 1,
    "t": 2,
    "tib": 2,
}
_DECIMAL: Final = {"M": 2, "MB": 2, "G": 3, "GB": 3, "T": 4, "TB": 4}
_MIB: Final = 1024 * 1024
_COUNT: Final = re.compile(r"\d{1,18}\Z", re.ASCII)
#: Most nodes of one group, so that a mistyped number does not take all memory.
MOST_NODES: Final = 100_000
#: Largest size (MiB) that is accepted.
_LARGEST: Final = 10**18


def size_mib(text: str) -> int:
    """Read a size: ``m``, ``g``, ``t`` are binary units, ``M``, ``G``, ``T`` decimal.

    Raises:
        ValueError: the text is not a number with a known unit.
    """
    match = re.fullmatch(_SIZE, text.strip(), re.ASCII)
    if match is None:
        raise ValueError(f"wanted a size such as 512 or 2g, found {text!r:.40}")
    size = _mib(int(match.group(1)), match.group(2), text)
    if size > _LARGEST:
        raise ValueError(f"too large: {text!r}")
    return size


def _mib(amount: int, unit: str, text: str) -> int:
    for known in (unit, unit.upper()):
        if known in _DECIMAL and (known == unit or len(unit) == len("MB")):
            return int(amount * 1000 ** _DECIMAL[known] // _MIB)
    if unit.lower() not in _BINARY:
        raise ValueError(f"unknown unit {unit!r} in {text!r}")
    return amount << (10 * _BINARY[unit.lower()])


def load(specs: list[str]) -> Cluster:
    """Return a cluster with one group per spec; the last spec is the first group.

    Raises:
        DataError: naming the spec and its field.
    """
    groups: list[Group] = []
    nodes: list[Node] = []
    for number, spec in enumerate(reversed(specs), start=1):
        policy, group = _spec(spec, number)
        groups.append(
            Group(
                name=f"group-{number:02d}",
                uuid=f"fake-uuid-{number:02d}",
                alloc_policy=policy,
            )
        )
        nodes.extend(group)
    return Cluster(
        groups=tuple(groups), nodes=tuple(nodes), instances=(), first_index=1
    )


def _spec(spec: str, number: int) -> tuple[AllocPolicy, list[Node]]:
    cells = spec.split(",")
    if not 5 <= len(cells) <= 7:
        raise DataError(f"--simulate {spec}: wanted five to seven fields")

    def size(index: int, field: str) -> int:
        try:
            return size_mib(cells[index])
        except ValueError as err:
            raise DataError(f"--simulate {spec}: field '{field}': {err}") from err

    def whole(index: int, field: str, most: int = _LARGEST) -> int:
        text = cells[index]
        if not _COUNT.fullmatch(text) or int(text) > most:
            problem = f"wanted a whole number from 0 to {most}, found {text!r:.40}"
            raise DataError(f"--simulate {spec}: field '{field}': {problem}")
        return int(text)

    if cells[0] not in _POLICIES:
        raise DataError(f"--simulate {spec}: unknown allocation policy '{cells[0]}'")
    exclusive = cells[6] if len(cells) > 6 else "False"
    if exclusive not in {"True", "False"}:
        raise DataError(f"--simulate {spec}: wanted True or False, found '{exclusive}'")
    disk, memory = size(2, "disk"), size(3, "memory")
    nodes = [
        Node(
            name=f"node-{number:02d}-{place:03d}",
            group=number - 1,
            total_memory=float(memory),
            node_memory=0,
            free_memory=memory,
            total_disk=float(disk),
            free_disk=disk,
            cpus=float(whole(4, "cpus")),
            master=number == 1 and place == 1,
            spindles=whole(5, "spindles") if len(cells) > 5 else 1,
            exclusive=exclusive == "True",
        )
        for place in range(1, whole(1, "count", MOST_NODES) + 1)
    ]
    return _POLICIES[cells[0]], nodes
