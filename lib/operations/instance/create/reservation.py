"""Reservations: forthcoming instances, their terms, and requests that are repeated.

A forthcoming instance is a record whose resources count as if it existed; nothing of it
is on any node. `ganeti.operations.instance.capacity` keeps its resources free. Source:
design "Instance Reservations".
"""

import hashlib
from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants import disks as disk_constants
from ganeti.base.constants import ecodes, timeouts
from ganeti.master import jqueue
from ganeti.model import objects, opcodes
from ganeti.model.objects import params
from ganeti.operations import base

#: Longest text for the owner of a reservation, in characters.
_MAX_OWNER: Final = 256
#: Backend parameters that take resources. A reservation has its own values, so that a
#: change of the defaults does not change what is reserved.
_SIZES: Final = ("maxmem", "minmem", "vcpus", "spindle_use")
#: Parameters of a creation that do not change the instance that results.
_UNRELATED: Final = frozenset(
    {
        *("OP_ID", "comment", "debug_level", "depends", "dry_run", "priority"),
        *("reason", "request_key", "opportunistic_locking", "wait_for_sync"),
        *("osparams_private", "osparams_secret"),
    }
)
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
        raise errors.OpPrereqError(
            f"{what}: owner: wanted at most {_MAX_OWNER} printable characters, found"
            f" {owner[:_MAX_OWNER]!r}",
            ecodes.ECODE_INVAL,
        )
    if (op.expires or 0) > timeouts.LONGEST_S:
        raise errors.OpPrereqError(
            f"{what}: expires: wanted at most {timeouts.LONGEST_S} seconds, found"
            f" {op.expires}",
            ecodes.ECODE_INVAL,
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
    return "" if wanted in disk_constants.DTS_INT_MIRROR else wanted


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


# Requests with a key
def fingerprint(op: opcodes.InstanceCreate) -> str:
    """Return a digest of the parameters that determine the instance."""
    given = {
        name: value
        for name, value in opcodes.encode(op).items()
        if name not in _UNRELATED
    }
    if not given.get("no_nics"):
        # Requests of releases without this parameter have the digests without it.
        given.pop("no_nics", None)
    data = msgspec.json.encode(given, order="deterministic")
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def request_of(op: opcodes.InstanceCreate) -> objects.CreationRequest | None:
    """Return the record of a request, None if it has no key."""
    if op.request_key is None:
        return None
    return objects.CreationRequest(key=op.request_key, digest=fingerprint(op))


def find_repeated(
    ctx: base.Context, op: opcodes.InstanceCreate
) -> objects.Instance | None:
    """Return the instance that an earlier request with the same key made.

    Otherwise the key is reserved until the opcode ends.

    Raises:
        LockTimeout: another job is creating it; try again later.
        OpPrereqError: the key belongs to a request with other parameters.
    """
    if op.request_key is None:
        return None
    try:
        ctx.config.reserve(ctx.owner, "creation", op.request_key)
    except errors.ReservationError as err:
        raise jqueue.LockTimeout(str(err)) from err
    uuid = ctx.snapshot.request_owner(op.request_key)
    if uuid is None:
        return None
    instance = ctx.snapshot.instances[uuid]
    if instance.request is None or instance.request.digest != fingerprint(op):
        raise errors.OpPrereqError(
            f"request_key {op.request_key}: instance {instance.name} was made by a"
            " request with this key and other parameters; use another key",
            ecodes.ECODE_NOTUNIQUE,
        )
    return instance
