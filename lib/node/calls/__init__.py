"""Node procedures: what the node daemon does when called.

`procedure` registers a function, `LocalNode` is its first argument, `call` runs a
procedure by name.
"""

import importlib
import pkgutil

from ganeti.node.calls.registry import (
    PROCEDURES,
    LastAnswer,
    LocalNode,
    call,
    procedure,
)


def load() -> None:
    """Import all modules of this package, which registers their procedures."""
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        importlib.import_module(module.name)


__all__ = ["PROCEDURES", "LastAnswer", "LocalNode", "call", "load", "procedure"]
