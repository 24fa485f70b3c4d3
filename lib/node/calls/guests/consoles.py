"""Procedure that describes how to reach the consoles of this node's instances.

The master computes consoles itself and does not call it; other callers may.
"""

from typing import Any

import msgspec

from ganeti.base import errors
from ganeti.model.objects import consoles
from ganeti.model.objects.instance import Instance
from ganeti.model.objects.node import Node as NodeRecord
from ganeti.node.calls.registry import LocalNode, procedure
from ganeti.protocols.ssh import account

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
