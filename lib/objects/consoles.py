"""Access to the consoles of instances, computed from the configuration alone.

The master computes it, and the client acts on it: it runs the SSH command. So no part
of a description comes from a node, which only answers whether the guest runs.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from ganeti.constants import hypervisors
from ganeti.objects.instance import Instance

_WILDCARDS: Final = frozenset({"0.0.0.0", "::"})
#: Program that connects the terminal to the serial line of a guest.
_KVM_PROGRAM: Final = "ganeti-kvm-console"


class ConsoleHost(NamedTuple):
    """The node of a console.

    Attributes:
        address: primary IP address.
        ssh_port: port of its SSH server.
        user: account for logins.
        tools_dir: directory of helper programs.
        environment: variables that commands there need.
    """

    address: str
    ssh_port: int
    user: str
    tools_dir: str
    environment: Mapping[str, str] = {}


class Console(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Access to a console; fields that do not apply are None, and absent on the wire.

    ``command`` is an argument list for SSH, ``display`` a VNC display number.
    """

    instance: str
    kind: str
    message: str | None = None
    host: str | None = None
    port: int | None = None
    user: str | None = None
    command: tuple[str, ...] | None = None
    display: int | None = None


def describe(
    instance: Instance, hvparams: Mapping[str, Any], host: ConsoleHost
) -> Console:
    """Return the access to the console of a running guest.

    Args:
        instance: its record.
        hvparams: filled hypervisor parameters.
        host: its primary node.
    """
    if instance.hypervisor == "kvm":
        return _kvm(instance, hvparams, host)
    return Console(
        instance=instance.name,
        kind="msg",
        message=f"Console not available for hypervisor {instance.hypervisor}",
    )


def _kvm(instance: Instance, hvparams: Mapping[str, Any], host: ConsoleHost) -> Console:
    """Return the access to the serial line, else to VNC, else to SPICE."""
    name, port = instance.name, instance.network_port
    if hvparams.get("serial_console"):
        return Console(
            instance=name,
            kind="ssh",
            host=host.address,
            port=host.ssh_port,
            user=host.user,
            command=_serial_command(name, host),
        )
    vnc, spice = hvparams.get("vnc_bind_address"), hvparams.get("spice_bind")
    if vnc and port is not None and not vnc.startswith("/"):
        return Console(
            instance=name,
            kind="vnc",
            host=_reachable(vnc, host),
            port=port,
            display=port - hypervisors.VNC_BASE_PORT,
        )
    if spice and port is not None:
        address = _reachable(spice, host)
        return Console(instance=name, kind="spice", host=address, port=port)
    return Console(
        instance=name, kind="msg", message=f"No serial shell for instance {name}"
    )


def _serial_command(name: str, host: ConsoleHost) -> tuple[str, ...]:
    program = (f"{host.tools_dir}/{_KVM_PROGRAM}", name)
    if not host.environment:
        return program
    return ("env", *(f"{k}={v}" for k, v in host.environment.items()), *program)


def _reachable(bind: str, host: ConsoleHost) -> str:
    """Return the address that clients connect to; a wildcard becomes the node's."""
    is_address = ":" in bind or bind.replace(".", "").isdigit()
    return bind if is_address and bind not in _WILDCARDS else host.address
