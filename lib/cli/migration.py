"""Options that say how to migrate."""

from ganeti import errors
from ganeti.cli.context import CommandContext
from ganeti.constants import ecodes


def migration_mode(ctx: CommandContext) -> str | None:
    """Return the migration mode that was asked for, None for the hypervisor's own.

    Raises:
        OpPrereqError: both options that choose it.
    """
    if ctx.opts.live:
        mode: str | None = ctx.opts.migration_mode
        return mode
    if ctx.opts.migration_mode is not None:
        raise errors.OpPrereqError(
            "--non-live and --migration-mode exclude each other", ecodes.ECODE_INVAL
        )
    return "non-live"
