"""Environment variables of OS scripts, as pure functions.

The daemon's own environment is not passed on. Specified in os-and-extstorage,
section 2.
"""

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.base import pathutils, process
from ganeti.base.constants import disks as disk_constants
from ganeti.model.objects import cloud_init
from ganeti.model.objects.filled import DiskX, InstanceX, NicX
from ganeti.node import storage
from ganeti.node.calls.os import os_definitions
from ganeti.node.calls.os.os_definitions import OsDefinition
from ganeti.node.calls.registry import LocalNode


def core(
    paths: pathutils.Paths,
    definition: OsDefinition,
    variant: str,
    osparams: Mapping[str, Any],
    debug: int,
) -> dict[str, str]:
    """Return the variables that do not depend on an instance."""
    env = {
        "OS_API_VERSION": str(definition.api_version),
        "OS_NAME": definition.name,
        "OS_VARIANT": variant,
        "DEBUG_LEVEL": str(debug),
        "PATH": process.SAFE_PATH,
        "GANETI_TOOLS_DIR": paths.tools_dir,
    }
    if paths.is_virtual:
        env |= {
            pathutils.ROOTDIR_ENV: paths.root,
            pathutils.HOSTNAME_ENV: paths.hostname,
        }
    for name, value in osparams.items():
        env[f"OSP_{name.upper().replace('-', '_')}"] = _text(value)
    return env


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def all_osparams(instance: InstanceX) -> dict[str, Any]:
    """Return public, private and secret OS parameters in one dict.

    Those of the cloud-init seed, which are for the guest, are left out.
    """
    given = {
        **instance.osparams,
        **instance.osparams_private,
        **instance.osparams_secret,
    }
    return cloud_init.without_parameters(given)


def instance_environment(
    node: LocalNode,
    instance: InstanceX,
    definition: OsDefinition,
    *,
    debug: int = 0,
) -> dict[str, str]:
    """Return the complete environment of a script for one instance.

    Whoever starts the script replaces the paths of disks that are files, see
    `held_disks`.
    """
    variant = os_definitions.split_name(instance.os)[1]
    env = core(node.paths, definition, variant, all_osparams(instance), debug)
    env |= {
        "INSTANCE_NAME": instance.name,
        "INSTANCE_OS": instance.os,
        "INSTANCE_UUID": instance.uuid,
        "INSTANCE_CTIME": _text(instance.ctime),
        "INSTANCE_MTIME": _text(instance.mtime),
        "INSTANCE_PRIMARY_NODE": instance.primary_node,
        "INSTANCE_SECONDARY_NODES": " ".join(instance.secondary_nodes),
        "HYPERVISOR": instance.hypervisor,
        "INSTANCE_HYPERVISOR": instance.hypervisor,
        "DISK_COUNT": str(len(instance.disks_info)),
        "NIC_COUNT": str(len(instance.nics)),
    }
    for name, value in instance.beparams.items():
        env[f"INSTANCE_BE_{name}"] = _text(value)
    for name, value in instance.hvparams.items():
        env[f"INSTANCE_HV_{name}"] = _text(value)
    for index, disk in enumerate(instance.disks_info):
        env |= _disk(node, index, disk, instance)
    for index, nic in enumerate(instance.nics):
        env |= _nic(index, nic, instance.hvparams)
    return env


def held_disks(
    node: LocalNode, disks: Sequence[DiskX], stack: contextlib.ExitStack
) -> dict[int, int]:
    """Open disks on shared file systems until a stack ends: index -> descriptor.

    A script reaches them below ``/proc/PID/fd`` of the process that holds them: by the
    time it opens a path on shared storage, another node could have put a link there.
    Paths on storage of this node alone stay as they are known.

    Raises:
        BlockDeviceError: a disk cannot be opened.
    """
    held = {}
    for index, disk in enumerate(disks):
        if disk.dev_type in disk_constants.DTS_SHARED_DIRS:
            device = storage.device(node.paths, disk, node.process)
            held[index] = stack.enter_context(device.opened(os.O_RDONLY))
    return held


def _given(**values: Any) -> dict[str, str]:
    """Return the variables that have a value; scripts test whether others are set."""
    return {name: str(value) for name, value in values.items() if value}


def _disk(
    node: LocalNode, index: int, disk: DiskX, instance: InstanceX
) -> dict[str, str]:
    hvparams = instance.hvparams
    device = storage.device(node.paths, disk, node.process)
    is_file = disk.dev_type in disk_constants.DTS_FILEBASED
    values = {
        "PATH": device.path,
        "ACCESS": disk.mode,
        "UUID": disk.uuid,
        "SIZE": str(disk.size),
        "BACKEND_TYPE": f"file:{disk.logical_id[0]}" if is_file else "block",
    }
    values |= _given(URI=device.uri(instance.hypervisor), NAME=disk.name)
    if "disk_type" in hvparams:
        values["FRONTEND_TYPE"] = _text(hvparams["disk_type"])
    return {f"DISK_{index}_{key}": value for key, value in values.items()}


def _nic(index: int, nic: NicX, hvparams: Mapping[str, Any]) -> dict[str, str]:
    mode, link = nic.nicparams.get("mode", ""), _text(nic.nicparams.get("link"))
    values = {
        "MAC": nic.mac,
        "UUID": nic.uuid,
        "MODE": mode,
        "LINK": link,
    }
    values |= _given(NAME=nic.name, IP=nic.ip)
    if mode == "bridged":
        values["BRIDGE"] = link
    if "nic_type" in hvparams:
        values["FRONTEND_TYPE"] = _text(hvparams["nic_type"])
    if nic.netinfo is not None:
        values |= nic.netinfo.environment()
    return {f"NIC_{index}_{key}": value for key, value in values.items()}
