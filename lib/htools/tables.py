"""Tables of nodes, instances and score components."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from ganeti.htools import numbers, score
from ganeti.htools.model import NONE
from ganeti.htools.state import Row, State

_DEFAULT: Final = (
    "status name tmem nmem imem xmem fmem umem rmem tdsk fdsk tcpu ucpu pcnt scnt pfmem"
    " pfdsk rcpu cload mload dload nload"
)
#: Fields of the node table when none are asked for.
NODE_FIELDS: Final = tuple(_DEFAULT.split())
_INSTANCE_HEAD: Final = (
    "F Name Pri_node Sec_node Auto_bal vcpu mem dsk lCpu lMem lDsk lNet"
)
_GIB: Final = 1024

_Show = Callable[[State, int], str]


def layout(
    rows: Sequence[Sequence[str]], numeric: Sequence[bool], prefix: str = ""
) -> list[str]:
    """Align columns: numbers right, text left with its trailing blanks."""
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


def metrics(state: State) -> list[str]:
    """Give the table of score components."""
    rows = [["Field", "Value", "Weight"]]
    for name, value in score.components(state).items():
        weight = f"x{numbers.fixed(score.WEIGHTS[name], 2)}"
        rows.append([name, numbers.fixed(value, 8), weight])
    return layout(rows, [False, True, True], prefix="  ")


def _alias(state: State, node: int) -> str:
    cluster = state.fixed.cluster
    return cluster.nodes[node].name.removesuffix(cluster.common_suffix())


def _amount(row: Row, digits: int = 0) -> _Show:
    return lambda state, n: numbers.fixed(float(state.amounts[row, n]), digits)


def _part(row: Row, whole: str) -> _Show:
    def show(state: State, n: int) -> str:
        with np.errstate(divide="ignore", invalid="ignore"):
            value = state.amounts[row, n] / getattr(state.fixed, whole)[n]
        return numbers.fixed(float(value), 4)

    return show


def _free_disk(state: State, n: int) -> str:
    found = score.share(state.fixed, "free_disk_cv", state.amounts)
    return numbers.fixed(float(found[n]), 4)


def _there(state: State, instances: list[int]) -> list[int]:
    """Leave out instances that are still to come."""
    known = state.fixed.cluster.instances
    return [index for index in instances if not known[index].forthcoming]


def _memory_used(state: State, n: int) -> int:
    node = state.fixed.cluster.nodes[n]
    missing = max(0, int(state.fixed.missing_memory[n]))
    left = int(node.total_memory) - node.node_memory - missing
    return left - int(state.amounts[Row.MEMORY, n])


def _status(state: State, n: int) -> str:
    if not state.fixed.online[n]:
        return "-"
    return "*" if state.failing[n] else " "


def _tag_counts(state: State, n: int) -> str:
    pairs = zip(state.fixed.tags.names, state.tag_count[:, n], strict=True)
    return ",".join(f"{name}={count}" for name, count in pairs if count)


def _peers(state: State, n: int) -> str:
    number = state.fixed.cluster.node_number
    found = [(memory, peer) for peer, memory in enumerate(state.peers[n].tolist())]
    pairs = ",".join(
        f"({number(peer)},{memory})"
        for memory, peer in sorted(found, reverse=True)
        if memory
    )
    return f"[{pairs}]"


#: Field -> (header, numeric, how to show it).
_FIELDS: Final[dict[str, tuple[str, bool, _Show]]] = {
    "idx": ("Index", True, lambda s, n: f"{s.fixed.cluster.node_number(n):4d}"),
    "name": ("Name", False, _alias),
    "fqdn": ("Name", False, lambda s, n: s.fixed.cluster.nodes[n].name),
    "status": ("F", False, _status),
    "tmem": ("t_mem", True, lambda s, n: _whole(s.fixed.total_memory[n])),
    "nmem": ("n_mem", True, lambda s, n: _whole(s.fixed.cluster.nodes[n].node_memory)),
    "xmem": ("x_mem", True, lambda s, n: _whole(s.fixed.missing_memory[n])),
    "fmem": ("f_mem", True, lambda s, n: _whole(s.fixed.cluster.nodes[n].free_memory)),
    "umem": ("u_mem", True, _amount(Row.MEMORY)),
    "amem": (
        "a_mem",
        True,
        lambda s, n: _whole(max(0, s.amounts[Row.MEMORY, n] - s.reserved[n])),
    ),
    "imem": ("i_mem", True, lambda s, n: _whole(_memory_used(s, n))),
    "rmem": ("r_mem", True, lambda s, n: _whole(s.reserved[n])),
    "tdsk": ("t_dsk", True, lambda s, n: _whole(s.fixed.total_disk[n] / _GIB)),
    "fdsk": ("f_dsk", True, lambda s, n: _whole(s.amounts[Row.DISK, n] // _GIB)),
    "tcpu": ("pcpu", True, lambda s, n: _whole(s.fixed.cpus[n])),
    "ucpu": ("vcpu", True, _amount(Row.CPU)),
    "pcnt": ("pcnt", True, lambda s, n: str(len(_there(s, s.primaries[n])))),
    "scnt": ("scnt", True, lambda s, n: str(len(_there(s, s.secondaries[n])))),
    "plist": ("primaries", True, lambda s, n: _places(s, s.primaries[n])),
    "slist": ("secondaries", True, lambda s, n: _places(s, s.secondaries[n])),
    "pfmem": ("p_fmem", True, _part(Row.MEMORY, "total_memory")),
    "pfdsk": ("p_fdsk", True, _free_disk),
    "rcpu": (
        "r_cpu",
        True,
        lambda s, n: numbers.fixed(float(s.amounts[Row.CPU, n] / s.fixed.cpus[n]), 2),
    ),
    "cload": ("lCpu", True, _amount(Row.LOAD_CPU, 3)),
    "mload": ("lMem", True, _amount(Row.LOAD_MEMORY, 3)),
    "dload": ("lDsk", True, _amount(Row.LOAD_DISK, 3)),
    "nload": ("lNet", True, _amount(Row.LOAD_NET, 3)),
    "ptags": ("PrimaryTags", False, _tag_counts),
    "peermap": ("PeerMap", False, _peers),
    "spindle_count": (
        "NodeSpindles",
        True,
        lambda s, n: _whole(s.fixed.spindle_count[n]),
    ),
    "hi_spindles": (
        "MaxSpindles",
        True,
        lambda s, n: numbers.shown(s.fixed.high_spindles[n]),
    ),
    "inst_spindles": ("InstSpindles", True, _amount(Row.SPINDLES, 1)),
}


def _whole(value: float) -> str:
    return numbers.fixed(float(value), 0)


def _places(state: State, instances: list[int]) -> str:
    number = state.fixed.cluster.instance_number
    return "[" + ",".join(str(number(k)) for k in _there(state, instances)) + "]"


def nodes(state: State, fields: Sequence[str] = NODE_FIELDS) -> list[str]:
    """Give the table of nodes with some fields."""
    known = [_FIELDS.get(field) for field in fields]
    head = [
        found[0] if found else "<unknown field>"
        for field, found in zip(fields, known, strict=True)
    ]
    rows = [
        head,
        *(
            [found[2](state, n) if found else "<unknown field>" for found in known]
            for n in range(len(state.fixed.cluster.nodes))
        ),
    ]
    return layout(rows, [found is not None and found[1] for found in known])


def node_fields(asked: str) -> list[str]:
    """Read a list of fields; with a leading plus it adds to the default."""
    if not asked:
        return list(NODE_FIELDS)
    if asked.startswith("+"):
        return [*NODE_FIELDS, *asked[1:].split(",")]
    return asked.split(",")


def instances(state: State) -> list[str]:
    """Give the table of instances."""
    cluster = state.fixed.cluster
    rows = [_INSTANCE_HEAD.split()]
    for index, inst in enumerate(cluster.instances):
        secondary = int(state.secondary[index])
        rows.append(
            [
                "R" if inst.running else " ",
                inst.name,
                cluster.nodes[int(state.primary[index])].name,
                "" if secondary == NONE else cluster.nodes[secondary].name,
                "Y" if inst.auto_balance else "N",
                str(inst.vcpus),
                f"{inst.memory:5d}",
                f"{inst.disk // _GIB:5d}",
                *(numbers.fixed(share, 3) for share in inst.utilisation),
            ]
        )
    return layout(rows, [False] * 4 + [False] + [True] * 7)
