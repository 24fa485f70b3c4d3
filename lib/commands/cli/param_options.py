"""Options of several commands that set opcode parameters."""

from typing import Any

from ganeti.base import errors
from ganeti.base.errors import refusal
from ganeti.commands.cli.context import CommandContext


def disk_state(given: list[tuple[str, Any]]) -> dict[str, Any]:
    """Parse ``STORAGETYPE/IDENT:key=value,...`` into type -> ident -> parameters.

    Raises:
        OpPrereqError: the slash is missing.
    """
    state: dict[str, Any] = {}
    for path, parameters in given:
        kind, slash, ident = path.partition("/")
        if not slash:
            raise refusal(f"disk state: wanted STORAGETYPE/IDENT, found {path!r}")
        state.setdefault(kind, {})[ident] = parameters
    return state


def by_ident(given: list[tuple[str, Any]], what: str) -> dict[str, Any]:
    """Parse repeated ``IDENT:key=value,...`` into identifier -> parameters.

    Raises:
        OpPrereqError: the form that removes an identifier.
    """
    for ident, parameters in given:
        if not isinstance(parameters, dict):
            raise refusal(f"{what} {ident}: parameters are missing")
    return dict(given)


def nic_parameters(given: dict[str, Any]) -> dict[str, Any]:
    """Return NIC parameters of a cluster or a connection, all of them known.

    Raises:
        TypeEnforcementError: a name is unknown.
    """
    from ganeti.base.constants.parameters import params
    from ganeti.base.text import messages

    for name in given:
        if name not in params.NIC:
            known = messages.known_names(name, params.NIC)
            raise errors.TypeEnforcementError(
                f"NIC parameter {name}: unknown; {known};"
                " 'gnt-cluster modify --help-parameters' explains all"
            )
    return given


def split_words(text: str | None) -> list[str] | None:
    """Return the parts of a comma-separated list; None for None."""
    if text is None:
        return None
    return text.split(",") if text else []


def listed(text: str | None) -> list[str]:
    """Return the items of a list with commas; empty items are left out."""
    return [item for part in (text or "").split(",") if (item := part.strip())]


def addresses(text: str | None) -> list[str] | None:
    """Return addresses of an option, None if it was not given."""
    return None if text is None else listed(text)


def uid_ranges(text: str | None) -> list[list[int]] | None:
    """Parse a comma-separated list of uids and ranges into ``[low, high]`` pairs.

    Raises:
        OpPrereqError: a part is neither a uid nor LOW-HIGH.
    """
    if text is None:
        return None
    ranges = []
    for part in split_words(text) or []:
        low, dash, high = part.partition("-")
        try:
            ranges.append([int(low), int(high if dash else low)])
        except ValueError as err:
            raise refusal(
                f"uid pool: wanted a uid or LOW-HIGH, found {part!r}"
            ) from err
    return ranges


def report_changes(ctx: Any, what: str, changes: list[Any]) -> None:
    """Print the changes that an opcode made, with names padded to five characters."""
    if not changes:
        return
    ctx.out(f"Modified {what}")
    for name, value in changes:
        ctx.out(f" - {name:<5} -> {value}")


def migration_mode(ctx: CommandContext) -> str | None:
    """Return the requested migration mode, None for the hypervisor's default.

    Raises:
        OpPrereqError: both options that choose the mode are given.
    """
    if ctx.opts.live:
        mode: str | None = ctx.opts.migration_mode
        return mode
    if ctx.opts.migration_mode is not None:
        raise refusal("--non-live and --migration-mode exclude each other")
    return "non-live"
