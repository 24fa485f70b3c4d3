"""Search of objects by name, UUID, tag, address, operating system or job id.

The texts of the objects are kept from one search to the next. A search makes the texts
of those records again that have changed; records are immutable, so identity decides.
See `ganeti.decisions.search` for the ranking.
"""

import bisect
import itertools
import operator
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ganeti.base.text import units
from ganeti.decisions import search
from ganeti.decisions.pages import check_limit
from ganeti.decisions.search import Candidate, Match, Term
from ganeti.master.query.model import Sources
from ganeti.model.objects import Cluster, FilterRule, Instance, Network, Node, NodeGroup


def _terms(*fields: tuple[str, Any]) -> list[Term]:
    """Return terms; a value may be a text, several, or missing."""
    return [
        Term(field, text)
        for field, value in fields
        for text in ((value,) if isinstance(value, str) else value or ())
        if text
    ]


def _of_cluster(record: Cluster) -> list[Term]:
    name = ("name", record.cluster_name)
    return _terms(name, ("uuid", record.uuid), ("tag", record.tags))


def _of_group(record: NodeGroup) -> list[Term]:
    name = ("name", record.name)
    return _terms(name, ("uuid", record.uuid), ("tag", record.tags))


def _of_node(record: Node) -> list[Term]:
    return _terms(
        ("name", record.name),
        ("uuid", record.uuid),
        ("tag", record.tags),
        ("ip", record.primary_ip),
        ("ip", record.secondary_ip),
    )


def _of_instance(record: Instance) -> list[Term]:
    nics = record.nics
    return _terms(
        ("name", record.name),
        ("uuid", record.uuid),
        ("tag", record.tags),
        ("ip", [nic.ip for nic in nics]),
        ("mac", [nic.mac for nic in nics]),
        ("os", record.os),
        ("nic", [nic.name for nic in nics]),
        ("nic", [nic.uuid for nic in nics]),
        ("disk", record.disks),
    )


def _of_network(record: Network) -> list[Term]:
    return _terms(
        ("name", record.name),
        ("uuid", record.uuid),
        ("tag", record.tags),
        ("ip", (record.network, record.gateway, record.network6, record.gateway6)),
    )


def _of_filter(record: FilterRule) -> list[Term]:
    return _terms(("uuid", record.uuid))


class _Kind(NamedTuple):
    """How the objects of one kind are searched.

    Attributes:
        table: of the configuration; empty for others.
        name_of: returns what identifies an object.
        terms_of: returns its texts, that of its name first.
    """

    table: str
    name_of: Callable[[Any], str]
    terms_of: Callable[[Any], list[Term]]


#: One of so many records may change without a look at the places of all.
_FEW: Final = 16
_BY_NAME: Final = operator.attrgetter("name")
_KINDS: Final[Mapping[str, _Kind]] = {
    "cluster": _Kind("cluster", operator.attrgetter("cluster_name"), _of_cluster),
    "group": _Kind("nodegroups", _BY_NAME, _of_group),
    "node": _Kind("nodes", _BY_NAME, _of_node),
    "instance": _Kind("instances", _BY_NAME, _of_instance),
    "network": _Kind("networks", _BY_NAME, _of_network),
    "filter": _Kind("filters", operator.attrgetter("uuid"), _of_filter),
    "os": _Kind("", str, lambda name: [Term("name", name)]),
    "job": _Kind("", str, lambda number: [Term("id", str(number))]),
}


class _Lines:
    """The texts of the objects of one kind; for use by many threads."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._lock = threading.Lock()
        self._source: Any = None
        self._records: Sequence[Any] = ()
        self._lines: Sequence[str] = ()

    def update(self, source: Any, records: Callable[[], Iterable[Any]]) -> None:
        """Make the texts of the records that are new.

        Args:
            source: an immutable value; the same one has the same records.
            records: returns the present records.
        """
        terms_of = _KINDS[self._kind].terms_of
        with self._lock:
            if source is self._source:
                return
            present = list(records())
            self._lines = self._updated(present, terms_of)
            self._source, self._records = source, present

    def _updated(
        self, present: Sequence[Any], terms_of: Callable[[Any], list[Term]]
    ) -> list[str]:
        """Return the texts of the present records, most of which are known."""
        if len(present) == len(self._records):
            pairs = enumerate(zip(present, self._records, strict=True))
            changed = [place for place, (record, old) in pairs if record is not old]
            # As a rule few records change, and the others stay at their places.
            if len(changed) * _FEW <= len(present):
                lines = list(self._lines)
                for place in changed:
                    lines[place] = search.line_of(terms_of(present[place]))
                return lines
        # The earlier records are referred to until then, so no identity is reused.
        known = dict(zip(map(id, self._records), self._lines, strict=True))
        return [
            known.get(id(record)) or search.line_of(terms_of(record))
            for record in present
        ]

    def candidates(self, text: str) -> Iterator[Candidate]:
        """Yield the objects that match."""
        rank = search.rank_by(text)
        name_of = _KINDS[self._kind].name_of
        with self._lock:
            records, lines = self._records, self._lines
        for record, line in zip(records, lines, strict=True):
            if text in line:
                yield Candidate(rank(line), self._kind, name_of(record), record)


class SearchIndex:
    """The texts of all objects; for use by many threads."""

    def __init__(self) -> None:
        self._lines = {kind: _Lines(kind) for kind in _KINDS}

    def find(
        self, sources: Sources, text: str, kinds: Iterable[str], limit: int
    ) -> list[Match]:
        """Return the objects that match a text, the best first.

        Args:
            sources: configuration and job queue.
            text: part of a name or of another text, in either case.
            kinds: of the objects; none means all.
            limit: most objects.

        Raises:
            OpPrereqError: wrong_input.
        """
        wanted = search.check_text(text)
        check_limit(limit, search.MAX_LIMIT)
        candidates = itertools.chain.from_iterable(
            self._candidates(sources, wanted, kind)
            for kind in sorted(search.check_kinds(kinds))
        )
        return [
            _match(candidate, wanted) for candidate in search.best(candidates, limit)
        ]

    def _candidates(
        self, sources: Sources, text: str, kind: str
    ) -> Iterable[Candidate]:
        if kind == "job":
            return _jobs(sources, text)
        lines, snapshot = self._lines[kind], sources.snapshot
        table = snapshot.table(_KINDS[kind].table or "instances")
        records = table.values
        if kind == "os":
            lines.update(table, lambda: {record.os for record in records()} - {""})
        else:
            lines.update(table, records)
        return lines.candidates(text)


def _jobs(sources: Sources, text: str) -> Iterator[Candidate]:
    """Yield the jobs whose number begins with a text, also an archived one."""
    number = units.whole_number(text)
    if sources.jobs is None or number is None:
        return
    ids = sources.jobs.ids()
    for job_id in ids:
        if str(job_id).startswith(text):
            yield Candidate(0 if job_id == number else 2, "job", str(job_id), job_id)
    is_known = bisect.bisect_left(ids, number) < bisect.bisect_right(ids, number)
    # No other spelling of a number is a part of it.
    is_plain = text == str(number)
    if is_plain and not is_known and sources.jobs.job(number) is not None:
        yield Candidate(0, "job", str(number), number)


def _match(candidate: Candidate, text: str) -> Match:
    terms = _KINDS[candidate.kind].terms_of(candidate.record)
    match, term = search.why(terms, text)
    return Match(candidate.kind, candidate.name, match, term.field, term.value)
