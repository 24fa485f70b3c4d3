"""Conditional requests: tags of the states of objects, and headers that compare them.

The tag of an object is ``"UUID:SERIAL:DIGEST"``. UUID and serial are the state of its
configuration; the digest is that of the whole answer, which has live values, too. The
header ``If-Match`` of a change compares the state alone, else free memory would be a
conflict, and tags without a digest are accepted. ``If-None-Match`` compares whole tags.
The form of the headers is that of RFC 9110, sections 8.8.3 and 13.1. A conflict has the
status 409, not 412, as it is found in part by the job.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from ganeti.daemons.rapi.problems import Refused, bad_request
from ganeti.protocols.rapi import row_parts
from ganeti.protocols.rapi.model import Request, Resource

#: Header with the tag of an object.
ETAG: Final = "ETag"
#: An element of a list of tags: whether it is weak, and its text; may be empty.
_ELEMENT: Final = re.compile(
    r'(?:(W/)?"([\x21\x23-\x7e\x80-\xff]*)")?[ \t]*(?:,[ \t]*|\Z)'
)
_STATE: Final = re.compile(r"([0-9a-f-]{36}):([0-9]{1,18})(?::[0-9a-f]*)?")
_DIGEST_BYTES: Final = 8
#: Fields of objects that a refusal may show, by kind.
_FIELDS: Final[Mapping[str, tuple[str, ...]]] = {
    "group": row_parts.GROUP,
    "instance": row_parts.INSTANCE,
    "network": row_parts.NETWORK,
    "node": row_parts.NODE,
}
#: Parameter of a request -> fields of the object, where their names differ.
_SHOWN: Final[Mapping[str, tuple[str, ...]]] = {
    "disks": ("disk.uuids", "disk.names", "disk.sizes"),
    "new_name": ("name",),
    "nics": ("nic.uuids", "nic.names", "nic.macs", "nic.ips", "nic.links"),
    "os_name": ("os",),
    "osparams": ("custom_osparams",),
    "secondary_ip": ("sip",),
}

#: Returns some fields of the object that a request changes.
Find = Callable[[Sequence[str]], Mapping[str, Any]]


def tag_of(state: Mapping[str, Any], answer: bytes) -> str:
    """Return the tag of an object that is answered in this form."""
    digest = hashlib.blake2b(answer, digest_size=_DIGEST_BYTES).hexdigest()
    return f'"{state.get("uuid")}:{state.get("serial_no")}:{digest}"'


def is_known(header: str, tag: str) -> bool:
    """Return whether a client has what it asks for, by its header ``If-None-Match``."""
    if header.strip(" \t") == "*":
        return True
    try:
        return any(f'"{text}"' == tag for _is_weak, text in _tags(header))
    except ValueError:
        return False


def _tags(header: str) -> Iterator[tuple[bool, str]]:
    """Yield whether each tag of a list is weak, and its text.

    Raises:
        ValueError: it is no such list.
    """
    position, header = 0, header.strip(" \t")
    while position < len(header):
        element = _ELEMENT.match(header, position)
        if element is None:
            raise ValueError(header)
        if element[2] is not None:
            yield element[1] is not None, element[2]
        position = element.end()


def _states(header: str) -> list[tuple[str, int]] | None:
    """Return UUIDs and serials of a header ``If-Match``, None for any state.

    Weak tags and those of others are no state of an object.
    """
    if header.strip(" \t") == "*":
        return None
    try:
        listed = list(_tags(header))
    except ValueError:
        listed = []
    if not listed:
        raise bad_request(
            'If-Match: wanted tags as in the header ETag, such as "UUID:SERIAL", with'
            f" commas between them, or *, found {header[:100]!a}"
        )
    states = [_STATE.fullmatch(text) for is_weak, text in listed if not is_weak]
    return [(state[1], int(state[2])) for state in states if state is not None]


def guarded(
    resource: Resource,
    request: Request,
    ops: list[dict[str, Any]],
    header: str,
    find: Find,
) -> list[dict[str, Any]]:
    """Return the opcodes of a request with a header ``If-Match``.

    The first one has the serial, which the job compares again when it has its locks,
    and when it commits.

    Args:
        resource: one that changes an object, see `Resource.target`.
        request: see `Request`.
        ops: its opcodes.
        header: its content.
        find: asks the master daemon for the object; refuses an unknown one.

    Raises:
        Refused: 400 for a malformed header, 409 if the object is in another state.
    """
    wanted = _states(header)
    if ops[0].get("if_serial"):
        raise bad_request(
            "give either the header If-Match or the parameter 'if_serial', not both"
        )
    asked = _asked(resource, request, ops[0])
    present = find(["name", "uuid", "serial_no", *asked])
    state = present["uuid"], present["serial_no"]
    if wanted is None:
        return ops
    if state not in wanted:
        raise _conflict(resource, wanted, present, asked)
    return [{**ops[0], "if_serial": dict([state])}, *ops[1:]]


def _asked(
    resource: Resource, request: Request, op: Mapping[str, Any]
) -> dict[str, Any]:
    """Return what a request gives of an object, by the names of its fields."""
    job, body = resource.job, request.body
    assert job is not None
    given = {**op, **(body if isinstance(body, dict) else {})}
    known = _FIELDS.get(resource.target)
    return {
        field: value
        for name, value in given.items()
        if name not in {*job.path, *job.constants}
        for field in _SHOWN.get(name, (name,))
        if known is None or field in known
    }


def _conflict(
    resource: Resource,
    wanted: list[tuple[str, int]],
    present: Mapping[str, Any],
    asked: Mapping[str, Any],
) -> Refused:
    """Return the refusal of a change of an object that is in another state."""
    uuid, serial = present["uuid"], present["serial_no"]
    serials = [number for each, number in wanted if each == uuid]
    subject = f"{resource.target} {present['name']}"
    if serials:
        listed = " or ".join(map(str, serials))
        text = f"was changed since it was read: wanted serial {listed}, found {serial}"
    else:
        text = f"If-Match has no state of this object, which is {uuid}:{serial}"
    values = {
        name: _part(present[name], value)
        for name, value in asked.items()
        if name in present
    }
    more = {"uuid": uuid, "serial": serial, "wanted": serials, "present": values}
    return Refused(HTTPStatus.CONFLICT, f"{subject}: {text}", more={"conflict": more})


def _part(value: Any, asked: Any) -> Any:
    """Return the members of a value that a request gives."""
    if isinstance(value, Mapping) and isinstance(asked, Mapping):
        return {name: value.get(name) for name in asked}
    return value
