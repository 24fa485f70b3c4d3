"""LUXI methods that set job filters and the watcher's pause."""

import uuid
from typing import Any, Final

from ganeti import errors, objects, qlang
from ganeti.constants import ecodes
from ganeti.masterd import facts
from ganeti.masterd.calls import Later, Malformed, World, method

_ACTIONS: Final = ("ACCEPT", "PAUSE", "REJECT", "CONTINUE")
_RATE_LIMIT: Final = "RATE_LIMIT"
#: Fields that predicates may look at; any field of the opcode for the third kind.
_PREDICATES: Final = {
    "jobid": frozenset({"id"}),
    "reason": frozenset({"source", "reason", "timestamp"}),
    "opcode": None,
}
#: Source of the entry that is added to the reason of a rule.
_REASON_SOURCE: Final = "gnt:daemon:luxid"
_OWNER: Final = "luxi"


def _wrong(text: str) -> errors.OpPrereqError:
    return errors.OpPrereqError(f"job filter: {text}", ecodes.ECODE_INVAL)


def _check_action(action: Any) -> None:
    if isinstance(action, str) and action in _ACTIONS:
        return
    is_limit = (
        isinstance(action, list)
        and len(action) == 2
        and action[0] == _RATE_LIMIT
        and isinstance(action[1], int)
        and not isinstance(action[1], bool)
        and action[1] > 0
    )
    if not is_limit:
        raise _wrong(
            f"action: wanted one of {', '.join(_ACTIONS)} or [{_RATE_LIMIT}, n], found"
            f" {action!r}"
        )


def _check_predicate(predicate: Any) -> None:
    if not isinstance(predicate, list) or len(predicate) != 2:
        raise _wrong(f"predicate: wanted [kind, filter], found {predicate!r}")
    kind, qfilter = predicate
    if not isinstance(kind, str) or kind not in _PREDICATES:
        raise _wrong(f"predicate: {kind!r} is no kind of predicate")
    if qfilter is None:
        raise _wrong(f"predicate {kind}: wanted a filter, found null")
    try:
        qlang.check(qfilter)
    except errors.ParseError as err:
        raise _wrong(f"predicate {kind}: {err}") from err
    allowed = _PREDICATES[kind]
    unknown = [] if allowed is None else sorted(qlang.fields_of(qfilter) - allowed)
    if unknown:
        raise _wrong(f"predicate {kind}: unknown field {unknown[0]}")


def _check_uuid(text: str) -> None:
    try:
        uuid.UUID(text)
    except ValueError as err:
        raise Malformed(f"{text!r} is no UUID") from err


@method("ReplaceFilter")
def replace_filter(
    world: World,
    *,
    key: str | None,
    priority: int,
    predicates: list[Any],
    action: Any,
    reason: list[tuple[str, str, int]],
) -> Later:
    """Add a job filter, or replace one; answers its UUID."""
    if key is not None:
        _check_uuid(key)
    if priority < 0:
        raise _wrong(f"priority: wanted 0 or more, found {priority}")
    for predicate in predicates:
        _check_predicate(predicate)
    _check_action(action)
    now_ns = round(world.clock.time() * 1_000_000_000)
    rule = objects.FilterRule(
        uuid=key or str(uuid.uuid4()),
        watermark=world.queue.last_id,
        priority=priority,
        predicates=tuple(predicates),
        action=action,
        reason_trail=(*reason, (_REASON_SOURCE, "", now_ns)),
    )
    return Later(world.quick.submit(_put, world, rule))


def _put(world: World, rule: objects.FilterRule) -> str:
    with world.config.edit(_OWNER) as edit:
        edit.put_filter(rule)
    world.queue.poke()
    return rule.uuid


@method("DeleteFilter")
def delete_filter(world: World, key: str) -> Later:
    """Remove a job filter."""
    return Later(world.quick.submit(_delete, world, key))


def _delete(world: World, key: str) -> None:
    with world.config.edit(_OWNER) as edit:
        if key not in edit.snapshot.filters:
            raise errors.GenericError(f"there is no job filter {key}")
        edit.delete_filter(key)
    world.queue.poke()


@method("SetWatcherPause")
def set_watcher_pause(world: World, until: float | None) -> Later:
    """Let the watcher rest until some time; null ends the rest."""
    return Later(world.slow.submit(_pause, world, until))


def _pause(world: World, until: float | None) -> float | None:
    try:
        facts.write_watcher_pause(world, until)
    except OSError as err:
        raise errors.OpExecError(
            f"{facts.pause_path(world)}: cannot be written: {err}"
        ) from err
    snapshot = world.config.snapshot()
    others = [
        node.uuid
        for node in snapshot.nodes.values()
        if node.master_candidate
        and not node.offline
        and node.uuid != snapshot.cluster.master_node
    ]
    # Failures matter little: the master's own file is what counts.
    if others:
        world.rpc.call("set_watcher_pause", others, [until])
    return until
