"""Tables of nodes, instances and score components, and the health of a cluster.

The health is the numbers that show whether a cluster needs balancing.
"""

import heapq
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np

from ganeti.decisions.htools.model import formatting
from ganeti.decisions.htools.model.cluster import NONE, Cluster
from ganeti.decisions.htools.n1.check import GlobalN1
from ganeti.decisions.htools.score import components
from ganeti.decisions.htools.state import node_state
from ganeti.decisions.htools.state.node_state import ClusterState

_DEFAULT: Final = (
    "status name tmem nmem imem xmem fmem umem rmem tdsk fdsk tcpu ucpu pcnt scnt pfmem"
    " pfdsk rcpu cload mload dload nload"
)
#: Default fields of the node table.
NODE_FIELDS: Final = tuple(_DEFAULT.split())
_INSTANCE_HEAD: Final = (
    "F Name Pri_node Sec_node Auto_bal vcpu mem dsk lCpu lMem lDsk lNet"
)
_GIB: Final = 1024

_Show = Callable[[ClusterState, int], str]


def layout(
    rows: Sequence[Sequence[str]], numeric: Sequence[bool], prefix: str = ""
) -> list[str]:
    """Align columns: numbers right, text left with trailing blanks."""
    widths = [max(len(row[k]) for row in rows) for k in range(len(numeric))]
    return [
        " ".join(
            [
                prefix,
                *(
                    cell.rjust(width) if right else cell.ljust(width)
                    for cell, width, right in zip(row, widths, numeric, strict=True)
                ),
            ]
        )
        for row in rows
    ]


def metrics(state: ClusterState) -> list[str]:
    """Return the table of score components; it is empty without an online node."""
    rows = [["Field", "Value", "Weight"]]
    values = components.components(state) if state.online.any() else {}
    for name, value in values.items():
        weight = f"x{formatting.fixed(components.WEIGHT[name], 2)}"
        rows.append([name, formatting.fixed(value, 8), weight])
    return layout(rows, [False, True, True], prefix="  ")


def _alias(state: ClusterState, node: int) -> str:
    cluster = state.cluster
    return cluster.nodes[node].name.removesuffix(cluster.common_suffix())


def _amount(row: str, digits: int = 0) -> _Show:
    return lambda state, n: formatting.fixed(float(getattr(state, row)[n]), digits)


def _free_memory(state: ClusterState, n: int) -> str:
    with np.errstate(divide="ignore", invalid="ignore"):
        value = state.unallocated[n] / state.t_mem[n]
    return formatting.fixed(float(value), 4)


def _free_disk(state: ClusterState, n: int) -> str:
    return formatting.fixed(
        float(components.METRICS["free_disk_cv"].values(state)[n]), 4
    )


def _existing(state: ClusterState, instances: list[int]) -> list[int]:
    """Return the instances that are not forthcoming."""
    return [i for i in instances if not state.instances[i].forthcoming]


def _status(state: ClusterState, n: int) -> str:
    if not state.online[n]:
        return "-"
    return "*" if state.fails_n1[n] else " "


def _tag_counts(state: ClusterState, n: int) -> str:
    pairs = zip(state.exclusion_tags, state.pri_tags[n], strict=True)
    return ",".join(f"{name}={count}" for name, count in pairs if count)


def _peers(state: ClusterState, n: int) -> str:
    number = state.cluster.node_number
    peers = [
        (memory, peer)
        for peer, memory in enumerate(state.peers[n].astype(int).tolist())
    ]
    pairs = ",".join(
        f"({number(peer)},{memory})"
        for memory, peer in sorted(peers, reverse=True)
        if memory
    )
    return f"[{pairs}]"


#: Field -> (header, numeric, formatter).
_FIELDS: Final[dict[str, tuple[str, bool, _Show]]] = {
    "idx": ("Index", True, lambda s, n: f"{s.cluster.node_number(n):4d}"),
    "name": ("Name", False, _alias),
    "fqdn": ("Name", False, lambda s, n: s.cluster.nodes[n].name),
    "status": ("F", False, _status),
    "tmem": ("t_mem", True, lambda s, n: _whole(s.t_mem[n])),
    "nmem": ("n_mem", True, lambda s, n: _whole(s.cluster.nodes[n].node_memory)),
    "xmem": ("x_mem", True, lambda s, n: _whole(s.x_mem[n])),
    "fmem": ("f_mem", True, lambda s, n: _whole(s.cluster.nodes[n].free_memory)),
    "umem": ("u_mem", True, _amount("unallocated")),
    "amem": (
        "a_mem",
        True,
        lambda s, n: _whole(max(0, s.unallocated[n] - s.r_mem[n])),
    ),
    "imem": ("i_mem", True, _amount("i_mem")),
    "rmem": ("r_mem", True, _amount("r_mem")),
    "tdsk": ("t_dsk", True, lambda s, n: _whole(s.t_dsk[n] / _GIB)),
    "fdsk": ("f_dsk", True, lambda s, n: _whole(s.f_dsk[n] // _GIB)),
    "tcpu": ("pcpu", True, _amount("t_cpu")),
    "ucpu": ("vcpu", True, _amount("u_cpu")),
    "pcnt": ("pcnt", True, lambda s, n: str(len(_existing(s, s.primaries[n])))),
    "scnt": ("scnt", True, lambda s, n: str(len(_seconds(s, n)))),
    "plist": ("primaries", True, lambda s, n: _listed(_places(s, s.primaries[n]))),
    "slist": ("secondaries", True, lambda s, n: _listed(_seconds(s, n))),
    "pfmem": ("p_fmem", True, _free_memory),
    "pfdsk": ("p_fdsk", True, _free_disk),
    "rcpu": (
        "r_cpu",
        True,
        lambda s, n: formatting.fixed(float(s.u_cpu[n] / s.t_cpu[n]), 2),
    ),
    "cload": ("lCpu", True, _amount("load_cpu", 3)),
    "mload": ("lMem", True, _amount("load_mem", 3)),
    "dload": ("lDsk", True, _amount("load_dsk", 3)),
    "nload": ("lNet", True, _amount("load_net", 3)),
    "ptags": ("PrimaryTags", False, _tag_counts),
    "peermap": ("PeerMap", False, _peers),
    "spindle_count": (
        "NodeSpindles",
        True,
        lambda s, n: _whole(s.spindle_count[n]),
    ),
    "hi_spindles": (
        "MaxSpindles",
        True,
        lambda s, n: formatting.shown(s.hi_spin[n]),
    ),
    "inst_spindles": ("InstSpindles", True, _amount("inst_spin", 1)),
}


def _whole(value: float) -> str:
    return formatting.fixed(float(value), 0)


def _places(state: ClusterState, instances: list[int]) -> list[int]:
    """Return the positions that are printed for existing instances."""
    number, known = state.cluster.instance_number, len(state.cluster.instances)
    return [number(k) if k < known else k for k in _existing(state, instances)]


def _seconds(state: ClusterState, n: int) -> list[int]:
    """Return the positions printed for secondaries, also of other groups' instances."""
    cluster = state.cluster
    secondary_only = [
        cluster.instance_number(len(cluster.instances) + at)
        for at, item in enumerate(cluster.secondary_only)
        if item.secondary == n and not item.forthcoming
    ]
    there = _places(state, state.secondaries[n])
    return list(
        heapq.merge(there, reversed(secondary_only), key=lambda number: -number)
    )


def _listed(positions: list[int]) -> str:
    return f"[{','.join(map(str, positions))}]"


def nodes(state: ClusterState, fields: Sequence[str] = NODE_FIELDS) -> list[str]:
    """Return the table of nodes with some fields."""
    known = [_FIELDS.get(field) for field in fields]
    head = [
        column[0] if column else "<unknown field>"
        for field, column in zip(fields, known, strict=True)
    ]
    rows = [
        head,
        *(
            [column[2](state, n) if column else "<unknown field>" for column in known]
            for n in range(len(state.cluster.nodes))
        ),
    ]
    return layout(rows, [column is not None and column[1] for column in known])


def node_fields(text: str) -> list[str]:
    """Parse a list of fields; with a leading plus they are added to the default."""
    if not text:
        return list(NODE_FIELDS)
    if text.startswith("+"):
        return [*NODE_FIELDS, *text[1:].split(",")]
    return text.split(",")


def instances(state: ClusterState) -> list[str]:
    """Return the table of instances."""
    cluster = state.cluster
    rows = [_INSTANCE_HEAD.split()]
    for index, inst in enumerate(cluster.instances):
        secondary = state.sec[index]
        rows.append(
            [
                "R" if inst.running else " ",
                inst.name,
                cluster.nodes[state.pri[index]].name,
                "" if secondary == NONE else cluster.nodes[secondary].name,
                "Y" if inst.auto_balance else "N",
                str(inst.vcpus),
                f"{inst.memory:5d}",
                f"{inst.disk // _GIB:5d}",
                *(formatting.fixed(share, 3) for share in inst.utilisation),
            ]
        )
    return layout(rows, [False] * 4 + [False] + [True] * 7)


class ClusterHealth(msgspec.Struct, frozen=True):
    """Numbers of a node group, or their sums over a cluster.

    Attributes:
        n1_fail: online nodes that fail N+1.
        conflict_tags: nodes where instances with the same exclusion tag are primary.
        offline_pri: instances whose primary node is offline.
        offline_sec: nodes that are offline.
        gn1_fail: nodes whose loss the group does not survive; None if not tested.
    """

    n1_fail: int
    conflict_tags: int
    offline_pri: int
    offline_sec: int
    gn1_fail: int | None

    def __add__(self, other: "ClusterHealth") -> "ClusterHealth":
        gn1 = None
        if self.gn1_fail is not None and other.gn1_fail is not None:
            gn1 = self.gn1_fail + other.gn1_fail
        return ClusterHealth(
            self.n1_fail + other.n1_fail,
            self.conflict_tags + other.conflict_tags,
            self.offline_pri + other.offline_pri,
            self.offline_sec + other.offline_sec,
            gn1,
        )

    @property
    def bad(self) -> bool:
        """Whether any number is above zero."""
        return any(msgspec.structs.astuple(self))


class GroupHealth(msgspec.Struct, frozen=True):
    """A node group: its part of the cluster, its health and score."""

    name: str
    uuid: str
    part: Cluster
    health: ClusterHealth
    score: float


def cluster_health(
    now: node_state.ClusterState, *, capacity_checks: bool = True
) -> ClusterHealth:
    """Return the health of one node group.

    Args:
        now: the state of the group alone.
        capacity_checks: test global N+1.
    """
    conflicts = (now.pri_tags > 1).any(axis=1)
    offline = np.nonzero(now.offline)[0]
    gn1 = None
    if capacity_checks:
        gn1 = len(GlobalN1(now).failing())
    return ClusterHealth(
        n1_fail=int((now.online & now.fails_n1).sum()),
        conflict_tags=int(conflicts.sum()),
        offline_pri=sum(
            not now.instances[i].forthcoming for n in offline for i in now.primaries[n]
        ),
        offline_sec=len(offline),
        gn1_fail=gn1,
    )


def group_health(
    now: node_state.ClusterState, *, capacity_checks: bool = True
) -> GroupHealth:
    """Return part, health and score of one node group."""
    cluster = now.cluster
    first = cluster.groups[0]
    return GroupHealth(
        first.name,
        first.uuid,
        now.as_cluster(),
        cluster_health(now, capacity_checks=capacity_checks),
        components.value(now),
    )
