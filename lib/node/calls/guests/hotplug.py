"""Procedures that change devices of running instances."""

from typing import Any, Literal

import msgspec

from ganeti.base import errors
from ganeti.model.objects.filled import DiskX, InstanceX, NicX
from ganeti.node.calls.registry import LocalNode, procedure


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
