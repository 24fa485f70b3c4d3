"""Records of guests of Xen, as the master would send them to a node."""

import msgspec

from fakes import nodes
from ganeti.base.constants.parameters import hvparams
from ganeti.model.objects.filled import DiskX, InstanceX, NicX
from ganeti.node.hypervisor.base import AttachedDisk

NIC = NicX(
    mac="aa:00:00:11:22:33",
    uuid="n0",
    nicparams={"mode": "bridged", "link": "br7", "vlan": ""},
)


def instance(kind="xen-pvm", *, nics=(), vcpus=2, port=11006, **params):
    """Return a guest with the default parameters but for some."""
    table = hvparams.HYPERVISOR[kind]
    made = msgspec.convert(
        nodes.instance(
            hypervisor=kind,
            hvparams={name: row.default for name, row in table.items()} | params,
            beparams={"maxmem": 256, "minmem": 128, "vcpus": vcpus},
            network_port=port,
        ),
        InstanceX,
    )
    return made.replace(nics=tuple(nics))


def disk(path="/run/d:0", **changes):
    """Return an active disk."""
    record = msgspec.convert({**nodes.disk(), **changes}, DiskX)
    return AttachedDisk(record, path)
