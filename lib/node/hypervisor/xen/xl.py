"""Xen's program ``xl``: calls with limits, and the output of its lists.

The name of a domain, and nothing else there, is the choice of whoever created it.
"""

import re
from typing import Any, Final, NamedTuple

from ganeti.base import errors, process
from ganeti.node.hypervisor.base import (
    GuestState,
    InstanceInfo,
    NodeEffects,
    check_instance_name,
    run_bounded,
)

#: Domain of the node itself.
NODE: Final = "Domain-0"
#: Ends of the names of domains in a migration, on the target and on the source.
INCOMING: Final = "--incoming"
DEPARTING: Final = "--migratedaway"
_ROW: Final = re.compile(
    r"(?P<name>\S.{0,254}?) +(?P<id>\d{1,10}) +(?P<memory>\d{1,12})"
    r" +(?P<vcpus>\d{1,6}) +(?P<state>[rbpscdwS-]{6}) +(?P<time>\d{1,12}\.\d{1,3})",
    re.ASCII,
)
#: Letters of the state of a domain that does nothing any more: it has shut down, has
#: crashed, or its memory is being freed.
_ENDED: Final = frozenset("scd")
#: Letters of a domain that has shut down, with its reason: to be saved, not to end.
_SUSPENDED: Final = "ss"
#: Xen's name of a domain without a name: one that is being removed.
_NAMELESS: Final = "(null)"


class Domain(NamedTuple):
    """One row of the list; memory in MiB, time in seconds."""

    name: str
    number: int
    memory_mib: int
    vcpus: int
    state: str
    time_s: float

    @property
    def is_paused(self) -> bool:
        """Return whether the processors wait, but the guest has not ended."""
        return "p" in self.state and not self.has_ended

    @property
    def has_ended(self) -> bool:
        """Return whether the guest does not run any more."""
        return not self.is_suspended and not _ENDED.isdisjoint(self.state)

    @property
    def is_suspended(self) -> bool:
        """Return whether the guest waits for its state to be saved; it has not ended.

        Where that was interrupted, it has to be resumed.
        """
        return self.state[3:5] == _SUSPENDED and "d" not in self.state

    @property
    def info(self) -> InstanceInfo:
        """The guest as drivers describe it."""
        state = GuestState.SHUTDOWN if self.has_ended else GuestState.RUNNING
        return InstanceInfo(
            self.name,
            str(self.number),
            self.memory_mib,
            self.vcpus,
            state,
            self.time_s,
        )


def domains(text: str) -> list[Domain]:
    """Return all domains, that of the node among them, in the order of the list.

    Raises:
        HypervisorError: a line has another form.
    """
    head, *lines = text.splitlines() or [""]
    if head.split()[:2] != ["Name", "ID"]:
        raise errors.HypervisorError(
            f"xl list: wanted a heading with Name and ID, found {head[:80]!r}"
        )
    rows = []
    for line in lines:
        match = _ROW.fullmatch(line.strip())
        if match is None:
            raise errors.HypervisorError(
                "xl list: wanted name, id, memory, processors, state and time, found"
                f" {line[:80]!r}"
            )
        rows.append(
            Domain(
                match["name"],
                int(match["id"]),
                int(match["memory"]),
                int(match["vcpus"]),
                match["state"],
                float(match["time"]),
            )
        )
    return rows


def guests(rows: list[Domain]) -> list[Domain]:
    """Return the domains of guests, in the order of their names.

    One that arrives or leaves in a migration has another name, and is none of them.
    """
    return sorted(
        row
        for row in rows
        if row.number and row.name not in {NODE, _NAMELESS}
        if not row.name.endswith((INCOMING, DEPARTING))
    )


def arriving(rows: list[Domain]) -> list[str]:
    """Return the names of the guests that a migration brings to this node."""
    return [
        row.name.removesuffix(INCOMING)
        for row in rows
        if row.number and row.name.endswith(INCOMING)
    ]


def info(text: str) -> dict[str, str]:
    """Return the values of ``xl info`` by name."""
    rows = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, colon, value in rows if colon}


def node_info(values: dict[str, str], rows: list[Domain]) -> dict[str, Any]:
    """Return memory in MiB and processors of a node.

    Args:
        values: see `info`.
        rows: see `domains`.

    Raises:
        HypervisorError: a value is missing or no number.
    """
    total, free = _number(values, "total_memory"), _number(values, "free_memory")
    processors = _number(values, "nr_cpus")
    per_socket = _number(values, "cores_per_socket") * _number(
        values, "threads_per_core"
    )
    own = next((row for row in rows if row.number == 0), None)
    if own is None:
        raise errors.HypervisorError("xl list: wanted a domain 0, found none")
    used = sum(row.memory_mib for row in rows)
    return {
        "memory_total": total,
        "memory_free": free,
        "memory_dom0": own.memory_mib,
        "memory_hv": max(0, total - free - used),
        "cpu_total": processors,
        "cpu_nodes": _number(values, "nr_nodes"),
        "cpu_sockets": max(1, processors // max(1, per_socket)),
        "cpu_dom0": own.vcpus,
        "hv_version": [_number(values, "xen_major"), _number(values, "xen_minor")],
    }


def _number(values: dict[str, str], name: str) -> int:
    text = values.get(name, "")
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        raise errors.HypervisorError(
            f"xl info: wanted a number as {name}, found {text[:40]!r}"
        )
    return int(text)


PROGRAM: Final = "xl"
#: Seconds for calls that answer immediately.
TIMEOUT_S: Final = 60.0
#: Seconds for the start or end of a guest, with its devices and their scripts.
CHANGE_S: Final = 300.0
_MAX_OUTPUT: Final = 1 << 20
#: Characters of xl's output that an error shows.
_REASON_LENGTH: Final = 500


def domain(name: str) -> str:
    """Return the name of a guest, as xl's argument.

    Raises:
        HypervisorError: xl would take the name for a number of a domain, 0 is the node;
            or for another guest in a migration, so that nobody would see it run.
    """
    if check_instance_name(name).isdigit():
        raise errors.HypervisorError(
            f"instance {name}: Xen needs a name with other characters than digits;"
            " rename the instance"
        )
    if name == NODE or name.endswith((INCOMING, DEPARTING)):
        raise errors.HypervisorError(
            f"instance {name}: Xen needs another name than {NODE}, which does"
            f" not end with {INCOMING} or {DEPARTING}; rename the"
            " instance"
        )
    return name


def run(
    effects: NodeEffects, *words: str, timeout_s: float = TIMEOUT_S
) -> process.RunResult:
    """Run xl; the caller checks the result.

    Raises:
        HypervisorError: xl is not installed.
    """
    return run_bounded(
        effects,
        [PROGRAM, *words],
        timeout_s=timeout_s,
        max_output=_MAX_OUTPUT,
        what="Xen",
    )


def check(
    effects: NodeEffects, what: str, *words: str, timeout_s: float = TIMEOUT_S
) -> str:
    """Run xl, and return its output.

    Args:
        effects: effect interfaces of this node.
        what: beginning of the error, with the object.
        words: command and arguments.
        timeout_s: time limit, in seconds.

    Raises:
        HypervisorError: xl failed.
    """
    result = run(effects, *words, timeout_s=timeout_s)
    if result.failed:
        raise errors.HypervisorError(
            f"{what}: xl {words[0]} {result.reason}: {reason(result)}"
        )
    return result.stdout


def reason(result: process.RunResult) -> str:
    """Return the end of xl's messages in one line."""
    text = " ".join((result.stderr or result.stdout).split())
    return text[-_REASON_LENGTH:] or "no message"
