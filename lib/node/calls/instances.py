"""Procedures for guests: start, stop, query, devices, migration, agent, consoles.

The master decides when to call them and how long to wait; `ganeti.node.hypervisor` has
the drivers.
"""

import contextlib
import logging
import threading
from typing import Any, Literal

import msgspec

from ganeti.base import errors
from ganeti.base.net import guest_addresses as addresses
from ganeti.model.objects import consoles
from ganeti.model.objects.filled import DiskX, InstanceX, NicX
from ganeti.model.objects.records import Instance
from ganeti.model.objects.records import Node as NodeRecord
from ganeti.node import storage
from ganeti.node.calls import guest_files
from ganeti.node.calls.registry import LocalNode, procedure
from ganeti.node.hypervisor import AttachedDisk, GuestState, Hypervisor, InstanceInfo
from ganeti.protocols.ssh import account

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
        link = guest_files.make_link(node.paths, instance.name, index, device.path)
        attached.append(AttachedDisk(disk, link, device.uri(instance.hypervisor)))
    return attached


def is_running(driver: Hypervisor, instance: InstanceX) -> bool:
    """Return whether a guest runs; a guest that shut itself down does not."""
    info = driver.info(instance.name)
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
    guest_files.unmark_helper(node.paths, instance.name)
    try:
        disks = attach_disks(node, instance)
        driver.start(instance, disks, paused=startup_paused)
    except errors.GenericError:
        guest_files.remove_links(node.paths, instance.name, len(instance.disks_info))
        raise
    guest_files.store_reason(node, instance.name, "start", reason)


@procedure("instance_shutdown")
def instance_shutdown(
    node: LocalNode,
    instance: InstanceX,
    timeout: float,
    reason: list[tuple[str, str, int]],
) -> None:
    """Ask a guest to shut down; after ``timeout`` seconds, kill it."""
    _stop(node, instance, timeout)
    guest_files.store_reason(node, instance.name, "shutdown", reason)


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
    guest_files.unmark_helper(node.paths, name)
    guest_files.remove_links(node.paths, name, len(instance.disks_info))


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
    guest_files.store_reason(node, inst.name, "reboot", reason)


@procedure("instance_balloon_memory")
def instance_balloon_memory(node: LocalNode, instance: InstanceX, memory: int) -> None:
    """Change the memory, in MiB, of a guest; do nothing if it does not run."""
    driver = node.hypervisor(instance.hypervisor)
    if driver.info(instance.name) is None:
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
    del hvparams
    names = []
    for name in hypervisor_list:
        names += node.hypervisor(name).list_names()
    return names


@procedure("all_instances_info")
def all_instances_info(
    node: LocalNode, hypervisor_list: list[str], all_hvparams: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Return name -> state and resource use of all guests on this node.

    Raises:
        HypervisorError: two hypervisors run a guest of the same name.
    """
    del all_hvparams
    infos: dict[str, dict[str, Any]] = {}
    for name in hypervisor_list:
        for info in node.hypervisor(name).all_infos():
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
    del hvparams
    info = node.hypervisor(hname).info(instance)
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
    if driver.info(instance.name) is not None:
        driver.resize_disk(instance, disk, new_size)


@procedure("instance_migratable")
def instance_migratable(node: LocalNode, instance: InstanceX) -> None:
    """Fail unless the instance runs here and may be migrated."""
    node.hypervisor(instance.hypervisor).migratable(instance)


@procedure("migration_info")
def migration_info(node: LocalNode, instance: InstanceX) -> str:
    """Return the data that the target node needs."""
    return node.hypervisor(instance.hypervisor).migration_info(instance)


@procedure("accept_instance")
def accept_instance(
    node: LocalNode, instance: InstanceX, info: Any, target: str
) -> None:
    """Prepare to receive an instance on this node's address ``target``."""
    driver = node.hypervisor(instance.hypervisor)
    guest_files.unmark_helper(node.paths, instance.name)
    disks = attach_disks(node, instance)
    driver.accept(instance, str(info), target, disks)


@procedure("instance_migrate")
def instance_migrate(
    node: LocalNode, cluster_name: str, instance: InstanceX, target: str, live: bool
) -> None:
    """Start sending an instance to the address ``target``."""
    del cluster_name
    driver = node.hypervisor(instance.hypervisor)
    driver.migrate(instance, target, live=live)


@procedure("instance_get_migration_status")
def instance_get_migration_status(
    node: LocalNode, instance: InstanceX
) -> dict[str, Any]:
    """Return the status of an instance's migration."""
    status = node.hypervisor(instance.hypervisor).migration_status(instance)
    plain: dict[str, Any] = msgspec.to_builtins(status)
    return plain


@procedure("instance_finalize_migration_src")
def instance_finalize_migration_src(
    node: LocalNode, instance: InstanceX, success: bool, live: bool
) -> None:
    """Clean up after a migration, or let the guest continue here after a failure."""
    del live
    driver = node.hypervisor(instance.hypervisor)
    driver.finalize_source(instance, success=success)
    if success:
        guest_files.remove_links(node.paths, instance.name, len(instance.disks_info))


@procedure("instance_finalize_migration_dst")
def instance_finalize_migration_dst(
    node: LocalNode, instance: InstanceX, info: Any, success: bool
) -> None:
    """Take over an instance that has arrived, or clean up after a failure."""
    driver = node.hypervisor(instance.hypervisor)
    driver.finalize_destination(instance, str(info), success=success)
    if not success:
        guest_files.remove_links(node.paths, instance.name, len(instance.disks_info))


@procedure("hotplug_supported")
def hotplug_supported(node: LocalNode, instance: InstanceX) -> None:
    """Fail unless devices of this running instance can be changed."""
    node.hypervisor(instance.hypervisor).hotplug_check(instance)


@procedure("hotplug_device")
def hotplug_device(
    node: LocalNode,
    instance: InstanceX,
    action: Literal["hotadd", "hotremove", "hotmod"],
    dev_type: Literal["disk", "nic"],
    device: dict[str, Any],
    extra: Any,
    seq: int,
) -> None:
    """Add, remove or change one device.

    Args:
        node: this node.
        instance: the instance's record.
        action: add, remove or modify.
        dev_type: type of the device.
        device: the device's record.
        extra: ``[link path, uri]`` of a disk to add.
        seq: index of the device in the instance.
    """
    driver = node.hypervisor(instance.hypervisor)
    record = _record(dev_type, device)
    if action == "hotadd":
        driver.hot_add(instance, record, extra, seq)
    elif action == "hotremove":
        driver.hot_remove(instance, record)
    elif isinstance(record, NicX):
        driver.hot_modify(instance, record, seq)
    else:
        raise errors.HotplugError(
            f"instance {instance.name}: disk {record.uuid}: a disk of a running"
            " instance cannot be modified"
        )


def _record(dev_type: str, device: dict[str, Any]) -> DiskX | NicX:
    try:
        if dev_type == "disk":
            return msgspec.convert(device, DiskX)
        return msgspec.convert(device, NicX)
    except msgspec.ValidationError as err:
        raise errors.HotplugError(f"record of the {dev_type}: {err}") from err


#: Seconds after which no further guest is asked.
_ALL_S = 20.0


@procedure("guest_addresses")
def guest_addresses(
    node: LocalNode, hypervisor: str, names: list[str]
) -> dict[str, addresses.Rows]:
    """Return the addresses that guests report; guests that say nothing are left out."""
    driver = node.hypervisor(hypervisor)
    end = node.clock.monotonic() + _ALL_S
    answers = {}
    for name in names:
        if node.clock.monotonic() >= end:
            break
        with contextlib.suppress(errors.HypervisorError):
            answers[name] = driver.guest_addresses(name)
    return answers


@procedure("guest_firmware")
def guest_firmware(node: LocalNode, instance: InstanceX) -> tuple[str, str]:
    """Return copies of a guest's UEFI variables and TPM, empty if it has none here."""
    return node.hypervisor(instance.hypervisor).firmware_state(instance.name)


@procedure("guest_freeze")
def guest_freeze(node: LocalNode, instance: InstanceX, limit: float) -> None:
    """Freeze the file systems of a guest for at most ``limit`` seconds."""
    node.hypervisor(instance.hypervisor).freeze(instance.name, limit)


@procedure("guest_thaw")
def guest_thaw(node: LocalNode, instance: InstanceX) -> bool:
    """Thaw the file systems of a guest; return whether they were frozen until now."""
    return node.hypervisor(instance.hypervisor).thaw(instance.name)


_SSH_PORT = 22


class ConsoleRequest(msgspec.Struct, frozen=True):
    """One instance with the records and parameters that its console depends on."""

    instance: Instance
    node: NodeRecord
    group: dict[str, Any]
    hypervisor_params: dict[str, Any] = msgspec.field(name="hvParams")
    backend_params: dict[str, Any] = msgspec.field(name="beParams")


@procedure("instance_console_info")
def instance_console_info(
    node: LocalNode, requests: dict[str, ConsoleRequest]
) -> dict[str, dict[str, Any]]:
    """Return a console description for each instance, by name.

    Shape: ``kind`` (ssh, vnc, spice or msg) and, where applicable, ``message``,
    ``host``, ``port``, ``user``, ``command`` and ``display``.
    """
    descriptions = {}
    for name, request in requests.items():
        at, port = request.node, _ssh_port(node, request)
        host = account.console_host(node.paths, at.name, at.primary_ip, port)
        node.hypervisor(request.instance.hypervisor)
        console = consoles.describe(request.instance, request.hypervisor_params, host)
        descriptions[name] = msgspec.to_builtins(console)
    return descriptions


def _ssh_port(node: LocalNode, request: ConsoleRequest) -> int:
    """Return the port of this node's SSH server: from ssconf, else as configured."""
    try:
        ports = node.ssconf.ssh_ports()
    except (errors.ConfigurationError, ValueError):
        ports = {}
    own = request.node.ndparams.get("ssh_port")
    inherited = request.group.get("ndparams", {}).get("ssh_port", _SSH_PORT)
    return int(own or ports.get(request.node.name) or inherited)
