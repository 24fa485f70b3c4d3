"""Node procedures: what the node daemon does when called.

`procedure` registers a function, `LocalNode` is its first argument, `call` runs a
procedure by name. `load` imports all modules with procedures, which registers them.
"""

import importlib

from ganeti.node.calls.registry import (
    PROCEDURES,
    LastAnswer,
    LocalNode,
    call,
    procedure,
)

#: Modules with procedures.
_MODULES = (
    "basics",
    "disks.blockdev",
    "disks.exports",
    "disks.mirrors",
    "disks.storage_units",
    "disks.transfers",
    "disks.volumes",
    "guests.consoles",
    "guests.guest_agent",
    "guests.helper_machines",
    "guests.hotplug",
    "guests.instances",
    "guests.migration",
    "heartbeats",
    "membership.lifecycle",
    "membership.master",
    "membership.replica",
    "membership.term_resets",
    "membership.uploads",
    "node_info",
    "oob",
    "open_vswitch",
    "os.os_archives",
    "os.os_scripts",
    "peers",
    "running_calls",
    "scripts",
    "trust.callers",
    "trust.crypto",
    "trust.ssh_keys",
    "verify",
)


def load() -> None:
    """Import all modules with procedures."""
    for name in _MODULES:
        importlib.import_module(f"ganeti.node.calls.{name}")


__all__ = ["PROCEDURES", "LastAnswer", "LocalNode", "call", "load", "procedure"]
