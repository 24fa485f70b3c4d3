"""LUXI method of events."""

from typing import Final

from ganeti.base.constants import misc
from ganeti.base.constants.protocols.events import Kind
from ganeti.daemons.masterd.deps import MasterDeps
from ganeti.daemons.masterd.methods.calls import Later, Malformed, method
from ganeti.decisions import events

#: Methods whose answers wait for events.
WAITING: Final = frozenset({"WaitForEvents"})


@method("WaitForEvents")
def wait_for_events(
    deps: MasterDeps,
    since: str | None = None,
    kinds: list[Kind] | None = None,
    timeout_s: float = float(misc.LUXI_WFJC_TIMEOUT),
) -> Later:
    """Wait until something happens after a position; an addition to Ganeti."""
    try:
        position = None if since is None else events.parse_position(since)
    except ValueError as err:
        raise Malformed(f"since: {err}") from err
    return Later(deps.events.wait(position, kinds or (), timeout_s), can_cancel=True)
