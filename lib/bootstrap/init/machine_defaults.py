"""Defaults of a new cluster that depend on the machine.

The documented defaults suit a machine with Xen, LVM and a bridge ``xen-br0``. `resolve`
keeps them where the machine has LVM or that bridge, and otherwise chooses what a plain
Debian machine has. It reports each such choice in one line with the option that changes
it. Nothing is changed here.
"""

import dataclasses
import os
from typing import Final

from ganeti.base import errors
from ganeti.base.constants import disks, misc
from ganeti.base.constants.parameters import hvparams
from ganeti.base.errors import refusal
from ganeti.base.net import netutils
from ganeti.base.pathutils import Paths
from ganeti.base.process import Runner
from ganeti.bootstrap.options import InitOptions
from ganeti.node.storage import lvm

#: Bridge that is proposed where a machine has none.
PROPOSED_BRIDGE: Final = "br0"
#: Hypervisor and disk template that need nothing but QEMU and a file system.
_HYPERVISOR: Final = "kvm"
_TEMPLATE: Final = "file"
_DEVICES: Final = "/sys/class/net"


@dataclasses.dataclass(frozen=True)
class Resolved:
    """Options with the defaults of the machine.

    Attributes:
        options: with hypervisors, disk templates, master netdev and NIC link.
        new_bridge: name of the bridge to create, empty for none.
        notes: choices and warnings, one line each.
    """

    options: InitOptions
    new_bridge: str = ""
    notes: tuple[str, ...] = ()


def resolve(
    paths: Paths, process: Runner, options: InitOptions, primary_ip: str
) -> Resolved:
    """Return the options with defaults that fit this machine.

    Network interfaces are chosen on real machines only.

    Args:
        paths: of this node.
        process: lists volume groups.
        options: as given.
        primary_ip: address of this node.

    Raises:
        OpPrereqError: the bridge that is to be created is another kind of interface.
    """
    notes: list[str] = []
    if options.enabled_hypervisors is None:
        options = dataclasses.replace(options, enabled_hypervisors=(_HYPERVISOR,))
    notes += _missing_emulator(options)
    if options.enabled_disk_templates is None and not options.vg_name:
        options, more = _with_templates(process, options)
        notes += more
    if paths.is_virtual:
        return Resolved(options, notes=tuple(notes))
    if options.master_netdev is None:
        options, more = _with_netdev(options, primary_ip)
        notes += more
    options, new_bridge, more = _with_link(options, primary_ip)
    return Resolved(options, new_bridge, (*notes, *more))


def _missing_emulator(options: InitOptions) -> list[str]:
    """Return a warning if KVM is enabled and its program is not installed."""
    if _HYPERVISOR not in (options.enabled_hypervisors or ()):
        return []
    default = hvparams.HYPERVISOR[_HYPERVISOR]["kvm_path"].default
    path = str(options.hvparams.get(_HYPERVISOR, {}).get("kvm_path", default))
    if os.access(path, os.X_OK):
        return []
    warning = (
        f"Warning: hypervisor {_HYPERVISOR}: {path} is missing; install qemu-system-x86"
        f" on every node, or give -H {_HYPERVISOR}:kvm_path=PATH"
    )
    return [warning]


def _with_templates(
    process: Runner, options: InitOptions
) -> tuple[InitOptions, list[str]]:
    """Enable disks in files where no volume group is given or present."""
    usual = disks.DEFAULT_ENABLED_DISK_TEMPLATES
    if not set(usual) & set(disks.OFFERED_DISK_TEMPLATES):
        why = f"this release does not offer {' and '.join(usual)}"
    elif options.vg_name == "":
        why = "LVM is disabled"
    elif _has_default_group(process):
        return options, []
    else:
        why = f"this machine has no volume group {disks.DEFAULT_VG}"
    note = (
        f"Disk template: {_TEMPLATE}, because {why}; others:"
        " --enabled-disk-templates, --vg-name"
    )
    return dataclasses.replace(options, enabled_disk_templates=(_TEMPLATE,)), [note]


def _has_default_group(process: Runner) -> bool:
    try:
        size_mib = lvm.volume_groups(process).get(disks.DEFAULT_VG, 0)
    except errors.StorageError:
        return False  # no LVM on this machine
    return size_mib >= disks.MIN_VG_SIZE


def _with_netdev(
    options: InitOptions, primary_ip: str
) -> tuple[InitOptions, list[str]]:
    """Choose the interface of the node's own address for the cluster's address."""
    own = _interface_of(primary_ip)
    if not own or os.path.exists(f"{_DEVICES}/{misc.DEFAULT_BRIDGE}"):
        return options, []
    note = (
        f"Interface of the cluster's address: {own}, which has this node's address"
        f" {primary_ip}; another one: --master-netdev"
    )
    return dataclasses.replace(options, master_netdev=own), [note]


def _interface_of(address: str) -> str:
    rows = netutils.own_addresses()
    return next((name for name, own, _ in rows if own == address), "")


def _bridges() -> list[str]:
    """Return the names of all bridges of this machine, sorted."""
    names = sorted(os.listdir(_DEVICES))
    return [name for name in names if os.path.isdir(f"{_DEVICES}/{name}/bridge")]


def _with_link(
    options: InitOptions, primary_ip: str
) -> tuple[InitOptions, str, list[str]]:
    """Choose the bridge of guests; return also a bridge to create."""
    if options.nicparams.get("mode", "bridged") != "bridged":
        if options.create_bridge:
            raise refusal("--create-bridge: only NICs with mode=bridged use a bridge")
        return options, "", []
    given = options.nicparams.get("link")
    link = given or _usual_bridge(primary_ip) or PROPOSED_BRIDGE
    nicparams = {**options.nicparams, "link": link}
    options = dataclasses.replace(options, nicparams=nicparams)
    path = f"{_DEVICES}/{link}"
    if os.path.isdir(f"{path}/bridge"):
        if given:
            return options, "", []
        return options, "", [f"Bridge of guests: {link}; another one: -N link=NAME"]
    if options.create_bridge:
        if os.path.exists(path):
            raise refusal(
                f"--create-bridge: {link} is a network interface of this machine, but"
                " not a bridge"
            )
        return options, link, []
    return options, "", [_missing_bridge(link)]


def _usual_bridge(primary_ip: str) -> str:
    """Return the default bridge, that of the node's address, or the only one."""
    bridges = _bridges()
    for name in (misc.DEFAULT_BRIDGE, _interface_of(primary_ip)):
        if name in bridges:
            return name
    return bridges[0] if len(bridges) == 1 else ""


def _missing_bridge(link: str) -> str:
    others = [name for name in _bridges() if name != link]
    choice = (
        f"-N link=NAME (bridges here: {', '.join(others)})" if others else "-N link"
    )
    return (
        f"Warning: this machine has no bridge {link}, so instances with network"
        f" interfaces cannot start here; create it, with a port to your network or with"
        f" --create-bridge without one, or choose another with {choice}"
    )
