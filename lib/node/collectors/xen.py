"""State and load of Xen domains, from the output of ``xl list`` and ``xl uptime``.

Pure. See xl(1).
"""

import collections
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ganeti.base.constants.protocols import mond
from ganeti.node.collectors.metrics import Family
from ganeti.node.collectors.reports import Code, Status, merged, with_status

LIST: Final = ("xl", "list")
UPTIME: Final = ("xl", "uptime")
#: The domain of the hypervisor's host itself.
_HOST: Final = "Domain-0"
#: Letters of the state; a domain that waits for a processor has none of them.
_STATES: Final = {
    "r": "running",
    "b": "blocked",
    "p": "paused",
    "s": "shutdown",
    "c": "crashed",
    "d": "dying",
}
_UP: Final = frozenset({"running", "blocked"})


class Domain(NamedTuple):
    """One domain: its state and the processor time that it has used."""

    state: str
    cpu_s: float


def parse_list(text: str) -> dict[str, Domain]:
    """Return the domains by name, without that of the host.

    Raises:
        ValueError: a line has another form.
    """
    domains = {}
    for line in text.splitlines()[1:]:
        words = line.split()
        if not words:
            continue
        if len(words) < 6:  # name, id, memory, processors, state, time
            raise ValueError(f"line of {len(words)} words: {line[:80]!r}")
        # A name may contain spaces; the other columns may not.
        name = " ".join(words[:-5])
        state = next(
            (_STATES[each] for each in words[-2] if each in _STATES), "running"
        )
        if name != _HOST:
            domains[name] = Domain(state, float(words[-1]))
    return domains


def parse_uptime(text: str) -> dict[str, str]:
    """Return how long each domain has been up, as text, by name."""
    rows = {}
    for line in text.splitlines()[1:]:
        words = line.split()
        if len(words) >= 3:  # name, id, uptime
            rows[words[0]] = " ".join(words[2:])
    return rows


def instance_status(
    instances: Sequence[Mapping[str, Any]],
    domains: Mapping[str, Domain],
    uptimes: Mapping[str, str],
) -> dict[str, Any]:
    """Compare the wanted states of this node's primary instances with the domains.

    Args:
        instances: primary instances of this node, in the form of the configuration.
        domains: see `parse_list`.
        uptimes: see `parse_uptime`.
    """
    rows, statuses = [], []
    for instance in instances:
        name = str(instance.get("name"))
        wanted = str(instance.get("admin_state"))
        domain = domains.get(name)
        status = _status(name, wanted, domain)
        statuses.append(status)
        row: dict[str, Any] = {
            "name": name,
            "uuid": instance.get("uuid"),
            "adminState": wanted,
            "actualState": "offline" if domain is None else domain.state,
            "uptime": uptimes.get(name),
            "mtime": instance.get("mtime"),
            "state_reason": [],
        }
        rows.append(with_status(row, status))
    return with_status({"instances": rows}, merged(statuses))


def metrics_of_status(data: Mapping[str, Any]) -> Iterator[Family]:
    """Return the metrics of `instance_status`."""
    yield Family(
        "ganeti_instance_status",
        "0 as wanted, 1 being repaired, 2 unknown, 4 bad",
        [((row["name"],), row["status"]["code"]) for row in data["instances"]],
        ("instance",),
    )


def _status(name: str, wanted: str, domain: Domain | None) -> Status:
    if wanted == "up":
        if domain is not None and domain.state in _UP:
            return Status()
        state = "not running" if domain is None else domain.state
        return Status(Code.BAD, f"{name}: should run, but is {state}")
    if wanted == "offline":
        return Status(Code.UNKNOWN, f"{name}: is marked offline")
    if domain is None:
        return Status()
    return Status(Code.BAD, f"{name}: should be down, but is {domain.state}")


class DomainLoads:
    """Processor time of each domain over the last minutes. Not thread-safe."""

    def __init__(self) -> None:
        self._samples: collections.deque[tuple[float, Mapping[str, Domain]]]
        self._samples = collections.deque(maxlen=mond.CPUAVGLOAD_BUFFER_SIZE)

    def add(self, now_s: float, domains: Mapping[str, Domain]) -> None:
        """Add a sample at a monotonic time; forget those that are too old."""
        self._samples.append((now_s, domains))
        while self._samples[0][0] < now_s - mond.CPUAVGLOAD_WINDOW_SIZE:
            self._samples.popleft()

    def data(self) -> dict[str, Any]:
        """Return the average number of processors that each domain keeps busy."""
        if len(self._samples) < 2:
            return {"error": "not enough samples yet to compute the load"}
        end_s, last = self._samples[-1]
        loads = {}
        for name, domain in last.items():
            for begin_s, domains in self._samples:
                before = domains.get(name)
                # A domain that was started again begins at zero.
                if before is not None and before.cpu_s <= domain.cpu_s:
                    if end_s > begin_s:
                        loads[name] = (domain.cpu_s - before.cpu_s) / (end_s - begin_s)
                    break
        return loads


def metrics_of_loads(data: Mapping[str, float]) -> Iterator[Family]:
    """Return the metrics of `DomainLoads`."""
    yield Family(
        "ganeti_instance_cpu_load",
        "processors that a Xen domain keeps busy",
        [((name,), load) for name, load in data.items()],
        ("instance",),
    )
