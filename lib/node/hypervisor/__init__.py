"""Hypervisor drivers, node side: one class each, no policy.

`registry` creates the drivers; `ganeti.base.constants.parameters.hvparams` has their
parameters. This module loads no driver: programs that start often, such as network
scripts, use parts of the package.
"""

from ganeti.node.hypervisor.base import (
    AttachedDisk,
    GuestState,
    Hypervisor,
    InstanceInfo,
    NodeEffects,
)

__all__ = ["AttachedDisk", "GuestState", "Hypervisor", "InstanceInfo", "NodeEffects"]
