"""Reservations: forthcoming instances and their terms.

A forthcoming instance is a record whose resources count as if it existed; nothing of it
is on any node. `ganeti.operations.instance.capacity` keeps its resources free. Source:
design "Instance Reservations".
"""

from typing import Any, Final

from ganeti.base.constants import disks, misc
from ganeti.base.errors import refusal
from ganeti.model import objects, opcodes
from ganeti.model.objects import params

#: Longest text for the owner of a reservation, in characters.
_MAX_OWNER: Final = 256
#: Backend parameters that take resources. A reservation has its own values, so that a
#: change of the defaults does not change what is reserved.
_SIZES: Final = ("maxmem", "minmem", "vcpus", "spindle_use")
Terms = opcodes.InstanceCreate | opcodes.InstanceSetParams


def has_terms(op: Terms) -> bool:
    """Return whether a request states terms of a reservation."""
    given = (op.expires, op.owner, op.reservation_priority)
    return any(value is not None for value in given)


def check_terms(op: Terms, what: str) -> None:
    """Refuse terms that cannot be recorded.

    Raises:
        OpPrereqError: the owner's text is too long or not printable, or the time is too
            long.
    """
    owner = op.owner or ""
    if len(owner) > _MAX_OWNER or not owner.isprintable():
        raise refusal(
            f"{what}: owner: wanted at most {_MAX_OWNER} printable characters, found"
            f" {owner[:_MAX_OWNER]!r}"
        )
    if (op.expires or 0) > misc.LONGEST_S:
        raise refusal(
            f"{what}: expires: wanted at most {misc.LONGEST_S} seconds, found"
            f" {op.expires}"
        )


def terms(
    op: Terms, now: float, old: objects.Reservation | None = None
) -> objects.Reservation:
    """Return the terms after a request.

    Args:
        op: the request.
        now: seconds since 1970.
        old: the present terms, of which those stay that the request does not state.
    """
    current = old or objects.Reservation()
    changes: dict[str, Any] = {}
    if op.expires is not None:
        # 0 stands for a reservation without an end; see `has_expired`.
        changes["expires"] = now + op.expires if op.expires else 0.0
    if op.owner is not None:
        changes["owner"] = op.owner
    if op.reservation_priority is not None:
        changes["priority"] = op.reservation_priority
    if op.disk_template:
        changes["disk_template"] = op.disk_template
    return current.replace(**changes)


def first_template(instance: objects.Instance) -> str:
    """Return the template wanted for the first disk of a reservation, or nothing.

    A reservation without disks has one node, so no disk can be mirrored.
    """
    if not instance.forthcoming or instance.reservation is None:
        return ""
    wanted = instance.reservation.disk_template
    return "" if wanted in disks.DTS_INT_MIRROR else wanted


def pinned(snapshot: objects.Snapshot, instance: objects.Instance) -> objects.Instance:
    """Return a forthcoming instance whose sizes do not depend on the defaults."""
    filled = params.fill_beparams(snapshot, instance)
    sizes = {name: filled[name] for name in _SIZES}
    return instance.replace(beparams={**instance.beparams, **sizes})


def has_expired(instance: objects.Instance, now: float) -> bool:
    """Return whether a reservation may be released."""
    if not instance.forthcoming or instance.reservation is None:
        return False
    return 0 < instance.reservation.expires <= now
