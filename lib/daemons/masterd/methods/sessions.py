"""LUXI methods of sessions of the remote API; additions to Ganeti."""

from typing import Final

import msgspec

from ganeti.daemons.masterd.deps import MasterDeps
from ganeti.daemons.masterd.methods.calls import Later, method
from ganeti.decisions.sessions import SignIn

_NEW: Final = "The new session"
_END: Final = "The end of the sessions"


@method("OpenSession")
def open_session(deps: MasterDeps, new: SignIn) -> Later:
    """Begin a session; return it as `QuerySessions` does."""
    future = deps.slow.submit(deps.sessions.open, new)
    return Later(future, msgspec.to_builtins, committing=_NEW)


@method("UseSession")
def use_session(deps: MasterDeps, digest: str) -> list[str] | None:
    """Note a request with a token; return id, user and seal, null without a session."""
    session = deps.sessions.use(digest)
    return None if session is None else [session.id, session.user, session.seal]


@method("QuerySessions")
def query_sessions(deps: MasterDeps, user: str | None = None) -> list[object]:
    """Return the sessions of a user, or of all, the oldest first."""
    return [msgspec.to_builtins(each) for each in deps.sessions.shown(user)]


@method("QueryLivingSessions")
def query_living_sessions(deps: MasterDeps, ids: list[str]) -> list[str]:
    """Return which of these sessions go on."""
    return deps.sessions.living(ids)


@method("RevokeSessions")
def revoke_sessions(
    deps: MasterDeps,
    ids: list[str] | None,
    user: str | None = None,
    reason: str = "",
) -> Later:
    """End sessions of these ids, of a user, or of both; return them.

    The reason is for the audit log.
    """
    del reason
    users = None if user is None else {user}
    wanted = None if ids is None else set(ids)
    future = deps.sessions.revoke(ids=wanted, users=users)
    return Later(future, msgspec.to_builtins, committing=_END)
