"""Procedures for helper machines: guests that work on the disks of stopped instances.

A helper machine boots from a disk of its own, a copy of an image of the cluster; the
disks of the instance follow. It has the name of the instance: whatever looks after
guests sees it, and the instance cannot start beside it. A file marks that the guest of
this name is a helper machine; only such a guest is ended here.
"""

import contextlib
import os
import uuid
from typing import Final

from ganeti import errors
from ganeti.backend import disk_links, helper_marks, instances, reason_trail
from ganeti.backend.registry import LocalNode, procedure
from ganeti.hypervisor.base import AttachedDisk, check_instance_name
from ganeti.objects.filled import DiskX, InstanceX
from ganeti.pathutils import HOSTNAME_ENV, ROOTDIR_ENV
from ganeti.process import SAFE_PATH
from ganeti.utils import control_chars

_MIB: Final = 1024 * 1024
#: Characters of the image program's output that an error shows.
_MAX_WORDS: Final = 1000
#: Part of the uuid of a boot disk, besides that of its instance.
_DISK: Final = "helper machine"


def _image(node: LocalNode, name: str) -> str:
    """Return the path of the boot disk of an instance's helper machine."""
    return f"{node.paths.data_dir}/helper-disks/{check_instance_name(name)}.raw"


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


def _size_mib(name: str, path: str) -> int:
    """Return the size of a boot disk.

    Raises:
        OpExecError: it is missing.
    """
    try:
        return os.stat(path).st_size // _MIB
    except OSError as err:
        raise errors.OpExecError(
            f"instance {name}: wanted the boot disk of a helper machine at {path},"
            f" found {err.strerror}"
        ) from err


def _disk_uuid(instance: InstanceX) -> str:
    """Return the uuid of the boot disk of an instance's helper machine."""
    try:
        return str(uuid.uuid5(uuid.UUID(instance.uuid), _DISK))
    except ValueError:
        raise errors.OpExecError(
            f"instance {instance.name}: wanted a uuid, found {instance.uuid!r}"
        ) from None


@procedure("helper_start")
def helper_start(
    node: LocalNode, instance: InstanceX, reason: list[tuple[str, str, int]]
) -> None:
    """Start a helper machine on the disks of a stopped instance.

    Raises:
        HypervisorError: a guest of this name runs, the start failed, or the master has
            ended the helper machine before it was started.
        OpExecError: the boot disk is missing, or the instance has no valid uuid.
    """
    name, path = instance.name, _image(node, instance.name)
    disk = _disk_uuid(instance)
    driver = node.hypervisor(instance.hypervisor)
    if instances.is_running(driver, instance):
        raise errors.HypervisorError(
            f"instance {name}: runs; wanted it to be stopped for a helper machine"
        )
    driver.require_startable(name)
    driver.cleanup(name)
    own = DiskX(
        uuid=disk,
        dev_type="file",
        logical_id=("loop", path),
        size=_size_mib(name, path),
        serial_no=1,
        iv_name="disk/0",
    )
    helper_marks.make(node.paths, name)
    try:
        disks = instances.attach_disks(node, instance)
        if not helper_marks.is_made(node.paths, name):
            # Disks may hang until the master does not wait any more.
            raise errors.HypervisorError(
                f"instance {name}: its helper machine was ended before its start"
            )
        driver.start(instance, [AttachedDisk(own, path), *disks], paused=False)
    except errors.GenericError:
        if not instances.is_running(driver, instance):
            disk_links.remove(node.paths, name, len(instance.disks_info))
        helper_marks.remove(node.paths, name)
        raise
    reason_trail.store(node, name, "start", reason)


@procedure("helper_end")
def helper_end(node: LocalNode, instance: InstanceX) -> None:
    """End the helper machine of an instance, if it runs, and remove its boot disk.

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
    path = _image(node, name)
    for each in (path, f"{path}.new"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(each)
