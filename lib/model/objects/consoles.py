"""Access to the consoles of instances, computed from the configuration alone.

The master computes it, and the client acts on it: it runs the SSH command. So no part
of a description comes from a node, which only answers whether the guest runs.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from ganeti.base.constants.parameters.hvparams import VNC_BASE_PORT
from ganeti.model.objects.records import Instance

_WILDCARDS: Final = frozenset({"0.0.0.0", "::"})
#: Program that connects the terminal to the serial line of a guest.
_KVM_PROGRAM: Final = "ganeti-kvm-console"
#: The one for the console of a domain.
_XEN_PROGRAM: Final = "xen-console-wrapper"


class ConsoleHost(NamedTuple):
    """The node of a console.

    Attributes:
        address: primary IP address.
        ssh_port: port of its SSH server.
        user: account for logins.
        tools_dir: directory of helper programs.
        environment: variables that commands there need.
        run_dir: directory of its running guests.
    """

    address: str
    ssh_port: int
    user: str
    tools_dir: str
    environment: Mapping[str, str] = {}
    run_dir: str = ""


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
    command = command_of(instance.hypervisor, instance.name, hvparams, host)
    if command:
        return _over_ssh(instance.name, host, command)
    return Console(
        instance=instance.name,
        kind="msg",
        message=f"Console not available for hypervisor {instance.hypervisor}",
    )


def command_of(
    hypervisor: str, name: str, hvparams: Mapping[str, Any], host: ConsoleHost
) -> tuple[str, ...]:
    """Return the command of a console on its node; empty if that is a socket."""
    make = _COMMANDS.get(hypervisor)
    return () if make is None else make(name, hvparams, host)


def _kvm(instance: Instance, hvparams: Mapping[str, Any], host: ConsoleHost) -> Console:
    """Return the access to the serial line, else to VNC, else to SPICE."""
    name, port = instance.name, instance.network_port
    if hvparams.get("serial_console"):
        return _over_ssh(name, host, _serial_command(name, host))
    vnc, spice = hvparams.get("vnc_bind_address"), hvparams.get("spice_bind")
    if vnc and port is not None and not vnc.startswith("/"):
        return Console(
            instance=name,
            kind="vnc",
            host=_reachable(vnc, host),
            port=port,
            display=port - VNC_BASE_PORT,
        )
    if spice and port is not None:
        address = _reachable(spice, host)
        return Console(instance=name, kind="spice", host=address, port=port)
    return Console(
        instance=name, kind="msg", message=f"No serial shell for instance {name}"
    )


def _over_ssh(name: str, host: ConsoleHost, command: tuple[str, ...]) -> Console:
    return Console(
        instance=name,
        kind="ssh",
        host=host.address,
        port=host.ssh_port,
        user=host.user,
        command=command,
    )


def _lxc_command(
    name: str, hvparams: Mapping[str, Any], host: ConsoleHost
) -> tuple[str, ...]:
    """Return the command for a free terminal; without any, for the console itself."""
    terminal = () if hvparams.get("num_ttys") else ("-t", "0")
    return (
        *("lxc-console", "-P", f"{host.run_dir}/lxc/instance", "-n", name),
        *terminal,
    )


def _chroot_command(
    name: str, hvparams: Mapping[str, Any], host: ConsoleHost
) -> tuple[str, ...]:
    """Return the command for a shell; the node's own may be missing there."""
    del hvparams
    return ("chroot", f"{host.run_dir}/chroot-hypervisor/{name}", "/bin/sh", "-i")


def _xen_command(
    name: str, hvparams: Mapping[str, Any], host: ConsoleHost
) -> tuple[str, ...]:
    """Return the command for the console, which also resumes a paused guest."""
    del hvparams
    return (f"{host.tools_dir}/{_XEN_PROGRAM}", "xl", name)


#: Makes the command, by hypervisor.
_COMMANDS: Final[
    Mapping[str, Callable[[str, Mapping[str, Any], ConsoleHost], tuple[str, ...]]]
] = {
    "chroot": _chroot_command,
    "lxc": _lxc_command,
    "xen-hvm": _xen_command,
    "xen-pvm": _xen_command,
}


def _serial_command(name: str, host: ConsoleHost) -> tuple[str, ...]:
    program = (f"{host.tools_dir}/{_KVM_PROGRAM}", name)
    if not host.environment:
        return program
    return ("env", *(f"{k}={v}" for k, v in host.environment.items()), *program)


def _reachable(bind: str, host: ConsoleHost) -> str:
    """Return the address that clients connect to; a wildcard becomes the node's."""
    is_address = ":" in bind or bind.replace(".", "").isdigit()
    return bind if is_address and bind not in _WILDCARDS else host.address
