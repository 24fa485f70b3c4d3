"""All drivers by name, for programs that run guests. It loads every driver."""

from collections.abc import Callable
from typing import Final

from ganeti.node.hypervisor.base import Hypervisor, NodeEffects
from ganeti.node.hypervisor.chroot import ChrootHypervisor
from ganeti.node.hypervisor.fake import FakeHypervisor
from ganeti.node.hypervisor.kvm import KvmHypervisor
from ganeti.node.hypervisor.lxc import LxcHypervisor
from ganeti.node.hypervisor.xen.driver import XenHvmHypervisor, XenPvmHypervisor

#: Driver by name.
DRIVERS: Final[dict[str, Callable[[NodeEffects], Hypervisor]]] = {
    "chroot": ChrootHypervisor,
    "fake": FakeHypervisor,
    "kvm": KvmHypervisor,
    "lxc": LxcHypervisor,
    "xen-hvm": XenHvmHypervisor,
    "xen-pvm": XenPvmHypervisor,
}


def drivers(effects: NodeEffects) -> dict[str, Hypervisor]:
    """Return a driver for each hypervisor, by name."""
    return {name: driver(effects) for name, driver in DRIVERS.items()}
