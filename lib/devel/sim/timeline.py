"""The timeline of a simulation: what happened, what was decided, and why.

It is made from what the simulated cluster stores (jobs, the decision journal, flags of
nodes) and from what its machines do. UUIDs, which differ in each run, are replaced.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants import misc
from ganeti.decisions.jobs import records
from ganeti.decisions.repair.journal import Entry, Item
from ganeti.model import objects
from ganeti.model.objects import Node, Update
from ganeti.store import Change, Document

_UUID: Final = re.compile(misc.UUID_REGEX.strip("^$"))
#: Jobs that only keep the records of automatons.
_QUIET: Final = ("TAGS_SET", "TAGS_DEL", "TEST_DELAY")
#: Characters of an error of a job.
_MAX_ERROR: Final = 300
_HOUR_S: Final = 3600
_MINUTE_S: Final = 60


class Line(msgspec.Struct, frozen=True):
    """One line.

    Attributes:
        at_s: seconds after the begin.
        kind: ``event``, ``machine``, ``node``, ``decision`` or ``job``.
        name: of the object.
        text: what happened to it, or was decided about it, and why.
    """

    at_s: float
    kind: str
    name: str
    text: str

    def __str__(self) -> str:
        return f"{span(self.at_s)} {self.kind} {self.name}: {self.text}"


def span(seconds: float) -> str:
    """Return a time span as ``H:MM:SS``."""
    whole = int(seconds)
    minutes, rest = divmod(whole, _MINUTE_S)
    return f"{whole // _HOUR_S}:{minutes % _MINUTE_S:02}:{rest:02}"


class Timeline:
    """Collects lines.

    Attributes:
        lines: in the order of their times.
        last_items: newest decisions: (kind, name) -> automaton -> item.
    """

    def __init__(self, elapsed: Callable[[], float], start: objects.Snapshot) -> None:
        self._elapsed = elapsed
        self.lines: list[Line] = []
        self.last_items: dict[tuple[str, str], dict[str, Item]] = {}
        self._labels: dict[str, str] = {}
        self._shown: dict[tuple[str, str, str], tuple[str, str]] = {}
        self._flags = {uuid: _flags(node) for uuid, node in start.nodes.items()}
        self._ended: set[int] = set()
        self._summaries: dict[int, str] = {}

    def add(self, kind: str, name: str, text: str) -> None:
        """Add a line."""
        self.lines.append(Line(self._elapsed(), kind, name, self.plain(text)))

    def plain(self, text: str) -> str:
        """Return a text with labels in place of UUIDs."""

        def label(match: re.Match[str]) -> str:
            # Numbers in the order of their appearance are the same in each run.
            known = self._labels
            return known.setdefault(match.group(), f"<{len(known) + 1}>")

        return _UUID.sub(label, text)

    def take(self, changes: Sequence[Change]) -> None:
        """Add the lines of a commit."""
        for change in changes:
            if isinstance(change, Update):
                if change.table == "nodes":
                    self._take_node(change.key, change.record)
            elif change.data is not None and change.table == "journal":
                self._take_entry(msgspec.json.decode(change.data, type=Entry))
            elif change.data is not None and change.table == "jobs":
                self._take_job(change)

    def _take_node(self, uuid: str, node: Any) -> None:
        if not isinstance(node, Node):
            return
        before, after = self._flags.get(uuid, ""), _flags(node)
        self._flags[uuid] = after
        if before != after:
            self.add("node", node.name, f"is {after or 'online'}")

    def _take_entry(self, entry: Entry) -> None:
        for item in entry.items:
            known = self.last_items.setdefault((item.kind, item.name), {})
            known[entry.automaton] = item
            key = entry.automaton, item.name, item.action
            value = item.decision.value, self.plain(item.reason)
            # Each round repeats a decision until something changes.
            if self._shown.get(key) == value:
                continue
            self._shown[key] = value
            why = f": {item.reason}" if item.reason else ""
            action = f"{entry.automaton}: {item.action}: {item.decision}{why}"
            self.add("decision", item.name, action)

    def _take_job(self, change: Document) -> None:
        job = records.decode_job(change.data or b"")
        if job.id not in self._summaries:
            named = [op.summary() for op in job.ops]
            shown = [text for text in named if not text.startswith(_QUIET)]
            self._summaries[job.id] = " + ".join(shown)
            if shown:
                self.add("job", str(job.id), f"{self._summaries[job.id]} is submitted")
        if not job.is_final or job.id in self._ended:
            return
        self._ended.add(job.id)
        problem = _problem(job)
        if self._summaries[job.id] or problem:
            text = f"{self._summaries[job.id]} ends: {job.status.value}{problem}"
            self.add("job", str(job.id), text.strip())


def _flags(node: Node) -> str:
    words: Mapping[str, bool] = {"offline": node.offline, "drained": node.drained}
    return ", ".join(word for word, is_set in words.items() if is_set)


def _problem(job: records.Job) -> str:
    for op in job.ops:
        error = errors.decode(op.result_value())
        if error is not None:
            text = str(error.args[0]) if error.args else type(error).__name__
            return f": {text[:_MAX_ERROR]}"
    return ""
