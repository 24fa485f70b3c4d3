"""``gnt-cluster sessions``: who is signed in to the remote API, and the end of that."""

from typing import Any, Final

from ganeti.base.constants import ecodes
from ganeti.base.errors import refusal
from ganeti.base.text.control_chars import escape
from ganeti.commands.cli.app import CliError
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing, table

_TITLES: Final = ("Session", "User", "Address", "Signed in", "Last used", "Ends")


def sessions(ctx: CommandContext) -> None:
    """List sessions, or revoke some."""
    verb, *ids = ctx.args
    if ctx.opts.json and verb != "list":
        raise CliError(f"sessions {verb}: --json is an option of sessions list")
    if verb == "list":
        _list(ctx, ids)
    elif verb == "revoke":
        _revoke(ctx, ids)
    else:
        raise refusal(f"sessions: wanted list or revoke, found {verb!r}")


def _list(ctx: CommandContext, ids: list[str]) -> None:
    listed = ctx.call("QuerySessions", ctx.opts.user)
    listed = [each for each in listed if not ids or each["id"] in ids]
    _check_known(ids, listed)
    if ctx.opts.json:
        listing.print_json(ctx, listed)
        return
    columns = [table.Column(title) for title in _TITLES]
    rows = [_cells(each) for each in listed]
    listing.print_table(ctx, columns, rows, pad_header=False)


def _cells(session: dict[str, Any]) -> tuple[str, ...]:
    # Users are names of a file, and an address is what the remote API has seen.
    texts = (escape(session[name]) for name in ("id", "user", "address"))
    times = (session[name] for name in ("created", "used"))
    ends = min(session["idle_end"], session["end"])
    return (*texts, *(table.timestamp(each) for each in (*times, ends)))


def _revoke(ctx: CommandContext, ids: list[str]) -> None:
    user = ctx.opts.user
    if not ids and user is None:
        raise refusal("sessions revoke: wanted ids of sessions, or --user NAME")
    if ids:
        _check_known(ids, ctx.call("QuerySessions", user))
    gone = ctx.call("RevokeSessions", ids or None, user)
    shown = (f"{escape(each['id'])} of {escape(each['user'])}" for each in gone)
    ctx.out(f"Revoked: {', '.join(shown) or 'no session'}.")


def _check_known(ids: list[str], listed: list[dict[str, Any]]) -> None:
    """Refuse ids of sessions that are over, or of other users.

    Raises:
        OpPrereqError: nothing was changed.
    """
    known = {each["id"] for each in listed}
    for each in ids:
        if each not in known:
            raise refusal(
                f"session {each!r}: no such session; 'gnt-cluster sessions list' shows"
                " all",
                ecodes.ECODE_NOENT,
            )
