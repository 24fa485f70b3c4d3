"""The master daemon and its parts: store, queue, engine, queries, LUXI.

`build` makes a `Service` from `MasterDeps`, so that a simulation gets the same one.
`calls` has every LUXI method; `startup` decides whether this node may be master.
Reading the environment, forking and signals belong to `ganeti.server`.
"""

from ganeti.masterd.deps import MasterDeps
from ganeti.masterd.service import Service, build

__all__ = ["MasterDeps", "Service", "build"]
