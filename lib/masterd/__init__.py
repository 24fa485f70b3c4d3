"""The master daemon as a thing of parts: store, queue, engine, queries, LUXI.

`Service` is built by `build` from its doors, so that a simulated world gets the same
one. `methods` has every LUXI method; `startup` decides whether this node may be
master. Reading the environment, forking and signals belong to `ganeti.server`.
"""

from ganeti.masterd.service import Doors, Service, build

__all__ = ["Doors", "Service", "build"]
