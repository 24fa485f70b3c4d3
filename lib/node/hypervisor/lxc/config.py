"""The configuration file of a container, see lxc.container.conf(5).

All values come from the configuration of the cluster; the directories and the mount
command are those of this node. No value gets further lines into the file: such lines
can name commands, which LXC runs as root.
"""

import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.text import hv_syntax
from ganeti.model.objects.filled import InstanceX, NicX
from ganeti.node.hypervisor.base import MIB, vlans
from ganeti.node.hypervisor.lxc import cgroups

#: Pseudo terminals of a container.
_PTYS: Final = 255
#: Bytes of console output until LXC begins a new file and drops the one before the old:
#: a guest must not fill the disk of the node. LXC wants a power of two.
_CONSOLE_LOG_BYTES: Final = 8 * MIB


def build(
    instance: InstanceX, *, root: str, mount: Sequence[str], console_log: str
) -> str:
    """Return the text of the configuration file.

    Args:
        instance: the container.
        root: empty directory on which its root file system is mounted.
        mount: command that mounts it; LXC runs it in the mount namespace of the
            container, so the mount ends with the container.
        console_log: file for the output of its console.

    Raises:
        HypervisorError: a parameter cannot be put into practice.
    """
    rows = [
        ("lxc.uts.name", instance.name),
        ("lxc.pty.max", _PTYS),
        ("lxc.tty.max", int(instance.hvparams["num_ttys"])),
        ("lxc.console.logfile", console_log),
        ("lxc.console.size", _CONSOLE_LOG_BYTES),
        ("lxc.console.rotate", 1),
        ("lxc.rootfs.path", f"dir:{root}"),
        # Without version 2, LXC appends three words to the command.
        ("lxc.hook.version", 1),
        ("lxc.hook.pre-mount", shlex.join(mount)),
        ("lxc.mount.auto", "proc:mixed sys:ro"),
        *_limits(instance),
        *_rights(instance.hvparams),
        *_nics(instance),
    ]
    lines = [f"{key} = {value}" for key, value in rows]
    lines += hv_syntax.words(instance.hvparams.get("extra_config"))
    for line in lines:
        if not line.isprintable():
            raise errors.HypervisorError(
                f"instance {instance.name}: wanted a setting of LXC in one line without"
                f" control characters, found {line!r}"
            )
    return "".join(f"{line}\n" for line in lines)


def processors(instance: InstanceX) -> frozenset[int] | None:
    """Return the processors that a container may use, None for all.

    Raises:
        HypervisorError: their number differs from that of virtual processors.
    """
    mask = instance.hvparams.get("cpu_mask") or "all"
    try:
        (wanted,) = hv_syntax.masks("lxc", mask, instance.beparams["vcpus"])
    except errors.ParseError as err:
        raise errors.HypervisorError(f"instance {instance.name}: {err}") from err
    return wanted


def _limits(instance: InstanceX) -> Iterator[tuple[str, Any]]:
    wanted = processors(instance)
    if wanted is not None:
        yield "lxc.cgroup2.cpuset.cpus", hv_syntax.format_processors(wanted)
    yield "lxc.cgroup2.memory.max", instance.beparams["maxmem"] * MIB
    if cgroups.limits_swap():
        # No swap space beyond the memory.
        yield "lxc.cgroup2.memory.swap.max", 0


def _rights(hvparams: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "lxc.cgroup2.devices.deny", "a"
    for device in hv_syntax.words(hvparams.get("devices")):
        yield "lxc.cgroup2.devices.allow", device
    for capability in hv_syntax.words(hvparams.get("drop_capabilities")):
        yield "lxc.cap.drop", capability


def _nics(instance: InstanceX) -> Iterator[tuple[str, Any]]:
    if not instance.nics:
        # Otherwise the container would use the network of the node.
        yield "lxc.net.0.type", "empty"
    for index, nic in enumerate(instance.nics):
        key = f"lxc.net.{index}"
        yield f"{key}.type", "veth"
        yield f"{key}.link", _bridge(instance, nic, index)
        yield f"{key}.hwaddr", nic.mac
        yield f"{key}.name", f"eth{index}"
        yield f"{key}.flags", "up"
        if vlan := nic.nicparams.get("vlan"):
            yield from _vlan_settings(key, str(vlan))


def _vlan_settings(key: str, vlan: str) -> Iterator[tuple[str, Any]]:
    """Yield the VLANs of a NIC; LXC refuses bridges that do not filter VLANs."""
    untagged, tagged = vlans(vlan)
    yield f"{key}.veth.vlan.id", untagged or "none"
    for number in tagged:
        yield f"{key}.veth.vlan.tagged.id", number


def _bridge(instance: InstanceX, nic: NicX, index: int) -> str:
    mode = nic.nicparams.get("mode")
    if mode != "bridged":
        raise errors.HypervisorError(
            f"instance {instance.name}: NIC {index} has mode {mode}; hypervisor lxc"
            " supports only bridged"
        )
    return str(nic.nicparams["link"])
