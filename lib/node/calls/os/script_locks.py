"""At most one writer to the disks of a stopped instance: OS scripts, helper machines.

A script inherits the lock, so it holds it although the node daemon ends before it. When
the daemon sees the script end, it releases the lock for all processes that the script
has left.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator

from ganeti.base import errors
from ganeti.base.constants.instance import OS_SCRIPT_RUNS
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths
from ganeti.model.objects.filled import InstanceX
from ganeti.node.hypervisor.base import check_instance_name


@contextlib.contextmanager
def held(paths: Paths, instance: InstanceX) -> Iterator[int]:
    """Hold the lock of an instance during a block, which gets its file descriptor.

    Raises:
        OpExecError: a script still holds it, or it cannot be made.
    """
    directory = f"{paths.run_dir}/os-scripts"
    # Of the uuid: after a rename, too.
    path = f"{directory}/{check_instance_name(instance.uuid or instance.name)}"
    try:
        files.make_dir(directory, 0o755)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as err:
        raise errors.OpExecError(
            f"instance {instance.name}: no script of its operating system was run: its"
            f" lock {path} cannot be made on this node: {err.strerror}"
        ) from err
    try:
        if not _is_taken(fd, path):
            raise errors.OpExecError(
                f"instance {instance.name}: {OS_SCRIPT_RUNS}"
                " on this node and writes to its disks; wait for its end, or end its"
                f" processes, which fuser {path} names; then repeat the command"
            )
        try:
            yield fd
        finally:
            files.remove_file(path)
            fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        os.close(fd)


def _is_taken(fd: int, path: str) -> bool:
    """Take the lock; return false if another process has it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Its last holder may have removed it since it was opened.
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except (BlockingIOError, FileNotFoundError):
        return False
