"""Utilisation by instances: from a file, from monitoring daemons, or zero.

The daemons of all nodes are queried at the same time.
"""

import sys
from typing import Any, Final

import msgspec

from ganeti.commands.htools import options, sources
from ganeti.commands.htools.options import OptionValueError, ParsedOptions
from ganeti.decisions.htools.model.cluster import Cluster, DataError

#: Port of the monitoring daemon.
PORT: Final = 1815
#: Timeouts in seconds of the connection to a monitoring daemon, and of its answer.
CONNECT_S: Final = 2.0
ANSWER_S: Final = 10.0
#: Daemons that are queried at the same time.
_AT_ONCE: Final = 32
_IDLE: Final = (0.0, 0.0, 0.0, 0.0)
#: Fields of a file's line after the name.
_FIELDS: Final = ("cpu", "mem", "disk", "net")

_Use = tuple[float, float, float, float]


def apply(cluster: Cluster, parsed: ParsedOptions) -> Cluster:
    """Set the utilisation of instances according to the options.

    Raises:
        DataError, OSError: a file is malformed or cannot be read, or required data is
            missing.
    """
    if parsed.get("nodyn"):
        return _with_use(cluster, {inst.name: _IDLE for inst in cluster.instances})
    if parsed.get("idle"):
        cluster = _with_use(cluster, {inst.name: _IDLE for inst in cluster.instances})
    if parsed.get("U") is not None:
        cluster = _with_use(cluster, read_file(parsed["U"]))
    if parsed.get("mond"):
        cluster = _monitored(cluster, parsed)
    return cluster


def _with_use(cluster: Cluster, use: dict[str, _Use]) -> Cluster:
    instances = tuple(
        msgspec.structs.replace(inst, utilisation=use.get(inst.name, inst.utilisation))
        for inst in cluster.instances
    )
    return msgspec.structs.replace(cluster, instances=instances)


def read_file(path: str) -> dict[str, _Use]:
    """Read lines ``NAME cpu mem disk net``.

    Raises:
        DataError: names file, line and content; OSError: the file cannot be read.
    """
    use = {}
    lines = sources.decoded(sources.read_bytes(path), path).splitlines()
    for number, line in enumerate(lines, start=1):
        cells = line.split(" ")
        if len(cells) != len(_FIELDS) + 1:
            raise DataError(
                f"{path}, line {number}: can't parse utilisation data, wanted"
                f" 'NAME cpu mem disk net', found {line!r:.80}"
            )
        cpu, memory, disk, net = (
            _amount(cell, f"{path}, line {number}, field '{field}'")
            for field, cell in zip(_FIELDS, cells[1:], strict=True)
        )
        use[cells[0]] = (cpu, memory, disk, net)
    return use


def _amount(cell: str, place: str) -> float:
    try:
        return float(options.real("utilisation", least=0)(cell))
    except OptionValueError as err:
        raise DataError(f"{place}: wanted a number from 0, found {cell!r:.40}") from err


def _monitored(cluster: Cluster, parsed: ParsedOptions) -> Cluster:
    from ganeti.decisions.htools.model import mond

    collector = mond.XEN if parsed.get("mondx") else mond.CPU
    reports = _reports(cluster, parsed, collector)
    if reports is not None:
        cluster = mond.apply(cluster, reports, collector)
    if not parsed.get("mondk"):
        return cluster
    reports = _reports(cluster, parsed, mond.RSS)
    if reports is None:
        return cluster
    return mond.apply_memory(cluster, reports, parsed["mw"])


def _reports(
    cluster: Cluster, parsed: ParsedOptions, collector: str
) -> dict[str, Any] | None:
    """Return a collector's data of all nodes; print a warning if incomplete.

    Raises:
        DataError: required data is missing.
    """
    from ganeti.decisions.htools.model import mond

    if parsed.get("mondd") is not None:
        data = sources.read_json(parsed["mondd"])
        reports = mond.from_file(data, collector, parsed["mondd"])
    else:
        reports = query(cluster, collector)
    if mond.missing(cluster, reports, collector):
        sys.stderr.write(
            f"Didn't receive an answer by all MonDs, {collector}'s data will be"
            " ignored.\n"
        )
        _refuse_if_required(parsed)
        return None
    unreported = mond.unreported(cluster, reports) if collector == mond.XEN else []
    if unreported:
        # An instance without data cannot be compared with the measured ones.
        names = ",".join(f'"{name}"' for name in unreported)
        sys.stderr.write(f"No CPU information available for [{names}]\n")
        _refuse_if_required(parsed)
        return None
    return reports


def _refuse_if_required(parsed: ParsedOptions) -> None:
    """Raise an error if the options require all data."""
    if parsed.get("monde"):
        raise DataError("Not all required data available")


def query(cluster: Cluster, collector: str) -> dict[str, Any]:
    """Query the monitoring daemons of all nodes that are not offline."""
    from concurrent import futures

    names = [node.name for node in cluster.nodes if not node.offline]
    with futures.ThreadPoolExecutor(_AT_ONCE) as pool:
        answers = pool.map(lambda name: _query_node(name, collector), names)
        reports = dict(zip(names, answers, strict=True))
    for name, report in reports.items():
        if report is None:
            sys.stderr.write(
                f"Failed to contact node's {name} MonD for DC {collector}\n"
            )
    return reports


def _query_node(name: str, collector: str) -> Any:
    """Return a node's data, None without a valid answer."""
    from ganeti.commands.htools import rest
    from ganeti.decisions.htools.model import json_reader

    url = f"http://{name}:{PORT}/1/report/default/{collector}"
    try:
        body = rest.fetch(url, connect_s=CONNECT_S, answer_s=ANSWER_S)
        answer = json_reader.decode(body, url)
    except DataError:
        return None
    return answer.get("data") if isinstance(answer, dict) else None
