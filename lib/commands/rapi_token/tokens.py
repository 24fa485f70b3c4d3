"""Commands on the users file of the remote API.

The file of the master counts; the remote API reads it again when it changes. After a
change a job copies it to the other master candidates, so that a failover keeps it.
"""

import contextlib
import secrets
from collections.abc import Callable, Iterator
from typing import Final

from ganeti.base import daemon_users, errors
from ganeti.base.constants import ecodes, exitcodes
from ganeti.base.errors import refusal
from ganeti.base.filesystem import files
from ganeti.base.text import units
from ganeti.commands.cli import local, prompts
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing, table
from ganeti.commands.cli.waiting import jobs
from ganeti.daemons.rapi import users
from ganeti.protocols.rapi import model

_MODE: Final = 0o640
_MAX_SIZE: Final = 16 << 20
#: Seconds to wait for another run of this program.
_TURN_S: Final = 30.0
_SALT_BYTES: Final = 16
_TOKEN_BYTES: Final = 32
#: Rights on all paths.
_WORDS: Final = (model.READ, model.WRITE, model.ROOT)
_TITLES: Final = ("Name", "Kind", "State", "Expires", "Rights")


def add(ctx: CommandContext) -> None:
    """Create a token, and print it."""
    [name] = ctx.args
    expires = _end(ctx)
    token = secrets.token_hex(_TOKEN_BYTES)

    def change(content: str) -> str:
        present = _find(content, name, ctx)
        if present is not None and not ctx.opts.replace:
            raise refusal(
                f"user {name!r}: exists already ({present.kind}, {present.state}); give"
                " --replace, or another name",
                ecodes.ECODE_EXISTS,
            )
        rights = _rights(ctx, present)
        return users.with_user(
            content, name, users.format_token(token, expires), rights
        )

    _change(ctx, change)
    _note(ctx, "add a token", [name])
    # Nobody has the token if its line could not be written.
    ctx.out(token)
    until = "" if expires is None else f", valid until {table.timestamp(expires)}"
    ctx.err(
        f"Token of {name}{until}. It is shown this once; send it as"
        " 'Authorization: Bearer TOKEN'."
    )
    _distribute(ctx)


def set_password(ctx: CommandContext) -> None:
    """Create a user with a password, or change the password."""
    [name] = ctx.args
    with _as_refusal():
        users.check_name(name)
    password = _ask_password(ctx, name)
    salt = secrets.token_bytes(_SALT_BYTES)

    def change(content: str) -> str:
        present = _find(content, name, ctx)
        return users.with_user(
            content, name, users.format_scrypt(password, salt), _rights(ctx, present)
        )

    _change(ctx, change)
    _note(ctx, "set a password", [name])
    _distribute(ctx)


def remove(ctx: CommandContext) -> int:
    """Remove users and tokens."""
    if not ctx.args and not ctx.opts.expired:
        raise refusal("wanted names of users, or --expired")
    removed: list[str] = []

    def change(content: str) -> str:
        entries = users.entries(content, ctx.effects.now())
        known = {entry.name for entry in entries}
        for name in ctx.args:
            if name not in known:
                raise refusal(
                    f"user {name!r}: not in {_path(ctx)}; 'gnt-rapi-token list' shows"
                    " all",
                    ecodes.ECODE_NOENT,
                )
        removed.extend(ctx.args)
        if ctx.opts.expired:
            removed.extend(e.name for e in entries if e.state == "expired")
        return users.without(content, removed)

    _change(ctx, change)
    ctx.err(f"Removed: {', '.join(removed) or 'nobody'}.")
    if removed:
        _note(ctx, "remove", removed)
        _distribute(ctx)
    return exitcodes.EXIT_SUCCESS


def list_users(ctx: CommandContext) -> None:
    """List users, tokens and roles."""
    local.check_is_master(ctx.paths)
    entries = users.entries(_read(ctx), ctx.effects.now())
    if ctx.opts.json:
        fields = ("name", "kind", "state", "expires")
        listing.print_json(
            ctx,
            [
                {name: getattr(e, name) for name in fields} | {"rights": e.options}
                for e in entries
            ],
        )
        return
    rows = [
        (
            entry.name,
            entry.kind,
            entry.state,
            "-" if entry.expires is None else table.timestamp(entry.expires),
            entry.options or "-",
        )
        for entry in entries
    ]
    columns = [table.Column(title) for title in _TITLES]
    listing.print_table(ctx, columns, rows, pad_header=False)


def _path(ctx: CommandContext) -> str:
    return ctx.paths.data("rapi/users")


def _read(ctx: CommandContext) -> str:
    """Return the file's text, empty without a file.

    Raises:
        OpPrereqError: the file cannot be read.
    """
    try:
        return files.read_file(_path(ctx), max_size=_MAX_SIZE).decode()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as err:
        reason = getattr(err, "strerror", None) or "is not text"
        raise refusal(f"{_path(ctx)}: {reason}", ecodes.ECODE_ENVIRON) from err


def _change(ctx: CommandContext, change: Callable[[str], str]) -> None:
    """Replace the file's text, with the lock that other runs of this program take.

    Raises:
        OpPrereqError: this is not the master, the change is refused, or the file cannot
            be written; nothing was changed.
    """
    local.check_is_master(ctx.paths)
    path = _path(ctx)
    try:
        with files.locked(f"{ctx.paths.lock_dir}/rapi-users.lock", timeout_s=_TURN_S):
            with _as_refusal():
                changed = change(_read(ctx))
            group = daemon_users.reader_group(path, ctx.paths)
            files.write_file(
                path, changed, mode=_MODE, gid=-1 if group is None else group
            )
    except OSError as err:
        raise refusal(
            f"{path}: cannot be written: {err.strerror}", ecodes.ECODE_ENVIRON
        ) from err


def _note(ctx: CommandContext, action: str, names: list[str]) -> None:
    """Have the master daemon record the change; a failure is a warning alone."""
    try:
        ctx.call("NoteUserChange", action, names)
    except errors.GenericError as err:
        ctx.err(f"Warning: the change is not in the audit log ({err})")


def _distribute(ctx: CommandContext) -> None:
    """Have the other candidates take the file; a failure is a warning alone."""
    if ctx.opts.no_redist:
        return
    operation = jobs.with_generic(ctx, jobs.op("OP_CLUSTER_REDIST_CONF"))
    try:
        jobs.run_job(ctx, [operation])
    except errors.GenericError as err:
        ctx.err(
            f"Warning: {_path(ctx)} was changed, but not copied to the other master"
            f" candidates ({err}): run 'gnt-cluster redist-conf', or a failover brings"
            " the old users back"
        )


def _find(content: str, name: str, ctx: CommandContext) -> users.Entry | None:
    for entry in users.entries(content, ctx.effects.now()):
        if entry.name == name:
            return entry
    return None


def _rights(ctx: CommandContext, present: users.Entry | None) -> str:
    """Return the given options, else those that the name has.

    Raises:
        OpPrereqError: one is not known. The remote API ignores such words in the file,
            which may be of another release; a person has mistyped.
    """
    if ctx.opts.rights is not None:
        given = str(ctx.opts.rights)
        for word in map(str.strip, given.split(",")):
            if word and ":" not in word and word[0] != "@" and word not in _WORDS:
                raise refusal(
                    f"--rights: wanted {', '.join(_WORDS)}, RIGHT:/PATH or @ROLE, found"
                    f" {word!r:.100}"
                )
        return given
    return present.options if present is not None else ""


def _end(ctx: CommandContext) -> int | None:
    """Return the time at which the token ends, seconds since 1970."""
    if ctx.opts.expires == "never":
        return None
    seconds = units.parse_duration(ctx.opts.expires)
    if not seconds:
        raise refusal("--expires: wanted more than no time at all, found 0")
    return int(ctx.effects.now()) + seconds


def _ask_password(ctx: CommandContext, name: str) -> str:
    """Return the new password: typed twice, or the first line of standard input.

    Raises:
        OpPrereqError: none was given, or the two differ.
    """
    if not ctx.effects.stdin.isatty():
        first = ctx.effects.stdin.readline().rstrip("\r\n")
    else:
        first = prompts.password(ctx, name) or ""
        if first and first != prompts.password(ctx, f"{name}, again"):
            raise refusal(f"user {name!r}: the two passwords differ")
    if not first:
        raise refusal(
            f"user {name!r}: wanted a password at the terminal, or as the first line of"
            " standard input"
        )
    return first


@contextlib.contextmanager
def _as_refusal() -> Iterator[None]:
    """Turn the pure functions' refusals into errors of the command line."""
    try:
        yield
    except ValueError as err:
        raise refusal(str(err)) from err
