"""Hypervisor drivers, node side: one class each, no policy.

`drivers` creates the drivers. Only `kvm` and `fake` are offered; of the other
hypervisors only the parameters exist, in `ganeti.constants.hvparams`.
"""

from typing import Final

from ganeti.hypervisor.base import (
    AttachedDisk,
    GuestState,
    Hypervisor,
    InstanceInfo,
    NodeEffects,
)
from ganeti.hypervisor.fake import FakeHypervisor
from ganeti.hypervisor.kvm import KvmHypervisor

#: Driver by name.
DRIVERS: Final[dict[str, type[FakeHypervisor] | type[KvmHypervisor]]] = {
    "fake": FakeHypervisor,
    "kvm": KvmHypervisor,
}


def drivers(effects: NodeEffects) -> dict[str, Hypervisor]:
    """Return a driver for each hypervisor, by name."""
    return {name: driver(effects) for name, driver in DRIVERS.items()}


__all__ = [
    "DRIVERS",
    "AttachedDisk",
    "GuestState",
    "Hypervisor",
    "InstanceInfo",
    "NodeEffects",
    "drivers",
]
