"""Events as users of the remote API get them: which ones, and in which form.

The form is that of server-sent events, see the HTML standard. Users get an event if
they may read the resource that shows the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from ganeti.base.constants.protocols.events import Kind, unknown_kind
from ganeti.daemons.rapi.access import Rights
from ganeti.daemons.rapi.problems import bad_request
from ganeti.decisions.events import parse_position
from ganeti.protocols.rapi import model
from ganeti.protocols.rapi.resource_table import RESOURCES

#: A comment, by which clients and proxies see that the connection lives.
HEARTBEAT: Final = b":\n\n"
_READS: Final = {each.path: each for each in RESOURCES if each.method == "GET"}
#: Kind of event, or else kind of object -> path of the resource that shows it.
_SHOWN_BY: Final = {
    Kind.JOB: "/2/jobs/[job_id]",
    Kind.JOB_LOG: "/2/jobs/[job_id]",
    Kind.JOURNAL: "/2/journal",
    Kind.NODE_DEATH: "/2/maintenance/node-deaths",
    Kind.INCIDENT: "/2/maintenance/incidents",
    Kind.FREEZE: "/2/journal",
}
_OBJECT_SHOWN_BY: Final = {
    "cluster": "/2/info",
    "disk": "/2/instances",
    "filter": "/2/filters/[filter_uuid]",
    "group": "/2/groups/[group_name]",
    "instance": "/2/instances/[instance_name]",
    "network": "/2/networks/[network_name]",
    "node": "/2/nodes/[node_name]",
}

Event = Mapping[str, Any]


class View(NamedTuple):
    """The part that some users see: rights, and kinds of events, empty for all."""

    rights: Rights
    kinds: frozenset[str]

    def shows(self, event: Event) -> bool:
        """Return whether an event is wanted and may be read."""
        if self.kinds and event["kind"] not in self.kinds:
            return False
        path = _SHOWN_BY.get(event["kind"]) or _OBJECT_SHOWN_BY.get(event["object"])
        if path is None:
            return False
        named, variable, _rest = path.partition("[")
        if variable:
            named += model.segment(str(event["name"]))
        return self.rights.allow(_READS[path], [named])

    def texts(self, events: Iterable[tuple[Event, bytes]]) -> bytes:
        """Return the texts of the events that it shows, given each with its text."""
        return b"".join(text for event, text in events if self.shows(event))


def encoded(events: Sequence[Event]) -> list[tuple[Event, bytes]]:
    """Return events with their texts."""
    return [
        (event, _block(event["position"], event["kind"], event)) for event in events
    ]


def position_text(position: str, *, is_lost: bool) -> bytes:
    """Return the text that says: all until here was sent, or some was not."""
    value = {"position": position, "lost": is_lost}
    return _block(position, "position", value)


def heartbeat_at(position: str) -> bytes:
    """Return a comment with the position from which the client can go on."""
    return f":\nid: {position}\n\n".encode()


def _block(position: str, name: str, value: Any) -> bytes:
    head = f"id: {position}\nevent: {name}\ndata: ".encode()
    return b"".join((head, msgspec.json.encode(value), b"\n\n"))


def kinds_of(words: Sequence[str] | None) -> frozenset[str]:
    """Return the kinds of a request, empty for all; refuse others with 400."""
    for word in words or ():
        if word not in set(Kind):
            raise bad_request(f"kinds: {unknown_kind(word)}")
    return frozenset(words or ())


def since_of(text: str | None, where: str) -> str | None:
    """Return the position of a request, None without one; refuse others with 400."""
    if not text:
        return None
    try:
        return str(parse_position(text))
    except ValueError as err:
        raise bad_request(f"{where}: {err}") from None
