"""What instances use of their nodes: from a file, from monitoring daemons, or nothing.

The daemons of all nodes are asked at once.
"""

import sys
from typing import Any, Final

import msgspec

from ganeti.htools.model import Cluster, DataError
from ganeti.tools.htools import sources, values
from ganeti.tools.htools.options import Parsed, ValueProblem

#: Port of the monitoring daemon.
PORT: Final = 1815
#: Seconds for the connection to a monitoring daemon, and for its answer.
CONNECT_S: Final = 2.0
ANSWER_S: Final = 10.0
#: Daemons that are asked at the same time.
_AT_ONCE: Final = 32
_IDLE: Final = (0.0, 0.0, 0.0, 0.0)

_Use = tuple[float, float, float, float]


def apply(cluster: Cluster, parsed: Parsed) -> Cluster:
    """Set the utilisation of instances as the options say.

    Raises:
        DataError, OSError: a file cannot be understood or read, or data is missing that
            was said to be needed.
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
        DataError: naming file, line and what was found; OSError: it cannot be read.
    """
    try:
        lines = sources.read_bytes(path).decode().splitlines()
    except UnicodeDecodeError as err:
        raise DataError(f"{path}: not a text file: {err.reason}") from err
    use = {}
    for number, line in enumerate(lines, start=1):
        try:
            name, cpu, memory, disk, net = line.split(" ")
            each = [values.real("utilisation")(cell) for cell in (cpu, memory, disk)]
            use[name] = (each[0], each[1], each[2], values.real("utilisation")(net))
        except (ValueError, ValueProblem) as err:
            raise DataError(
                f"{path}, line {number}: can't parse utilisation data, wanted"
                f" 'NAME cpu mem disk net', found {line!r:.80}"
            ) from err
    return use


def _monitored(cluster: Cluster, parsed: Parsed) -> Cluster:
    from ganeti.htools import monitored

    collector = monitored.XEN if parsed.get("mondx") else monitored.CPU
    reports = _reports(cluster, parsed, collector)
    if reports is not None:
        cluster = monitored.apply(cluster, reports, collector)
    if not parsed.get("mondk"):
        return cluster
    reports = _reports(cluster, parsed, monitored.RSS)
    if reports is None:
        return cluster
    return monitored.apply_memory(cluster, reports, parsed["mw"])


def _reports(cluster: Cluster, parsed: Parsed, collector: str) -> dict[str, Any] | None:
    """Return a collector's data of all nodes; None when some is missing.

    Raises:
        DataError: some is missing that was said to be needed.
    """
    from ganeti.htools import monitored

    if parsed.get("mondd") is not None:
        data = sources.read_json(parsed["mondd"])
        reports = monitored.from_file(data, collector, parsed["mondd"])
    else:
        reports = ask(cluster, collector)
    if monitored.missing(cluster, reports, collector):
        sys.stderr.write(
            f"Didn't receive an answer by all MonDs, {collector}'s data will be"
            " ignored.\n"
        )
        if parsed.get("monde"):
            raise DataError("Not all required data available")
        return None
    return reports


def ask(cluster: Cluster, collector: str) -> dict[str, Any]:
    """Ask the monitoring daemons of all nodes that are not offline."""
    from concurrent import futures

    names = [node.name for node in cluster.nodes if not node.offline]
    with futures.ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(lambda name: _ask_node(name, collector), names)
        reports = dict(zip(names, found, strict=True))
    for name, report in reports.items():
        if report is None:
            sys.stderr.write(
                f"Failed to contact node's {name} MonD for DC {collector}\n"
            )
    return reports


def _ask_node(name: str, collector: str) -> Any:
    """Return a node's data, None without an answer."""
    from ganeti.htools import fields
    from ganeti.tools.htools import rest

    url = f"http://{name}:{PORT}/1/report/default/{collector}"
    try:
        body = rest.fetch(url, connect_s=CONNECT_S, answer_s=ANSWER_S)
        answer = fields.decode(body, url)
    except DataError:
        return None
    return answer.get("data") if isinstance(answer, dict) else None
