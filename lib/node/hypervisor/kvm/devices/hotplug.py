"""Adding and removing devices of a running guest.

Each step checks afterwards which devices the guest has, and updates the runtime file.
A step can be repeated: a master daemon that was restarted does so, perhaps while the
call of the earlier one still runs; `change_of` lets one step follow the other.

Specified in the hypervisor document, section 2.4.
"""

import contextlib
import os
import stat
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.filesystem import files as file_utils
from ganeti.model.objects.filled import DiskX, InstanceX, NicX
from ganeti.node.hypervisor import networks
from ganeti.node.hypervisor.base import AttachedDisk, NodeEffects
from ganeti.node.hypervisor.kvm import argv, files, runtime
from ganeti.node.hypervisor.kvm.devices import disks_and_nics, taps
from ganeti.node.hypervisor.kvm.files import Files
from ganeti.node.hypervisor.kvm.qmp import Qmp, QmpNotFoundError

#: Seconds that a guest may take to release a device.
_UNPLUG_S: Final = 15.0


@contextlib.contextmanager
def change_of(guest: Files) -> Iterator[None]:
    """Let a change of a guest's devices wait for others, if it can have changes."""
    with files.turn(guest):
        check(guest)
        yield


def check(guest: Files) -> None:
    """Refuse unless all devices have assigned addresses.

    Raises:
        HotplugError: some devices have none.
    """
    plan = runtime.load(guest)
    known = len(plan.hvinfos())
    if known < len(plan.disks) + len(plan.nics):
        raise errors.HotplugError(
            f"instance {guest.name}: some devices have no recorded bus address; stop"
            " and start the instance, which assigns the addresses"
        )


def _places(plan: runtime.Runtime) -> disks_and_nics.DeviceSlots:
    reserved = int(plan.hvparams.get("kvm_pci_reservations") or 0)
    seed = disks_and_nics.seed_places(has_seed=argv.has_seed(plan.argv))
    return disks_and_nics.DeviceSlots(
        [*plan.hvinfos(), *seed], reserved, q35=argv.has_q35(plan.argv)
    )


def _session(guest: Files) -> Qmp:
    return Qmp(guest.control("qmp"), guest.name)


def _has_device(qmp: Qmp, name: str) -> bool:
    rows = qmp.execute("qom-list", {"path": "/machine/peripheral"})
    return any(row["name"] == name for row in rows)


def add_disk(effects: NodeEffects, guest: Files, attached: AttachedDisk) -> None:
    """Add a disk to a running guest that may have it already.

    Raises:
        HotplugError: the guest has the disk in another form, or did not accept it.
    """
    plan = runtime.load(guest)
    disk, path, uri = attached
    present = plan.find_disk(disk.uuid)
    if present is not None:
        if (present.logical_id, present.mode) == (disk.logical_id, disk.mode):
            return
        raise errors.HotplugError(
            f"instance {guest.name}: disk {disk.uuid} is already attached in another"
            " form"
        )
    kind = plan.hvparams.get("disk_type") or "paravirtual"
    place = _places(plan).for_disk(disk, kind)
    if place is None or kind == "ide":
        raise errors.HotplugError(
            f"instance {guest.name}: disks of type {kind} cannot be hotplugged"
        )
    plugged = runtime.plugged_disk(disk, place)
    with _session(guest) as qmp:
        if uri:
            node = disks_and_nics.blockdev(
                plugged, path, plan.hvparams, is_block=False, uri=uri
            )
            _plug_node(guest, qmp, plugged, node, plan.hvparams)
        else:
            with runtime.opened_disk(effects, guest, plugged, path) as fd:
                _plug_disk(guest, qmp, plugged, fd, plan.hvparams)
    runtime.save(guest, plan.replace(disks=(*plan.disks, (plugged, path, uri))))


def _plug_disk(
    guest: Files,
    qmp: Qmp,
    disk: runtime.PluggedDisk,
    fd: int,
    hvparams: dict[str, Any],
) -> None:
    """Add block node and device.

    This process opens the file: the emulator's user or chroot may not allow it.
    """
    is_block = stat.S_ISBLK(os.fstat(fd).st_mode)
    inside = qmp.add_fd(fd)
    node = disks_and_nics.blockdev(disk, inside, hvparams, is_block=is_block)
    try:
        _plug_node(guest, qmp, disk, node, hvparams)
    finally:
        # The block node has its own descriptor of the file.
        number = int(inside.rpartition("/")[2])
        qmp.execute("remove-fd", {"fdset-id": number})


def _plug_node(
    guest: Files,
    qmp: Qmp,
    disk: runtime.PluggedDisk,
    node: dict[str, Any],
    hvparams: dict[str, Any],
) -> None:
    # Of an addition that was cut off.
    _unplug_disk(guest, qmp, node["node-name"])
    qmp.execute("blockdev-add", node)
    try:
        _add_device(guest, qmp, disks_and_nics.disk_device(disk, hvparams))
    except errors.HypervisorError:
        # A repetition could not add a block node whose name is taken.
        qmp.execute("blockdev-del", {"node-name": node["node-name"]})
        raise


def _add_device(guest: Files, qmp: Qmp, device: dict[str, Any]) -> None:
    qmp.execute("device_add", device)
    if not _has_device(qmp, device["id"]):
        raise errors.HotplugError(
            f"instance {guest.name}: device {device['id']}: missing after it was added"
        )


def remove_disk(guest: Files, disk: DiskX) -> None:
    """Remove a disk from a running guest, which may have started without it.

    Raises:
        HotplugError: the guest does not release the disk.
    """
    plan = runtime.load(guest)
    if plan.find_disk(disk.uuid) is None:
        return
    name = disks_and_nics.device_id("disk", disk.uuid)
    with _session(guest) as qmp:
        _unplug_disk(guest, qmp, name)
    rest = tuple(row for row in plan.disks if row[0].uuid != disk.uuid)
    runtime.save(guest, plan.replace(disks=rest))


def _unplug_disk(guest: Files, qmp: Qmp, name: str) -> None:
    """Remove those of device, block node and files that the guest has."""
    _remove_device(guest, qmp, name)
    rows = qmp.execute("query-named-block-nodes", {"flat": True})
    if any(row.get("node-name") == name for row in rows):
        qmp.execute("blockdev-del", {"node-name": name})
    _close_fds(qmp, name)


def _close_fds(qmp: Qmp, name: str) -> None:
    """Close the file that the command line passed for a disk.

    QEMU from 9.1 does not close it with the block node.
    """
    for row in qmp.execute("query-fdsets"):
        if any(fd.get("opaque") == name for fd in row["fds"]):
            qmp.execute("remove-fd", {"fdset-id": row["fdset-id"]})


def _remove_device(guest: Files, qmp: Qmp, name: str) -> None:
    if not _has_device(qmp, name):
        return
    qmp.execute("device_del", {"id": name})
    gone = qmp.wait_event("DEVICE_DELETED", _UNPLUG_S, device=name)
    # The event may come just after the limit, so the list of devices decides.
    if not gone and _has_device(qmp, name):
        raise errors.HotplugError(
            f"instance {guest.name}: device {name}: the guest did not release it"
            f" within {_UNPLUG_S:g} s, but may still do so; then remove it once more"
        )


def resize_disk(guest: Files, disk: DiskX, size_bytes: int) -> None:
    """Make the new size of a disk visible to a running guest.

    Raises:
        HypervisorError: the new size is smaller: the emulator would cut off the end of
            the disk.
    """
    name = disks_and_nics.device_id("disk", disk.uuid)
    with _session(guest) as qmp:
        rows = qmp.execute("query-named-block-nodes", {"flat": True})
        sizes = [
            row["image"]["virtual-size"] for row in rows if row.get("node-name") == name
        ]
        if any(size_bytes < size for size in sizes):
            raise errors.HypervisorError(
                f"instance {guest.name}: disk {disk.uuid} has {sizes[0]} bytes;"
                f" a size of {size_bytes} bytes would cut off its end"
            )
        qmp.execute("block_resize", {"node-name": name, "size": size_bytes})


def set_disk_paths(guest: Files, disks: Sequence[AttachedDisk]) -> None:
    """Note the links of the guest's disks, whose numbers may have changed."""
    known = {item.disk.uuid: item for item in disks}
    with files.turn(guest):
        plan = runtime.load(guest)
        rows = tuple(
            (disk, known[disk.uuid].path, known[disk.uuid].uri)
            for disk, _path, _uri in plan.disks
            if disk.uuid in known
        )
        runtime.save(guest, plan.replace(disks=rows))


def add_nic(
    effects: NodeEffects, guest: Files, instance: InstanceX, nic: NicX, index: int
) -> None:
    """Add a NIC to a running guest that may have it already.

    Raises:
        HotplugError: the guest has the NIC in another form, or did not accept it.
        HypervisorError: its tap cannot be created or connected.
    """
    plan = runtime.load(guest)
    present = plan.find_nic(nic.uuid)
    if present is not None:
        if (present.mac, present.nicparams) == (nic.mac, nic.nicparams):
            return
        raise errors.HotplugError(
            f"instance {guest.name}: NIC {nic.uuid} is already attached in another form"
        )
    kind = plan.hvparams.get("nic_type") or "paravirtual"
    plugged = runtime.plugged_nic(nic, _places(plan).for_nic(nic, kind))
    # Of an addition that was cut off.
    _unplug_nic(guest, nic)
    taps.leave_switch(effects, guest, nic)
    _remove_names(guest, nic, taps.read_name(guest, nic.uuid))
    tap = taps.open_nic(effects, nic, plan.hvparams, guest.name)
    try:
        with contextlib.closing(tap):
            # Before the tap joins a switch: a port that nobody knows would be that of
            # the next tap with this name.
            taps.write_names(guest, {index: (nic.uuid, tap)})
            env = networks.environment(instance, nic, index, tap.name)
            taps.connect(effects, env)
            with _session(guest) as qmp:
                _plug_nic(guest, qmp, plugged, tap)
    except errors.GenericError:
        taps.leave_switch(effects, guest, nic)
        _remove_names(guest, nic, tap.name)
        raise
    runtime.save(guest, plan.replace(nics=(*plan.nics, plugged)))


def _plug_nic(
    guest: Files,
    qmp: Qmp,
    nic: runtime.PluggedNic,
    tap: taps.Tap,
) -> None:
    name = disks_and_nics.device_id("nic", nic.uuid)
    netdev: dict[str, Any] = {"type": "tap" if tap.fds else "user", "id": name}
    for key, fds in (("fd", tap.fds), ("vhostfd", tap.vhost_fds)):
        names = [f"{name}-{key}{number}" for number in range(len(fds))]
        for fd, fd_name in zip(fds, names, strict=True):
            qmp.send_fd(fd, fd_name)
        if names:
            netdev[key if len(names) == 1 else f"{key}s"] = ":".join(names)
    if tap.vhost_fds:
        netdev["vhost"] = True
    qmp.execute("netdev_add", netdev)
    try:
        _add_device(guest, qmp, disks_and_nics.nic_device(nic, queues=len(tap.fds)))
    except errors.HypervisorError:
        qmp.execute("netdev_del", {"id": name})
        raise


def remove_nic(effects: NodeEffects, guest: Files, nic: NicX) -> None:
    """Remove a NIC from a running guest, which may have started without it.

    Raises:
        HotplugError: the guest does not release the NIC.
        HypervisorError: its tap does not leave its switch.
    """
    plan = runtime.load(guest)
    if plan.find_nic(nic.uuid) is None:
        return
    _unplug_nic(guest, nic)
    taps.remove_port(effects, guest, nic)
    rest = tuple(item for item in plan.nics if item.uuid != nic.uuid)
    _remove_names(guest, nic, taps.read_name(guest, nic.uuid))
    runtime.save(guest, plan.replace(nics=rest))


def _unplug_nic(guest: Files, nic: NicX) -> None:
    """Remove those of device and network end that the guest has."""
    name = disks_and_nics.device_id("nic", nic.uuid)
    with _session(guest) as qmp:
        _remove_device(guest, qmp, name)
        with contextlib.suppress(QmpNotFoundError):
            qmp.execute("netdev_del", {"id": name})


def _remove_names(guest: Files, nic: NicX, tap: str | None) -> None:
    """Remove the records of a NIC's tap.

    The index in the name of a record may be neither that of the NIC now nor its place
    in the runtime file, since other NICs may have been removed.
    """
    for index in taps.indices_of(guest, tap) if tap else ():
        file_utils.remove_file(f"{guest.nics}/{index}")
    # The last one, since it names the tap to a repetition.
    file_utils.remove_file(f"{guest.nics}/{nic.uuid}")


def modify_nic(
    effects: NodeEffects, guest: Files, instance: InstanceX, nic: NicX, index: int
) -> None:
    """Replace a NIC of a running guest by one with the same uuid.

    Raises:
        HotplugError: the guest does not release the NIC, or did not accept the new
            one. It has the previous NIC again, unless the message adds otherwise.
    """
    before = runtime.load(guest).find_nic(nic.uuid)
    if before is not None:
        remove_nic(effects, guest, before)
    try:
        add_nic(effects, guest, instance, nic, index)
    except errors.HypervisorError as err:
        if before is None:
            raise
        try:
            add_nic(effects, guest, instance, before, index)
        except errors.HypervisorError as again:
            raise errors.HotplugError(
                f"{err}; the previous NIC could not be added again: {again}"
            ) from err
        raise
