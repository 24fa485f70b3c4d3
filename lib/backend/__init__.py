"""Node procedures: what the node daemon does when called.

`procedure` registers one, `Node` is what it works with, `call` runs one by name.
"""

from ganeti.backend.registry import PROCEDURES, Node, call, procedure

__all__ = ["PROCEDURES", "Node", "call", "procedure"]
