"""Procedures for helper machines: guests that work on the disks of stopped instances.

A helper machine boots from a disk of its own, a copy of an image of the cluster; the
disks of the instance follow. It has the name of the instance: whatever looks after
guests sees it, and the instance cannot start beside it. A file marks that the guest of
this name is a helper machine; only such a guest is ended here.

One that installs an OS has two more disks after its own: the archive of the OS, and one
for its result; see ``doc/os-interface.rst``.
"""

import contextlib
import os
import uuid
from collections.abc import Iterator
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.base.pathutils import HOSTNAME_ENV, ROOTDIR_ENV
from ganeti.base.process import SAFE_PATH
from ganeti.base.text import control_chars
from ganeti.model.objects.filled import DiskX, InstanceX
from ganeti.node.calls.disks import disk_links
from ganeti.node.calls.guests import (
    helper_marks,
    helper_results,
    instances,
    reason_trail,
)
from ganeti.node.calls.os import os_archives, script_locks
from ganeti.node.calls.registry import LocalNode, procedure
from ganeti.node.hypervisor.base import AttachedDisk, check_instance_name

_MIB: Final = 1024 * 1024
#: Characters of the image program's output that an error shows.
_MAX_WORDS: Final = 1000
#: Parts of the uuids of its own disks, besides that of its instance.
_BOOT, _ARCHIVE, _RESULT = "helper machine", "helper archive", "helper result"
#: Hypervisors whose guests can have read-only disks: Xen refuses them for disks that a
#: guest may boot from. The archive is a copy that nobody else reads.
_READ_ONLY: Final = frozenset({"kvm"})


def _image(node: LocalNode, name: str) -> str:
    """Return the path of the boot disk of an instance's helper machine."""
    return f"{node.paths.data_dir}/helper-disks/{check_instance_name(name)}.raw"


def _result(node: LocalNode, name: str) -> str:
    """Return the path of the disk for the result of an installation."""
    return f"{node.paths.data_dir}/helper-disks/{check_instance_name(name)}.result"


@procedure("helper_image_add")
def helper_image_add(node: LocalNode, instance: InstanceX, image: str) -> int:
    """Make the boot disk of a helper machine; return its size in MiB.

    Raises:
        OpExecError: the image cannot be used on this node.
    """
    path = _image(node, instance.name)
    # The guest of this name is stopped before the helper machine starts.
    helper_marks.remove(node.paths, instance.name)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    env = {"PATH": SAFE_PATH, "LC_ALL": "C", "HELPER_IMAGE": image, "HELPER_DISK": path}
    if node.paths.is_virtual:
        env |= {ROOTDIR_ENV: node.paths.root, HOSTNAME_ENV: node.paths.hostname}
    program = os.path.join(node.paths.tools_dir, "os-image")
    result = node.process.run([program, "helper"], env=env)
    if result.failed:
        lines = [line for line in result.output.splitlines() if line.strip()]
        words = control_chars.replace(lines[-1])[-_MAX_WORDS:] if lines else ""
        raise errors.OpExecError(
            f"instance {instance.name}: cannot make the boot disk of a helper machine:"
            f" {words or result.reason}"
        )
    return _size_mib(instance.name, path)


def _own_disk(
    instance: InstanceX, part: str, path: str, *, mode: str = "rw"
) -> AttachedDisk:
    """Return a disk of the helper machine itself.

    Raises:
        OpExecError: the file is missing, or the instance has no valid uuid.
    """
    size_mib = max(1, _size_mib(instance.name, path))
    return AttachedDisk(
        DiskX(
            uuid=_disk_uuid(instance, part),
            dev_type="file",
            logical_id=("loop", path),
            size=size_mib,
            serial_no=1,
            iv_name="disk/0",
            mode=mode,
        ),
        path,
    )


def _size_mib(name: str, path: str) -> int:
    """Return the size of a disk of the helper machine itself.

    Raises:
        OpExecError: it is missing.
    """
    try:
        return os.stat(path).st_size // _MIB
    except OSError as err:
        raise errors.OpExecError(
            f"instance {name}: wanted a disk of its helper machine at {path}, found"
            f" {err.strerror}"
        ) from err


def _disk_uuid(instance: InstanceX, part: str) -> str:
    """Return the uuid of a disk of an instance's helper machine."""
    try:
        return str(uuid.uuid5(uuid.UUID(instance.uuid), part))
    except ValueError:
        raise errors.OpExecError(
            f"instance {instance.name}: wanted a uuid, found {instance.uuid!r}"
        ) from None


def _own_disks(
    node: LocalNode, instance: InstanceX, *, installs: bool
) -> Iterator[AttachedDisk]:
    """Yield the disks that come before those of the instance; the result is emptied."""
    name = instance.name
    yield _own_disk(instance, _BOOT, _image(node, name))
    if installs:
        mode = "ro" if instance.hypervisor in _READ_ONLY else "rw"
        archive = os_archives.place(node.paths, name)
        yield _own_disk(instance, _ARCHIVE, archive, mode=mode)
        result = _result(node, name)
        files.remove_file(result)
        files.make_sparse(result, _MIB)
        yield _own_disk(instance, _RESULT, result)


@procedure("helper_start")
def helper_start(
    node: LocalNode,
    instance: InstanceX,
    installs: bool,
    reason: list[tuple[str, str, int]],
) -> None:
    """Start a helper machine on the disks of a stopped instance.

    Args:
        node: this node.
        instance: the instance, as the helper machine is to see it.
        installs: whether it gets the archive of an OS, and a disk for its result.
        reason: why, for the reason trail.

    Raises:
        HypervisorError: a guest of this name runs, the start failed, or the master has
            ended the helper machine before it was started.
        OpExecError: a disk of its own is missing, or the instance has no valid uuid.
    """
    name = instance.name
    driver = node.hypervisor(instance.hypervisor)
    if instances.is_running(driver, instance):
        raise errors.HypervisorError(
            f"instance {name}: runs; wanted it to be stopped for a helper machine"
        )
    driver.require_startable(name, uuid=instance.uuid)
    driver.cleanup(name)
    own = list(_own_disks(node, instance, installs=installs))
    with script_locks.held(node.paths, instance):
        helper_marks.make(node.paths, name)
    try:
        disks = instances.attach_disks(node, instance)
        # Disks or the start may hang until the master does not wait any more.
        _require_mark(node, name)
        driver.start(instance, [*own, *disks], paused=False)
        if not helper_marks.is_made(node.paths, name):
            driver.stop(name, hvparams=instance.hvparams, force=True)
            driver.cleanup(name)
            _require_mark(node, name)
    except errors.GenericError:
        if not instances.is_running(driver, instance):
            disk_links.remove(node.paths, name, len(instance.disks_info))
        helper_marks.remove(node.paths, name)
        raise
    reason_trail.store(node, name, "start", reason)


def _require_mark(node: LocalNode, name: str) -> None:
    """Refuse to go on with a helper machine that the master has ended."""
    if not helper_marks.is_made(node.paths, name):
        raise errors.HypervisorError(
            f"instance {name}: its helper machine was ended before its start"
        )


@procedure("helper_result")
def helper_result(node: LocalNode, instance_name: str) -> list[Any]:
    """Return what a helper machine has written as its result.

    Returns:
        ``[state, exit code or null, [line of output]]``, see `helper_results`.
    """
    try:
        path = _result(node, instance_name)
        return helper_results.parsed(files.read_start(path, helper_results.MAX_BYTES))
    except FileNotFoundError:
        return helper_results.parsed(b"")


@procedure("helper_end")
def helper_end(node: LocalNode, instance: InstanceX) -> None:
    """End the helper machine of an instance, if it runs, and remove its own disks.

    A guest of this name that is no helper machine goes on.

    Raises:
        HypervisorError: it could not be ended.
    """
    name = instance.name
    if helper_marks.is_made(node.paths, name):
        driver = node.hypervisor(instance.hypervisor)
        if instances.is_running(driver, instance):
            driver.stop(name, hvparams=instance.hvparams, force=True)
            if instances.is_running(driver, instance):
                raise errors.HypervisorError(
                    f"instance {name}: its helper machine is still running"
                )
        driver.cleanup(name)
        disk_links.remove(node.paths, name, len(instance.disks_info))
        helper_marks.remove(node.paths, name)
    path, archive = _image(node, name), os_archives.place(node.paths, name)
    for each in (archive, path, f"{path}.new", _result(node, name)):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(each)
