"""Events of a simulation: faults of machines, and what people do.

A line is a time, a verb and its arguments, such as ``10m kill node2``. Times are
seconds, or have the unit s, m or h. Empty lines, and what follows a ``#``, are ignored.
"""

import dataclasses
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.devel.sim.hardware import Helper

_TIME: Final = re.compile(r"(?P<number>[0-9]{1,7}(?:\.[0-9]{1,3})?)(?P<unit>[smhd]?)")
_UNITS: Final = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
#: Longest simulated time: more rounds would say nothing new.
MAX_S: Final = 30 * 86400.0
_STATUSES: Final = ("Ok", "live-repair", "evacuate", "evacuate-failover")
_DIRECTIONS: Final = ("both", "in", "out")
#: Verbs whose first argument is an object with tags.
_ON_TAGS: Final = ("tag", "untag")
_TAGGED: Final = ("group", "node", "instance")
#: Names that a message lists.
_SHOWN: Final = 10


@dataclasses.dataclass(frozen=True)
class Event:
    """One event.

    Attributes:
        at_s: seconds after the begin.
        verb: what happens.
        args: to which objects, and how.
    """

    at_s: float
    verb: str
    args: tuple[str, ...]

    def __str__(self) -> str:
        return " ".join((self.verb, *self.args))


class Verb(NamedTuple):
    """A kind of event.

    Attributes:
        usage: its arguments, for messages.
        check: returns what is wrong with them, or an empty text.
    """

    usage: str
    check: Callable[[Sequence[str]], str]


def _exactly(count: int) -> Callable[[Sequence[str]], str]:
    return lambda args: "" if len(args) == count else _wanted(count)


def _wanted(count: int) -> str:
    return "wanted 1 argument" if count == 1 else f"wanted {count} arguments"


def _some(args: Sequence[str]) -> str:
    return "" if args else "wanted at least one argument"


def _one_of(place: int, allowed: Sequence[str]) -> Callable[[Sequence[str]], str]:
    def check(args: Sequence[str]) -> str:
        if len(args) <= place:
            return _wanted(place + 1)
        if args[place] in allowed:
            return ""
        return f"wanted one of {', '.join(allowed)}, found {args[place]!r}"

    return check


def _number(place: int, least: float, most: float) -> Callable[[Sequence[str]], str]:
    def check(args: Sequence[str]) -> str:
        if len(args) != place + 1:
            return _wanted(place + 1)
        try:
            value = float(args[place])
        except ValueError:
            value = float("nan")
        if least <= value <= most:
            return ""
        return f"wanted {least:g} to {most:g}, found {args[place]!r}"

    return check


def _load(args: Sequence[str]) -> str:
    if args[1:] == ["none"]:
        return ""
    return _number(1, 0.0, 1000.0)(args)


def _tag(args: Sequence[str]) -> str:
    if len(args) != 2:
        return "wanted 2 arguments"
    kind, _colon, name = args[0].partition(":")
    if args[0] == "cluster" or (kind in _TAGGED and name):
        return ""
    return f"wanted cluster, or {', '.join(_TAGGED)} with a name, found {args[0]!r}"


#: Words of a short form: the verb and a node.
_SHORT_WORDS: Final = 2
#: Events by verb. Those whose first argument is a node are in `ON_NODES`.
VERBS: Final[Mapping[str, Verb]] = {
    "kill": Verb("NODE", _exactly(1)),
    "power-off": Verb("NODE", _exactly(1)),
    "power-on": Verb("NODE", _exactly(1)),
    "power-cycle": Verb("NODE", _exactly(1)),
    "freeze-node": Verb("NODE", _exactly(1)),
    "unfreeze-node": Verb("NODE", _exactly(1)),
    "stop-daemon": Verb("NODE", _exactly(1)),
    "start-daemon": Verb("NODE", _exactly(1)),
    "cut": Verb("NODE both|in|out [NODE ...]", _one_of(1, _DIRECTIONS)),
    "cut-master": Verb("NODE", _exactly(1)),
    "join": Verb("NODE", _exactly(1)),
    "disk-full": Verb("NODE yes|no", _one_of(1, ("yes", "no"))),
    "slow": Verb("NODE FACTOR", _number(1, 1.0, 1000.0)),
    "helper": Verb(f"NODE {'|'.join(Helper)}", _one_of(1, tuple(Helper))),
    "diagnose": Verb(f"NODE {'|'.join(_STATUSES)} [COMMAND]", _one_of(1, _STATUSES)),
    "forge": Verb("NODE yes|no", _one_of(1, ("yes", "no"))),
    "repairs": Verb("NODE yes|no", _one_of(1, ("yes", "no"))),
    "starts": Verb("NODE yes|no", _one_of(1, ("yes", "no"))),
    "heartbeat": Verb("NODE yes|no", _one_of(1, ("yes", "no"))),
    "load": Verb("NODE LOAD|none", _load),
    "clock-of": Verb("NODE SECONDS", _number(1, -1e6, 1e6)),
    "clock": Verb("SECONDS", _number(0, -1e6, 1e6)),
    "offline": Verb("NODE yes|no", _one_of(1, ("yes", "no"))),
    "drain": Verb("NODE yes|no", _one_of(1, ("yes", "no"))),
    "kill-guest": Verb("INSTANCE", _exactly(1)),
    "stop-instance": Verb("INSTANCE", _exactly(1)),
    "start-instance": Verb("INSTANCE", _exactly(1)),
    "tag": Verb("cluster|group:NAME|node:NAME|instance:NAME TAG", _tag),
    "untag": Verb("cluster|group:NAME|node:NAME|instance:NAME PREFIX", _tag),
    "freeze": Verb("[REASON ...]", lambda _args: ""),
    "thaw": Verb("", _exactly(0)),
    "node-death": Verb("yes|no", _one_of(0, ("yes", "no"))),
    "cancel-incidents": Verb("NODE", _exactly(1)),
    "restart-master": Verb("SECONDS", _number(0, 0.0, 86400.0)),
    "master-failover": Verb("NODE", _exactly(1)),
    "drain-queue": Verb("yes|no", _one_of(0, ("yes", "no"))),
}
#: Shorter forms, named as the drills of ``vcluster`` -> verb and arguments, of which
#: the node is the first.
_SHORT: Final[Mapping[str, tuple[str, ...]]] = {
    "cut-in": ("cut", "in"),
    "cut-out": ("cut", "out"),
    "lie": ("helper", Helper.LIES),
    "disk-full": ("disk-full", "yes"),
    "cut": ("cut", "both"),
}
#: Verbs whose first argument is a node.
ON_NODES: Final = frozenset(
    verb for verb, row in VERBS.items() if row.usage.startswith("NODE")
)
#: The same for instances.
ON_INSTANCES: Final = frozenset(
    verb for verb, row in VERBS.items() if row.usage.startswith("INSTANCE")
)


def duration(text: str) -> float:
    """Return a time span in seconds.

    Raises:
        OpPrereqError: it is none, or too long.
    """
    match = _TIME.fullmatch(text)
    seconds = float(match["number"]) * _UNITS[match["unit"]] if match else -1.0
    if not 0 <= seconds <= MAX_S:
        raise errors.OpPrereqError(
            f"time: wanted a number with s, m, h or d, at most 30d, found {text!r}",
            ecodes.ECODE_INVAL,
        )
    return seconds


def _long_form(words: list[str]) -> list[str]:
    """Return the words of an event for those of a shorter form."""
    if not words or words[0] not in _SHORT:
        return words
    if len(words) == _SHORT_WORDS:
        verb, *more = _SHORT[words[0]]
        return [verb, words[1], *more]
    if words[0] in VERBS:
        return words
    raise errors.OpPrereqError(
        f"event {' '.join(words)!r}: wanted 1 argument; its form is: {words[0]} NODE",
        ecodes.ECODE_INVAL,
    )


def parse_event(text: str, *, has_time: bool = True) -> Event:
    """Return an event; without a time it happens at once.

    Raises:
        OpPrereqError: it is malformed.
    """
    words = text.split()
    at_s = 0.0
    if words and (has_time or words[0][:1].isdigit()):
        at_s = duration(words.pop(0))
    words = _long_form(words)
    if not words or words[0] not in VERBS:
        wanted = ", ".join({**VERBS, **_SHORT})
        shown = repr(words[0]) if words else "nothing"
        raise errors.OpPrereqError(
            f"event {text!r}: wanted one of {wanted}, found {shown}",
            ecodes.ECODE_INVAL,
        )
    verb, *args = words
    problem = VERBS[verb].check(args)
    if problem:
        usage = f"{verb} {VERBS[verb].usage}".strip()
        raise errors.OpPrereqError(
            f"event {text!r}: {problem}; its form is: {usage}", ecodes.ECODE_INVAL
        )
    return Event(at_s, verb, tuple(args))


def parse_events(text: str) -> list[Event]:
    """Return the events of a file, by time.

    Raises:
        OpPrereqError: a line is malformed.
    """
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return sorted(
        (parse_event(line) for line in lines if line), key=lambda event: event.at_s
    )


def with_names(event: Event, names: Mapping[str, Mapping[str, str]]) -> Event:
    """Return an event with the whole names of its objects.

    Args:
        event: names objects as people do.
        names: kind -> name, first part or UUID of an object -> its name.
    """
    args = list(event.args)
    for place, kind, name in _objects(event):
        head, colon, _name = args[place].partition(":")
        prefix = head + colon if event.verb in _ON_TAGS else ""
        args[place] = prefix + names.get(kind, {}).get(name, name)
    return dataclasses.replace(event, args=tuple(args))


def _objects(event: Event) -> Iterator[tuple[int, str, str]]:
    """Yield the place, the kind and the name of each object in an event."""
    if event.verb in ON_NODES:
        yield 0, "node", event.args[0]
    if event.verb in ON_INSTANCES:
        yield 0, "instance", event.args[0]
    if event.verb == "cut":
        yield from (
            (place, "node", name) for place, name in enumerate(event.args) if place > 1
        )
    if event.verb in _ON_TAGS:
        kind, _colon, name = event.args[0].partition(":")
        if kind != "cluster":
            yield 0, kind, name


def check_names(events: Sequence[Event], known: Mapping[str, Collection[str]]) -> None:
    """Check that events are about objects that exist.

    Args:
        events: to check.
        known: kind -> names of all objects.

    Raises:
        OpPrereqError: one does not.
    """
    for event in events:
        if event.verb == "freeze" and len(event.args) == 1:
            _check_reason(event.args[0], known.get("node", ()))
        for _place, kind, name in _objects(event):
            names = known.get(kind, ())
            if name in names:
                continue
            first = sorted(names)[:_SHOWN]
            shown = ", ".join(first) + (", ..." if len(names) > _SHOWN else "")
            raise errors.OpPrereqError(
                f"event {str(event)!r}: {name} is no {kind} of the cluster; wanted one"
                f" of {shown or 'none: there are none'}",
                ecodes.ECODE_NOENT,
            )


def _check_reason(reason: str, nodes: Collection[str]) -> None:
    """Refuse a reason of a freeze that is the name of a node.

    Raises:
        OpPrereqError: a freeze of the node was meant.
    """
    if any(name == reason or name.startswith(f"{reason}.") for name in nodes):
        raise errors.OpPrereqError(
            f"event 'freeze {reason}': wanted a reason for which all automatons rest,"
            f" found the name of a node; 'freeze-node {reason}' freezes a node",
            ecodes.ECODE_INVAL,
        )
