"""The master daemon and its parts: store, queue, engine, queries, LUXI.

`build` creates a `Service` from `MasterDeps`, so a simulation runs the same code.
`methods.calls` registers the LUXI methods; `startup` decides whether this node may be
master. Reading the environment, forking and signals belong to `ganeti.daemons`.
"""

from ganeti.daemons.masterd.deps import MasterDeps
from ganeti.daemons.masterd.service import Service, build

__all__ = ["MasterDeps", "Service", "build"]
