"""Filter rules, and rate limits from reasons: decisions on the start of jobs.

Pure: the data of a job in, a decision out; the caller counts the jobs per slot. Rules
are ordered by priority, watermark and uuid. The first matching rule that is not
CONTINUE decides. Without such a rule, the job is accepted.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ganeti import errors, qlang
from ganeti.constants import query
from ganeti.objects import FilterRule

#: Parameters of all opcodes, hidden from rules.
_COMMON: Final = ("comment", "debug_level", "depends", "dry_run", "priority", "reason")
#: The only fields of rules on job ids and reasons.
_SIMPLE: Final = frozenset({"|", "&", "!", "==", "=", "!=", "<", "<=", ">", ">="})
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
    """The compiled filter rules of the cluster.

    A malformed predicate never matches.
    """

    def __init__(self, rules: Iterable[FilterRule]) -> None:
        ordered = sorted(rules, key=lambda r: (r.priority, r.watermark, r.uuid))
        self._rules = [
            (rule, [_compile(rule, predicate) for predicate in rule.predicates])
            for rule in ordered
            if rule.action != "CONTINUE"
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


def _compile(rule: FilterRule, predicate: Any) -> _Test:
    try:
        kind, expression = predicate
        qlang.check(expression)
        test = qlang.compile_(_watermarked(expression, rule), _LEAVES[kind])
    except (errors.GenericError, ValueError, KeyError, TypeError):
        return lambda _facts: False
    if kind != "opcode" and not _operators(expression) <= _SIMPLE:
        return lambda _facts: False
    return lambda facts: any(_holds(test, row) for row in _ROWS[kind](facts))


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
    index = ("source", "reason", "timestamp").index(name)
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
