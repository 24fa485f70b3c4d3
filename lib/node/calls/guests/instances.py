"""Procedures for running instances: start, stop, reboot, query, ballooning.

The master decides when to call them and how long to wait; `ganeti.node.hypervisor` has
the drivers. Migration and device changes are in `migration` and `hotplug`.
"""

import logging
import threading
from typing import Any

from ganeti.base import errors
from ganeti.model.objects.filled import DiskX, InstanceX
from ganeti.node import storage
from ganeti.node.calls.disks import disk_links
from ganeti.node.calls.guests import helper_marks, reason_trail
from ganeti.node.calls.registry import LocalNode, procedure
from ganeti.node.hypervisor import AttachedDisk, GuestState, Hypervisor, InstanceInfo

logger = logging.getLogger(__name__)

#: Seconds between two requests to the guest to shut down.
_ASK_INTERVAL_S = 5.0
#: Seconds between two checks whether the guest has stopped.
_POLL_S = 0.25


def attach_disks(node: LocalNode, instance: InstanceX) -> list[AttachedDisk]:
    """Link the disks of an instance and return them for the hypervisor, in order.

    Raises:
        BlockDeviceError: a disk does not exist.
    """
    attached = []
    for index, disk in enumerate(instance.disks_info):
        device = storage.device(node.paths, disk, node.process)
        device.require()
        link = disk_links.make(node.paths, instance.name, index, device.path)
        attached.append(AttachedDisk(disk, link, device.uri(instance.hypervisor)))
    return attached


def is_running(driver: Hypervisor, instance: InstanceX) -> bool:
    """Return whether a guest runs; a guest that shut itself down does not."""
    info = driver.info(instance.name, instance.hvparams)
    return info is not None and info.state is GuestState.RUNNING


@procedure("instance_start")
def instance_start(
    node: LocalNode,
    instance_hvp_bep: InstanceX,
    startup_paused: bool,
    reason: list[tuple[str, str, int]],
) -> None:
    """Start an instance; a running instance is left alone."""
    instance = instance_hvp_bep
    driver = node.hypervisor(instance.hypervisor)
    if is_running(driver, instance):
        driver.require_own(instance.name, instance.uuid)
        logger.info("instance %s: already running, not starting it", instance.name)
        return
    driver.require_startable(instance.name, uuid=instance.uuid)
    driver.cleanup(instance.name)
    helper_marks.remove(node.paths, instance.name)
    try:
        disks = attach_disks(node, instance)
        driver.start(instance, disks, paused=startup_paused)
    except errors.GenericError:
        disk_links.remove(node.paths, instance.name, len(instance.disks_info))
        raise
    reason_trail.store(node, instance.name, "start", reason)


@procedure("instance_shutdown")
def instance_shutdown(
    node: LocalNode,
    instance: InstanceX,
    timeout: float,
    reason: list[tuple[str, str, int]],
) -> None:
    """Ask a guest to shut down; after ``timeout`` seconds, kill it."""
    _stop(node, instance, timeout)
    reason_trail.store(node, instance.name, "shutdown", reason)


def _stop(node: LocalNode, instance: InstanceX, timeout_s: float) -> None:
    driver = node.hypervisor(instance.hypervisor)
    name = instance.name
    if not is_running(driver, instance):
        logger.info("instance %s: not running, not stopping it", name)
    elif not _stop_politely(node, driver, instance, timeout_s):
        logger.error(
            "instance %s: did not shut down within %g s, killing it", name, timeout_s
        )
        driver.stop(name, hvparams=instance.hvparams, force=True)
        if is_running(driver, instance):
            raise errors.HypervisorError(f"instance {name}: still running")
    driver.cleanup(name)
    helper_marks.remove(node.paths, name)
    disk_links.remove(node.paths, name, len(instance.disks_info))


def _stop_politely(
    node: LocalNode, driver: Hypervisor, instance: InstanceX, timeout_s: float
) -> bool:
    """Ask every few seconds; return whether the guest stopped within the timeout."""
    end = node.clock.monotonic() + timeout_s
    never = threading.Event()
    ask_at, retry = 0.0, False
    while (now := node.clock.monotonic()) < end:
        if now >= ask_at:
            if not _ask_to_stop(driver, instance, retry=retry):
                return True
            ask_at, retry = now + _ASK_INTERVAL_S, True
        if not is_running(driver, instance):
            return True
        node.clock.wait(never, min(_POLL_S, end - now))
    return not is_running(driver, instance)


def _ask_to_stop(driver: Hypervisor, instance: InstanceX, *, retry: bool) -> bool:
    """Ask once; return false if the guest did not run any more.

    A guest that cannot be asked, for example because its emulator is too busy, is asked
    again later, and killed after the timeout.
    """
    try:
        driver.stop(instance.name, hvparams=instance.hvparams, force=False, retry=retry)
    except errors.HypervisorError as err:
        if not is_running(driver, instance):
            return False
        logger.warning(
            "instance %s: cannot request the shutdown: %s", instance.name, err
        )
    return True


@procedure("instance_reboot")
def instance_reboot(
    node: LocalNode,
    inst: InstanceX,
    reboot_type: str,
    shutdown_timeout: float,
    reason: list[tuple[str, str, int]],
) -> None:
    """Restart a running guest: by the hypervisor (soft) or by stop and start (hard)."""
    driver = node.hypervisor(inst.hypervisor)
    if not is_running(driver, inst):
        raise errors.HypervisorError(
            f"instance {inst.name}: cannot reboot, it is not running"
        )
    # The emulator that a guest has left in a migration looks as if it ran.
    driver.require_startable(inst.name, uuid=inst.uuid)
    if reboot_type == "soft":
        driver.set_disk_paths(inst, attach_disks(node, inst))
        driver.reboot(inst)
    elif reboot_type == "hard":
        _stop(node, inst, shutdown_timeout)
        driver.start(inst, attach_disks(node, inst), paused=False)
    else:
        raise errors.HypervisorError(
            f"instance {inst.name}: reboot type: wanted soft or hard, found"
            f" {reboot_type}"
        )
    reason_trail.store(node, inst.name, "reboot", reason)


@procedure("instance_balloon_memory")
def instance_balloon_memory(node: LocalNode, instance: InstanceX, memory: int) -> None:
    """Change the memory, in MiB, of a guest; do nothing if it does not run."""
    driver = node.hypervisor(instance.hypervisor)
    if driver.info(instance.name, instance.hvparams) is None:
        logger.info("instance %s: not running, memory not changed", instance.name)
        return
    driver.balloon(instance, memory)


def info_dict(info: InstanceInfo) -> dict[str, Any]:
    """Return the wire form of a guest's state and resource use.

    Only a guest that is stuck has the member ``stuck``.
    """
    stuck = {"stuck": info.stuck_s} if info.stuck_s else {}
    return {
        "memory": info.memory_mib,
        "vcpus": info.vcpus,
        "state": int(info.state),
        "time": info.time_s,
        **stuck,
    }


@procedure("instance_list")
def instance_list(
    node: LocalNode, hypervisor_list: list[str], hvparams: dict[str, dict[str, Any]]
) -> list[str]:
    """Return the names of all guests on this node."""
    names = []
    for name in hypervisor_list:
        names += node.hypervisor(name).list_names(hvparams.get(name, {}))
    return names


@procedure("all_instances_info")
def all_instances_info(
    node: LocalNode, hypervisor_list: list[str], all_hvparams: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Return name -> state and resource use of all guests on this node.

    Raises:
        HypervisorError: two hypervisors run a guest of the same name.
    """
    infos: dict[str, dict[str, Any]] = {}
    for name in hypervisor_list:
        for info in node.hypervisor(name).all_infos(all_hvparams.get(name, {})):
            if info.name in infos:
                raise errors.HypervisorError(
                    f"instance {info.name}: runs under several hypervisors, one of"
                    f" them {name}"
                )
            infos[info.name] = info_dict(info)
    return infos


@procedure("instance_left")
@procedure("instance_info")
def instance_info(
    node: LocalNode, instance: str, hname: str, hvparams: dict[str, Any]
) -> dict[str, Any]:
    """Return state and resource use of a guest, {} if it is not on this node."""
    info = node.hypervisor(hname).info(instance, hvparams)
    return info_dict(info) if info is not None else {}


@procedure("hypervisor_validate_params")
def hypervisor_validate_params(
    node: LocalNode, hvname: str, hvfull: dict[str, Any]
) -> None:
    """Check hypervisor parameters against this node."""
    node.hypervisor(hvname).validate(hvfull)


@procedure("resize_disk")
def resize_disk(
    node: LocalNode, instance: InstanceX, disk: DiskX, new_size: int
) -> None:
    """Show the new size of a disk, in bytes, to its guest, if the guest runs."""
    driver = node.hypervisor(instance.hypervisor)
    if driver.info(instance.name, instance.hvparams) is not None:
        driver.resize_disk(instance, disk, new_size)
