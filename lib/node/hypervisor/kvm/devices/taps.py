"""Taps, the node's ends of guests' NICs; see `ganeti.node.hypervisor.networks`.

Taps need root. On virtual nodes, which any user may run, NICs can be in the emulator's
user network instead, which has no tap. An administrator's ``kvm-vif-bridge`` script
replaces `connect`. Specified in the hypervisor document, section 2.5.
"""

import contextlib
import dataclasses
import fcntl
import os
import struct
from collections.abc import Mapping
from typing import Any, Final

from ganeti.base import errors, process
from ganeti.base.constants import misc
from ganeti.base.filesystem import files as file_utils
from ganeti.model.objects.filled import NicX
from ganeti.node.hypervisor import networks
from ganeti.node.hypervisor.base import NodeEffects
from ganeti.node.hypervisor.kvm.files import Files

# From linux/if_tun.h.
_TUNSETIFF: Final = 0x400454CA
_IFF_TAP: Final = 0x0002
_IFF_NO_PI: Final = 0x1000
_IFF_VNET_HDR: Final = 0x4000
_IFF_MULTI_QUEUE: Final = 0x0100
#: Bytes of the file with the name of a tap.
_MAX_NAME: Final = 64
_SCRIPT: Final = "kvm-vif-bridge"


@dataclasses.dataclass(frozen=True)
class Tap:
    """An open tap: interface name, one file per queue, and vhost files if used.

    Without a name and files it stands for the emulator's user network.
    """

    name: str
    fds: tuple[int, ...]
    vhost_fds: tuple[int, ...] = ()

    def close(self) -> None:
        """Close the files; the interface exists until the emulator closes its own."""
        for fd in (*self.fds, *self.vhost_fds):
            with contextlib.suppress(OSError):
                os.close(fd)


#: A NIC in the emulator's user network.
NO_TAP: Final = Tap("", ())


def open_nic(
    effects: NodeEffects, nic: NicX, hvparams: Mapping[str, Any], instance: str
) -> Tap:
    """Open the tap of a NIC, `NO_TAP` for the user network of a virtual node.

    Raises:
        HypervisorError: see `networks.check_link` and `open_tap`.
    """
    if effects.paths.is_virtual and nic.nicparams.get("link") == misc.USER_NETWORK:
        return NO_TAP
    networks.check_link(nic, instance)
    return open_tap(nic, hvparams, instance)


def open_tap(nic: NicX, hvparams: Mapping[str, Any], instance: str) -> Tap:
    """Create a tap for a NIC.

    Raises:
        HypervisorError: not permitted, or the kernel has no taps.
    """
    virtio = (hvparams.get("nic_type") or "paravirtual") == "paravirtual"
    queues = int(hvparams.get("virtio_net_queues") or 1) if virtio else 1
    flags = _IFF_TAP | _IFF_NO_PI
    if virtio and hvparams.get("vnet_hdr", True):
        flags |= _IFF_VNET_HDR
    if queues > 1:
        flags |= _IFF_MULTI_QUEUE
    fds: list[int] = []
    name = "gnt%d"  # the kernel fills in the next free number
    try:
        for _ in range(queues):
            fds.append(os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC))
            # A further file with the same name adds a queue to the interface.
            request = struct.pack("16sH22x", name.encode(), flags)
            answer = fcntl.ioctl(fds[-1], _TUNSETIFF, request)
            name = answer[:16].rstrip(b"\0").decode()
    except OSError as err:
        for fd in fds:
            os.close(fd)
        raise errors.HypervisorError(
            f"instance {instance}: NIC {nic.name or nic.mac}: cannot create a tap:"
            f" {err.strerror}; this needs root and /dev/net/tun"
        ) from err
    return Tap(name, tuple(fds), _open_vhost(hvparams, queues, virtio=virtio))


def _open_vhost(
    hvparams: Mapping[str, Any], queues: int, *, virtio: bool
) -> tuple[int, ...]:
    """Open in-kernel virtio for each queue; without it the emulator copies packets."""
    if not (virtio and hvparams.get("vhost_net")):
        return ()
    fds: list[int] = []
    try:
        while len(fds) < queues:
            fds.append(os.open("/dev/vhost-net", os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        for fd in fds:
            os.close(fd)
        return ()
    return tuple(fds)


def connect(effects: NodeEffects, env: Mapping[str, str]) -> None:
    """Connect a tap to the network that its environment describes.

    Without a tap there is nothing to connect.

    Raises:
        HypervisorError: names the interface and the failed step.
    """
    if not env["INTERFACE"]:
        return
    script = f"{effects.paths.conf_dir}/{_SCRIPT}"
    if os.access(script, os.X_OK):
        result = effects.process.run([script], env=process.fitting(env))
        if result.failed:
            raise errors.HypervisorError(
                f"{env['INTERFACE']}: {script} {result.reason}: {result.output.strip()}"
            )
        return
    networks.join_network(effects, env)


def write_names(files: Files, taps: Mapping[int, tuple[str, Tap]]) -> None:
    """Record the tap of each NIC, by index and by uuid."""
    os.makedirs(files.nics, mode=0o750, exist_ok=True)
    for index, (uuid, tap) in taps.items():
        if not tap.name:
            continue
        for key in (str(index), uuid):
            # Replaced as a whole, so a reader never finds an empty name.
            file_utils.write_file(f"{files.nics}/{key}", tap.name, mode=0o644)


def read_name(files: Files, key: str) -> str | None:
    """Return the tap of a NIC by index or uuid, None if unknown."""
    try:
        return file_utils.text_of(f"{files.nics}/{key}", _MAX_NAME).strip()
    except FileNotFoundError:
        return None


def names(files: Files) -> set[str]:
    """Return the taps of a guest's NICs."""
    return {name for _key, name in _records(files)}


def indices_of(files: Files, tap: str) -> list[str]:
    """Return the indices by which a tap is recorded."""
    return [key for key, name in _records(files) if name == tap and key.isdigit()]


def _records(files: Files) -> list[tuple[str, str]]:
    try:
        keys = os.listdir(files.nics)
    except FileNotFoundError:
        return []
    return [(key, name) for key in keys if (name := read_name(files, key))]


def leave_switch(effects: NodeEffects, files: Files, nic: NicX) -> None:
    """Remove a tap from its switch as `remove_port`; a failure does not count."""
    with contextlib.suppress(errors.HypervisorError):
        remove_port(effects, files, nic)


def remove_port(effects: NodeEffects, files: Files, nic: NicX) -> None:
    """Remove a tap that the emulator does not have any more from its switch.

    It was removed then, and its name is free. If there is one of that name, it is
    that of another guest, and stays.

    Raises:
        HypervisorError: the switch cannot be changed.
    """
    tap = read_name(files, nic.uuid)
    if tap is None or nic.nicparams.get("mode") != "openvswitch":
        return
    if not networks.exists(tap):
        networks.leave_switch(effects, tap)
