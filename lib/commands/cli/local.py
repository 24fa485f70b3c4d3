"""This node without the master daemon: its ssconf files, and its lock for commands."""

import contextlib
from collections.abc import Iterator

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.errors import refusal
from ganeti.base.pathutils import Paths
from ganeti.commands.cli.context import CommandContext


def read_ssconf(paths: Paths, key: str) -> str:
    """Return the text of one ssconf value without the final newline.

    Raises:
        OpPrereqError: this node is not part of a cluster.
    """
    try:
        with open(paths.data(f"ssconf_{key}"), encoding="utf-8") as stream:
            return stream.read().removesuffix("\n")
    except FileNotFoundError as err:
        raise refusal(
            "cluster not initialized, or this machine is not part of one"
            f" (no ssconf file for {key})"
        ) from err
    except OSError as err:
        raise errors.OpPrereqError(
            f"cannot read {err.filename}: {err.strerror}", ecodes.ECODE_ENVIRON
        ) from err


def master_node(paths: Paths) -> str:
    """Return the master's name from this node's ssconf files.

    Raises:
        OpPrereqError: this node is not part of a cluster.
    """
    return read_ssconf(paths, "master_node")


def check_is_master(paths: Paths) -> None:
    """Refuse to run on any node but the master.

    Raises:
        OpPrereqError: this node is not part of a cluster, or not its master.
    """
    master = master_node(paths)
    if master != paths.hostname and master.split(".")[0] != paths.hostname:
        raise refusal(
            f"this is not the master node: please connect to {master!r} and run the"
            " command there"
        )


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
