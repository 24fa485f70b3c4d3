"""Load of the processors and of the node: samples of /proc/stat, and /proc/loadavg.

Pure. Each sample has, per processor, the time it was busy and the time that passed,
in ticks of the kernel; see proc_stat(5).
"""

import collections
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from ganeti.base.constants.protocols import mond
from ganeti.node.collectors.metrics import Family, single

#: Fields of a line: user nice system idle iowait irq softirq steal; guest times are
#: part of user and nice.
_FIELDS: Final = 8
_IDLE: Final = (3, 4)


class Ticks(NamedTuple):
    """Times of one processor since the start of the machine."""

    busy: int
    total: int


def parse_processors(text: str) -> dict[str, Ticks]:
    """Return the times of each processor that is online, by its name such as ``cpu0``.

    Raises:
        ValueError: a line has another form.
    """
    rows = {}
    for line in text.splitlines():
        name, *words = line.split() or [""]
        if not name.startswith("cpu") or name == "cpu":
            continue
        values = [int(word) for word in words[:_FIELDS]]
        total = sum(values)
        rows[name] = Ticks(total - sum(values[at] for at in _IDLE), total)
    if not rows:
        raise ValueError("no line of a processor")
    return rows


class LoadWindow:
    """The samples of the last minutes. Not thread-safe."""

    def __init__(self) -> None:
        self._samples: collections.deque[tuple[float, dict[str, Ticks]]]
        self._samples = collections.deque(maxlen=mond.CPUAVGLOAD_BUFFER_SIZE)

    def add(self, now_s: float, sample: dict[str, Ticks]) -> None:
        """Add a sample; forget those that are too old.

        Args:
            now_s: monotonic time.
            sample: see `parse`.
        """
        self._samples.append((now_s, sample))
        while self._samples[0][0] < now_s - mond.CPUAVGLOAD_WINDOW_SIZE:
            self._samples.popleft()

    def data(self) -> dict[str, Any]:
        """Return the average load of each processor, between 0 and 1, and the sum."""
        if len(self._samples) < 2:
            return {"error": "not enough samples yet to compute the load"}
        (_then, first), (_now, last) = self._samples[0], self._samples[-1]
        loads = []
        for name, end in last.items():
            # A processor that came online in between has no earlier times.
            begin = first.get(name, Ticks(0, 0))
            passed = end.total - begin.total
            loads.append(
                max(0.0, (end.busy - begin.busy) / passed) if passed > 0 else 0
            )
        return {"cpu_number": len(loads), "cpus": loads, "cpu_total": sum(loads)}


def parse_load(text: str) -> dict[str, float | int]:
    """Return the load averages, and the number of running and of all tasks.

    Raises:
        ValueError: the text is not that of /proc/loadavg.
    """
    try:
        one, five, fifteen, tasks, _last_pid = text.split()
        running, total = tasks.split("/")
        return {
            "load1": float(one),
            "load5": float(five),
            "load15": float(fifteen),
            "running": int(running),
            "tasks": int(total),
        }
    except ValueError as err:
        raise ValueError(f"no load averages: {text[:80]!r}") from err


def metrics_of_processors(data: Mapping[str, Any]) -> Iterator[Family]:
    """Return the metrics of the average load."""
    yield single("ganeti_node_cpus", "processors online", data["cpu_number"])
    yield single(
        "ganeti_node_cpu_load",
        "busy processors, the average of the last ten minutes",
        data["cpu_total"],
    )


def metrics_of_load(data: Mapping[str, Any]) -> Iterator[Family]:
    """Return the metrics of the load averages."""
    yield Family(
        "ganeti_node_load_average",
        "tasks that run or wait for a processor or disk, the average of these minutes",
        [((minutes,), data[f"load{minutes}"]) for minutes in ("1", "5", "15")],
        ("minutes",),
    )
    yield single("ganeti_node_running_tasks", "runnable tasks", data["running"])
    yield single("ganeti_node_tasks", "all tasks", data["tasks"])
