"""Decisions on job starts: filter rules, rate limits, and the share of the remote API.

Pure: the data of a job in, a decision out; the caller counts the jobs per slot. Rules
are ordered by priority, watermark and uuid. The first matching rule that is not
CONTINUE decides. Without such a rule, the job is accepted.

Opcodes of the remote API have a reason of the source `REMOTE_SOURCE`, which the master
daemon demands on its socket; it is stored with the job. So places in the queue and
workers remain for administrators on the master, whatever users of the remote API do.
"""

import collections
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ganeti.base import errors
from ganeti.base.constants import query
from ganeti.model import qlang
from ganeti.model.objects import FilterRule

ACTIONS: Final = ("ACCEPT", "PAUSE", "REJECT", "CONTINUE")
RATE_LIMIT: Final = "RATE_LIMIT"
#: Parameters of all opcodes, hidden from rules.
_COMMON: Final = frozenset(
    ("comment", "debug_level", "depends", "dry_run", "if_serial", "priority", "reason")
)
#: The only fields of rules on job ids and reasons.
_SIMPLE: Final = frozenset({"|", "&", "!", "==", "=", "!=", "<", "<=", ">", ">="})
_REASON_FIELDS: Final = ("source", "reason", "timestamp")
_BUCKET: Final = re.compile(r"rate-limit:(0*[1-9][0-9]*):(.*)", re.DOTALL)

Reason = tuple[str, str, int]


class Slot(NamedTuple):
    """A slot of a running job; at most ``limit`` slots of a key are taken."""

    key: str
    limit: int


class JobFacts(NamedTuple):
    """The data of a job for rules: wire forms and reason entries of all opcodes."""

    job_id: int
    inputs: Sequence[Mapping[str, Any]]
    reasons: Sequence[Reason]


class Decision(NamedTuple):
    """The decision of a rule; ``slot`` is set for a rate limit."""

    action: str = "ACCEPT"
    rule: str | None = None
    slot: Slot | None = None


def buckets(reasons: Iterable[Reason]) -> tuple[Slot, ...]:
    """Return the ad-hoc buckets of a job, each once: ``rate-limit:N:TEXT``."""
    slots = {}
    for _source, text, _when in reasons:
        if text.startswith("rate-limit:") and (match := _BUCKET.fullmatch(text)):
            slot = Slot(f"bucket/{int(match[1])}:{match[2]}", int(match[1]))
            slots[slot.key] = slot
    return tuple(slots.values())


class Rules:
    """The compiled filter rules of the cluster; those with `problems` are skipped."""

    def __init__(self, rules: Iterable[FilterRule]) -> None:
        ordered = sorted(rules, key=lambda r: (r.priority, r.watermark, r.uuid))
        self._rules = [
            (rule, [_test_of(rule, predicate) for predicate in rule.predicates])
            for rule in ordered
            if rule.action != "CONTINUE" and problem(rule) is None
        ]

    def __bool__(self) -> bool:
        return bool(self._rules)

    def decide(self, facts: JobFacts) -> Decision:
        """Return the decision of the first matching rule about a job."""
        for rule, predicates in self._rules:
            if all(predicate(facts) for predicate in predicates):
                if isinstance(rule.action, str):
                    return Decision(rule.action, rule.uuid)
                name, limit = rule.action
                return Decision(name, rule.uuid, Slot(f"filter/{rule.uuid}", limit))
        return Decision()


_Test = Callable[[JobFacts], bool]


def is_action(action: Any) -> bool:
    """Return whether a value is the action of a rule."""
    if isinstance(action, str):
        return action in ACTIONS
    return (
        isinstance(action, (list, tuple))
        and len(action) == 2
        and action[0] == RATE_LIMIT
        and isinstance(action[1], int)
        and not isinstance(action[1], bool)
        and action[1] > 0
    )


def problems(rules: Iterable[FilterRule]) -> dict[str, str]:
    """Return uuid -> why the rule is skipped, for those that cannot be evaluated.

    The master daemon refuses such rules; imported configurations and earlier releases
    have them.
    """
    texts = {rule.uuid: problem(rule) for rule in rules}
    return {uuid: text for uuid, text in texts.items() if text is not None}


def problem(rule: FilterRule) -> str | None:
    """Return why a rule cannot be evaluated, None if it can."""
    if not is_action(rule.action):
        return f"action: found {rule.action!r:.150}"
    for predicate in rule.predicates:
        try:
            _test_of(rule, predicate)
        except errors.GenericError as err:
            return f"predicate: {err}"
    try:
        check_together([expression for _kind, expression in rule.predicates])
    except errors.ParseError as err:
        return f"predicates: {err}"
    return None


def check_together(expressions: Sequence[Any]) -> None:
    """Check the filters of all predicates of a rule, which have one bound together.

    Raises:
        ParseError: one is no filter, or there are too many regular expressions.
    """
    known = [each for each in expressions if each is not None]
    qlang.check(["&", *known], max_depth=qlang.MAX_DEPTH + 1)


def _test_of(rule: FilterRule, predicate: Any) -> _Test:
    """Return the function of a predicate.

    Raises:
        GenericError: it cannot be evaluated.
    """
    try:
        kind, expression = predicate
        rows, leaves = _ROWS[kind], _LEAVES[kind]
    except (ValueError, KeyError, TypeError) as err:
        text = f"wanted [kind, filter], found {predicate!r:.150}"
        raise errors.ParseError(text) from err
    qlang.check(expression)
    test = qlang.compile_(_watermarked(expression, rule), leaves)
    if kind != "opcode" and not _operators(expression) <= _SIMPLE:
        raise errors.ParseError(f"{kind}: wanted comparisons only")
    return lambda facts: any(_holds(test, row) for row in rows(facts))


def _holds(test: qlang.Predicate, row: Any) -> bool:
    try:
        return bool(test(row))
    except errors.ParameterError:
        return False  # a comparison of different types


def _watermarked(node: Any, rule: FilterRule) -> Any:
    """Replace the name of the watermark by its value."""
    if isinstance(node, (list, tuple)):
        if len(node) == 3 and tuple(node[1:]) == ("id", "watermark"):
            return [node[0], "id", rule.watermark]
        return [_watermarked(item, rule) for item in node]
    return node


def _operators(node: Any) -> set[str]:
    if node is None:
        return set()
    if node[0] in {"|", "&", "!"}:
        return {node[0]}.union(*(_operators(item) for item in node[1:]))
    return {node[0]}


def _leaf(name: str, kind: str, get: Callable[[Any], Any]) -> qlang.Leaf:
    return qlang.Leaf(name, kind, lambda row: (query.RS_NORMAL, get(row)))


def _job_leaf(name: str) -> qlang.Leaf:
    if name != "id":
        raise errors.ParameterError(f"job filter: unknown field {name}")
    return _leaf(name, query.QFT_NUMBER, lambda row: row)


def _reason_leaf(name: str) -> qlang.Leaf:
    if name not in _REASON_FIELDS:
        raise errors.ParameterError(f"job filter: unknown field {name}")
    index = _REASON_FIELDS.index(name)
    kind = query.QFT_NUMBER if index == 2 else query.QFT_TEXT
    return _leaf(name, kind, lambda row: row[index])


def _opcode_leaf(name: str) -> qlang.Leaf:
    path = name.split(".")

    def get(row: Any) -> Any:
        if path[0] in _COMMON:
            return None
        for part in path:
            if not isinstance(row, Mapping):
                return None
            row = row.get(part)
        return row

    return _leaf(name, query.QFT_OTHER, get)


_LEAVES: Final[dict[str, Callable[[str], qlang.Leaf]]] = {
    "jobid": _job_leaf,
    "opcode": _opcode_leaf,
    "reason": _reason_leaf,
}
_ROWS: Final[dict[str, Callable[[JobFacts], Sequence[Any]]]] = {
    "jobid": lambda facts: (facts.job_id,),
    "opcode": lambda facts: facts.inputs,
    "reason": lambda facts: facts.reasons,
}


#: Source of the reason that says who asked the remote API for a job.
REMOTE_SOURCE: Final = "gnt:daemon:rapi"
_ANONYMOUS: Final = "user anonymous"
#: Parts of the queue: for all users of the remote API, and for one of them.
_ALL: Final = 0.8
_ONE: Final = 0.2
#: Unfinished jobs of an address that sends no credentials.
_MAX_ANONYMOUS: Final = 100
#: Bytes of the opcodes in unfinished jobs of one user.
_MAX_BYTES: Final = 64 << 20
#: Part of the workers that is kept for others.
_KEPT: Final = 0.2

#: Source, text, nanoseconds.


def requester(reasons: Iterable[Reason]) -> str:
    """Return who asked the remote API for a job; empty if it came from elsewhere.

    Returns:
        ``user NAME``, or ``address ADDRESS`` of a request without credentials.
    """
    for source, text, _when in reasons:
        if source == REMOTE_SOURCE:
            user, _comma, rest = text.partition(", ")
            return rest.partition(", ")[0] if user == _ANONYMOUS else user
    return ""


def remote_workers(limit: int) -> int:
    """Return how many of some workers may run jobs of the remote API."""
    return max(1, limit - max(1, round(limit * _KEPT)))


class RemoteShare:
    """Counts the unfinished jobs of the remote API; guarded by the queue's lock."""

    def __init__(self, hard_limit: int) -> None:
        """Start without jobs; the limit is that of all unfinished jobs."""
        self._hard_limit = hard_limit
        self._jobs: collections.Counter[str] = collections.Counter()
        self._bytes: collections.Counter[str] = collections.Counter()

    def check(self, who: str, size: int) -> None:
        """Refuse a job for which there is no room.

        Args:
            who: see `requester`.
            size: bytes of its opcodes.

        Raises:
            JobQueueFull: names the limit.
        """
        if not who:
            return
        most = max(1, round(self._hard_limit * _ONE))
        if who.startswith("address "):
            most = min(most, _MAX_ANONYMOUS)
        if self._jobs[who] >= most:
            raise errors.JobQueueFull(f"{who} has {most} unfinished jobs already")
        if self._jobs[who] and self._bytes[who] + size > _MAX_BYTES:
            raise errors.JobQueueFull(
                f"the unfinished jobs of {who} have more than {_MAX_BYTES} bytes"
            )
        if self._jobs.total() >= max(1, round(self._hard_limit * _ALL)):
            raise errors.JobQueueFull(
                "the part of the job queue that the remote API may use is full"
            )

    def add(self, who: str, size: int, jobs: int = 1) -> None:
        """Count a job of someone, or with ``jobs`` = -1 its end."""
        if not who:
            return
        self._jobs[who] += jobs
        self._bytes[who] += jobs * size
        if not self._jobs[who]:
            del self._jobs[who], self._bytes[who]
