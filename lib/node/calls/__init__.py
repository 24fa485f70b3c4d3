"""Node procedures: what the node daemon does when called.

`procedure` registers a function, `LocalNode` is its first argument, `call` runs a
procedure by name. `load` imports all modules with procedures, which registers them.
"""

import importlib

from ganeti.backend.registry import PROCEDURES, LastAnswer, LocalNode, call, procedure

#: Modules with procedures.
_MODULES = (
    "basics",
    "callers",
    "consoles",
    "crypto",
    "disks",
    "exports",
    "guest_agent",
    "heartbeats",
    "helper_machines",
    "hotplug",
    "instances",
    "lifecycle",
    "master",
    "migration",
    "mirrors",
    "node_info",
    "oob",
    "open_vswitch",
    "os_archives",
    "os_scripts",
    "peers",
    "replica",
    "running_calls",
    "scripts",
    "ssh_keys",
    "storage_units",
    "term_resets",
    "transfers",
    "uploads",
    "verify",
    "volumes",
)


def load() -> None:
    """Import all modules with procedures."""
    for name in _MODULES:
        importlib.import_module(f"ganeti.backend.{name}")


__all__ = ["PROCEDURES", "LastAnswer", "LocalNode", "call", "load", "procedure"]
