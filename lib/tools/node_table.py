"""The node table that placement programs print on stderr."""

import sys
from collections.abc import Callable, Sequence
from typing import Final

from ganeti.htools import grid, grid_score, model, numbers

Getter = Callable[[grid.State, int], str]

_DEFAULT: Final = (
    "status",
    "name",
    "tmem",
    "nmem",
    "imem",
    "xmem",
    "fmem",
    "umem",
    "rmem",
    "tdsk",
    "fdsk",
    "tcpu",
    "ucpu",
    "pcnt",
    "scnt",
    "pfmem",
    "pfdsk",
    "rcpu",
    "cload",
    "mload",
    "dload",
    "nload",
)
_GIB: Final = 1024


def _whole(value: float) -> str:
    return f"{int(value):5d}"


def _rounded(value: float) -> str:
    return numbers.fixed(float(value), 0).rjust(5)


def _there(state: grid.State, items: Sequence[int]) -> list[int]:
    """Leave out instances that are still to come."""
    return [index for index in items if not state.instances[index].forthcoming]


def _list(items: Sequence[int]) -> str:
    return f"[{','.join(map(str, items))}]"


def _status(state: grid.State, node: int) -> str:
    if state.offline[node]:
        return "-"
    return "*" if state.fails_n1[node] else " "


def _alias(state: grid.State, node: int) -> str:
    suffix = state.cluster.common_suffix()
    return state.cluster.nodes[node].name.removesuffix(suffix)


def _spread(name: str, digits: int) -> Getter:
    def get(state: grid.State, node: int) -> str:
        values = grid_score.numbers(state).spreads[name]
        return numbers.fixed(float(values[node]), digits)

    return get


def _tags(state: grid.State, node: int) -> str:
    counts = zip(state.exclusion_tags, state.pri_tags[node], strict=True)
    return ",".join(f"{tag}={count}" for tag, count in counts if count)


def _peers(state: grid.State, node: int) -> str:
    row = enumerate(state.peers[node])
    return ",".join(f"{peer}:{int(memory)}" for peer, memory in row if memory)


#: Field -> (header, is it right-aligned, value).
_FIELDS: Final[dict[str, tuple[str, bool, Getter]]] = {
    "idx": ("Index", True, lambda s, n: f"{n + s.cluster.first_index:4d}"),
    "name": ("Name", False, _alias),
    "fqdn": ("Name", False, lambda s, n: s.cluster.nodes[n].name),
    "status": ("F", False, _status),
    "tmem": ("t_mem", True, lambda s, n: _rounded(s.t_mem[n])),
    "nmem": ("n_mem", True, lambda s, n: _whole(s.n_mem[n])),
    "xmem": ("x_mem", True, lambda s, n: _whole(s.x_mem[n])),
    "fmem": ("f_mem", True, lambda s, n: _whole(s.cluster.nodes[n].free_memory)),
    "umem": ("u_mem", True, lambda s, n: _whole(s.unallocated[n])),
    "amem": (
        "a_mem",
        True,
        lambda s, n: _whole(max(0, s.unallocated[n] - s.r_mem[n])),
    ),
    "imem": ("i_mem", True, lambda s, n: _whole(s.i_mem[n])),
    "rmem": ("r_mem", True, lambda s, n: _whole(s.r_mem[n])),
    "tdsk": ("t_dsk", True, lambda s, n: _rounded(s.t_dsk[n] / _GIB)),
    "fdsk": ("f_dsk", True, lambda s, n: _whole(s.f_dsk[n] // _GIB)),
    "tcpu": ("pcpu", True, lambda s, n: f"{s.t_cpu[n]:4.0f}"),
    "ucpu": ("vcpu", True, lambda s, n: f"{int(s.u_cpu[n]):4d}"),
    "pcnt": ("pcnt", True, lambda s, n: f"{len(_there(s, s.primaries[n])):3d}"),
    "scnt": ("scnt", True, lambda s, n: f"{len(_there(s, s.secondaries[n])):3d}"),
    "plist": ("primaries", True, lambda s, n: _list(_there(s, s.primaries[n]))),
    "slist": ("secondaries", True, lambda s, n: _list(_there(s, s.secondaries[n]))),
    "pfmem": ("p_fmem", True, _spread("free_mem_cv", 4)),
    "pfdsk": ("p_fdsk", True, _spread("free_disk_cv", 4)),
    "rcpu": ("r_cpu", True, _spread("vcpu_ratio_cv", 2)),
    "cload": ("lCpu", True, lambda s, n: numbers.fixed(float(s.load_cpu[n]), 3)),
    "mload": ("lMem", True, lambda s, n: numbers.fixed(float(s.load_mem[n]), 3)),
    "dload": ("lDsk", True, lambda s, n: numbers.fixed(float(s.load_dsk[n]), 3)),
    "nload": ("lNet", True, lambda s, n: numbers.fixed(float(s.load_net[n]), 3)),
    "ptags": ("PrimaryTags", False, _tags),
    "peermap": ("PeerMap", False, _peers),
    "spindle_count": (
        "NodeSpindles",
        True,
        lambda s, n: f"{int(s.spindle_count[n])}",
    ),
    "hi_spindles": ("MaxSpindles", True, lambda s, n: numbers.shown(s.hi_spin[n])),
    "inst_spindles": ("InstSpindles", True, lambda s, n: f"{s.inst_spin[n]:.1f}"),
}
_UNKNOWN: Final[tuple[str, bool, Getter]] = (
    "<unknown field>",
    False,
    lambda _state, _node: "<unknown field>",
)


def fields(wanted: Sequence[str]) -> list[str]:
    """Return the fields to print; a leading plus adds to the usual ones."""
    if not wanted:
        return list(_DEFAULT)
    if wanted[0].startswith("+"):
        more = [wanted[0][1:], *wanted[1:]]
        return [*_DEFAULT, *(name for name in more if name)]
    return list(wanted)


def table(state: grid.State, wanted: Sequence[str]) -> str:
    """Return the table, one line a node, with a header."""
    columns = [_FIELDS.get(name, _UNKNOWN) for name in fields(wanted)]
    rows = [[header for header, _right, _get in columns]]
    rows += [
        [get(state, node) for _header, _right, get in columns]
        for node in range(state.size)
    ]
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, (_h, right, _g) in zip(row, widths, columns, strict=True)
        ]
        lines.append(f" {' '.join(cells)}")
    return "\n".join(lines)


def show(cluster: model.Cluster | grid.State, wanted: Sequence[str], what: str) -> None:
    """Print the table with its title on stderr."""
    state = cluster if isinstance(cluster, grid.State) else grid.State(cluster)
    sys.stderr.write(f"\n{what} status:\n{table(state, wanted)}\n\n")
