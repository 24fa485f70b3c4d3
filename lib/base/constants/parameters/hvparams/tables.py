"""The parameters of all hypervisors, and which of them Ganeti has."""

from typing import Final

from ganeti.base.constants.parameters.hvparams.containers import CHROOT, FAKE, LXC
from ganeti.base.constants.parameters.hvparams.kvm import KVM, KVM_ADDITIONS
from ganeti.base.constants.parameters.hvparams.row import HvParam
from ganeti.base.constants.parameters.hvparams.xen import XEN_HVM, XEN_PVM

#: Parameters by hypervisor.
HYPERVISOR: Final[dict[str, dict[str, HvParam]]] = {
    "chroot": CHROOT,
    "fake": FAKE,
    "kvm": KVM,
    "lxc": LXC,
    "xen-hvm": XEN_HVM,
    "xen-pvm": XEN_PVM,
}

#: Parameters that Ganeti does not have, by hypervisor: an export leaves them out.
ADDITIONS: Final[dict[str, frozenset[str]]] = {"kvm": KVM_ADDITIONS}


def of_ganeti() -> dict[str, dict[str, HvParam]]:
    """Return the parameters that Ganeti has, too, by hypervisor."""
    return {
        hypervisor: {
            name: row
            for name, row in table.items()
            if name not in ADDITIONS.get(hypervisor, ())
        }
        for hypervisor, table in HYPERVISOR.items()
    }
