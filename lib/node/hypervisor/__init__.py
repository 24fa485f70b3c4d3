"""Hypervisor drivers, node side: one class each, no policy.

`registry` creates the drivers; `ganeti.constants.hvparams` has their parameters. This
module loads no driver: programs that start often, such as network scripts, use parts of
the package.
"""

from ganeti.hypervisor.base import (
    AttachedDisk,
    GuestState,
    Hypervisor,
    InstanceInfo,
    NodeEffects,
)

__all__ = ["AttachedDisk", "GuestState", "Hypervisor", "InstanceInfo", "NodeEffects"]
