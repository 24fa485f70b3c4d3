"""Commands of which at most one runs on a node."""

import contextlib
from collections.abc import Iterator

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.commands.cli.context import CommandContext


@contextlib.contextmanager
def alone(ctx: CommandContext, lock: str, problem: str) -> Iterator[None]:
    """Keep other commands that take a lock out.

    Args:
        ctx: the command.
        lock: name of the lock's file.
        problem: text of the error if another command has the lock.

    Raises:
        OpPrereqError: one runs.
    """
    from ganeti.base.filesystem import files

    with contextlib.ExitStack() as stack:
        try:
            path = f"{ctx.paths.lock_dir}/{lock}"
            stack.enter_context(files.locked(path, timeout_s=0))
        except errors.LockError as err:
            raise errors.OpPrereqError(problem, ecodes.ECODE_STATE) from err
        yield
