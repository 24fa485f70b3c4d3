"""LUXI methods that set job filters and the watcher's pause."""

import uuid
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes, misc
from ganeti.daemons.masterd import cluster_facts
from ganeti.daemons.masterd.deps import MasterDeps
from ganeti.daemons.masterd.methods.calls import Later, Malformed, method
from ganeti.decisions.jobs import filters
from ganeti.model import objects, qlang
from ganeti.protocols.rpc import calls

#: Fields that predicates may use; the third kind may use any field of the opcode.
_PREDICATES: Final = {
    "jobid": frozenset({"id"}),
    "reason": frozenset({"source", "reason", "timestamp"}),
    "opcode": None,
}
#: Source of the entry that is added to the reason of a rule.
_REASON_SOURCE: Final = "gnt:daemon:luxid"
_OWNER: Final = "luxi"
#: Filter rules: each is evaluated for each job that may start.
MAX_RULES: Final = 500
#: The request that waits for a commit, as the subject of a sentence.
_CHANGE: Final = "The change of the job filters"


def _wrong(text: str) -> errors.OpPrereqError:
    return errors.OpPrereqError(f"job filter: {text}", ecodes.ECODE_INVAL)


def _check_action(action: Any) -> None:
    if not filters.is_action(action):
        raise _wrong(
            f"action: wanted one of {', '.join(filters.ACTIONS)} or"
            f" [{filters.RATE_LIMIT}, n], found {action!r}"
        )


def _check_predicate(predicate: Any) -> None:
    if not isinstance(predicate, list) or len(predicate) != 2:
        raise _wrong(f"predicate: wanted [kind, filter], found {predicate!r}")
    kind, qfilter = predicate
    if not isinstance(kind, str) or kind not in _PREDICATES:
        raise _wrong(f"predicate: {kind!r} is not a kind of predicate")
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
        raise Malformed(f"{text!r} is not a UUID") from err


@method("ReplaceFilter")
def replace_filter(
    deps: MasterDeps,
    *,
    key: str | None,
    priority: int,
    predicates: list[Any],
    action: Any,
    reason: list[tuple[str, str, int]],
) -> Later:
    """Add or replace a job filter; return its UUID."""
    if key is not None:
        _check_uuid(key)
    if priority < 0:
        raise _wrong(f"priority: wanted 0 or more, found {priority}")
    for predicate in predicates:
        _check_predicate(predicate)
    try:
        filters.check_together([expression for _kind, expression in predicates])
    except errors.ParseError as err:
        raise _wrong(f"predicates: {err}") from err
    _check_action(action)
    now_ns = round(deps.clock.time() * 1_000_000_000)
    rule = objects.FilterRule(
        uuid=key or str(uuid.uuid4()),
        watermark=deps.queue.last_id,
        priority=priority,
        predicates=tuple(predicates),
        action=action,
        reason_trail=(*reason, (_REASON_SOURCE, "", now_ns)),
    )
    return Later(deps.slow.submit(_put, deps, rule), committing=_CHANGE)


def _put(deps: MasterDeps, rule: objects.FilterRule) -> str:
    with deps.config.edit(_OWNER) as edit:
        present = edit.snapshot.filters
        if rule.uuid not in present and len(present) >= MAX_RULES:
            raise _wrong(
                f"filter rules: wanted at most {MAX_RULES}, found {len(present)}"
                " already; remove one with gnt-filter delete"
            )
        edit.put(objects.Update("filters", rule.uuid, rule))
    deps.queue.poke()
    return rule.uuid


@method("DeleteFilter")
def delete_filter(deps: MasterDeps, key: str) -> Later:
    """Remove a job filter."""
    return Later(deps.slow.submit(_delete, deps, key), committing=_CHANGE)


def _delete(deps: MasterDeps, key: str) -> None:
    with deps.config.edit(_OWNER) as edit:
        if key not in edit.snapshot.filters:
            raise errors.GenericError(f"there is no job filter {key}")
        edit.remove("filters", key)
    deps.queue.poke()


@method("NoteUserChange")
def note_user_change(deps: MasterDeps, action: str, names: list[str]) -> None:
    """Record a change of users of the remote API; an addition to Ganeti.

    The audit log has the arguments of every call. The sessions of the users end.
    """
    del action
    deps.sessions.revoke(users=set(names))


@method("SetWatcherPause")
def set_watcher_pause(deps: MasterDeps, until: float | None) -> Later:
    """Pause the watcher until a time; null ends the pause.

    Raises:
        OpPrereqError: the time is too far away; dates end, and so would commands that
            show it.
    """
    latest = deps.clock.time() + misc.LONGEST_S
    if until is not None and not 0 <= until <= latest:
        raise errors.OpPrereqError(
            "pause of the watcher: wanted a time within the next 100 years, found"
            f" {until:.0f} seconds since 1970",
            ecodes.ECODE_INVAL,
        )
    return Later(deps.slow.submit(_pause, deps, until))


def _pause(deps: MasterDeps, until: float | None) -> float | None:
    try:
        cluster_facts.write_watcher_pause(deps.paths, until)
    except OSError as err:
        raise errors.OpExecError(
            f"{cluster_facts.pause_path(deps.paths)}: cannot be written: {err}"
        ) from err
    snapshot = deps.config.snapshot()
    others = [
        node.uuid
        for node in snapshot.nodes.values()
        if node.master_candidate
        and not node.offline
        and node.uuid != snapshot.cluster.master_node
    ]
    # Failures on other nodes are ignored: only the master's own file is decisive.
    if others:
        deps.rpc.call_nodes(others, calls.set_watcher_pause(until))
    return until
