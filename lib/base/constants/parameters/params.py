"""Parameters of instances, NICs, nodes and disks: types and built-in defaults.

Keys and limits of instance policies are at the end.
"""

import copy
from typing import Final

from ganeti.base.constants.disks import DISK_TEMPLATES
from ganeti.base.constants.parameters import forms
from ganeti.base.constants.parameters.forms import (
    NEW_DISKS,
    NEW_NODES,
    NOW,
    START,
    Param,
)

#: Backend parameters (sizes in MiB).
BACKEND: Final[dict[str, Param]] = {
    "always_failover": Param(
        "bool", False, "never migrate, always fail over", effect=NOW
    ),
    "auto_balance": Param(
        "bool", True, "count the instance when balancing and for N+1", effect=NOW
    ),
    "maxmem": Param("size", 128, "largest memory of the instance (MiB)"),
    "minmem": Param(
        "size", 128, "smallest memory of the instance (MiB), for ballooning"
    ),
    "spindle_use": Param(
        "int", 1, "spindles that the instance occupies, for placement", effect=NOW
    ),
    "vcpus": Param("int", 1, "number of virtual CPUs"),
    "memory": Param("size", None, "legacy input only: sets minmem and maxmem together"),
}

#: NIC parameters of cluster, network connection and NIC.
NIC: Final[dict[str, Param]] = {
    "link": Param(
        "string",
        "xen-br0",
        "bridge, routing table or switch; gnt-cluster init takes a bridge of the machine",
    ),
    "mode": Param("string", "bridged", "one of bridged, routed, openvswitch"),
    "vlan": Param(
        "string",
        "",
        "VLAN: empty, N or .N (one untagged), :A:B (tagged list), .N:A:B (both); a bare N is stored as .N",
    ),
}

#: Node parameters of cluster, group and node.
NODE: Final[dict[str, Param]] = {
    "cpu_speed": Param(
        "float", 1.0, "speed of the CPUs relative to other nodes, for placement"
    ),
    "exclusive_storage": Param(
        "bool", False, "give whole physical volumes to disks", effect=NEW_DISKS
    ),
    "oob_program": Param(
        "string",
        "",
        "path of the out-of-band helper that controls the power",
        root=forms.ANY,
    ),
    "ovs": Param("bool", False, "configure Open vSwitch", effect=NEW_NODES),
    "ovs_link": Param(
        "maybe-string",
        "",
        "physical port of the switch",
        form=forms.NAME,
        effect=NEW_NODES,
    ),
    "ovs_name": Param(
        "maybe-string",
        "switch1",
        "name of the Open vSwitch",
        form=forms.NAME,
        effect=NEW_NODES,
    ),
    "spindle_count": Param(
        "int", 1, "number of spindles (independent disks) in the node"
    ),
    "ssh_port": Param("int", 22, "port of the SSH server of the node"),
}

#: Keys of a NIC in a request.
INIC: Final[dict[str, Param]] = {
    "bridge": Param("maybe-string", None, "old name of link"),
    "ip": Param(
        "maybe-string",
        None,
        "IP address, none, or pool for the next free one of the network",
    ),
    "link": Param("string", None, "bridge, routing table or switch"),
    "mac": Param("string", None, "MAC address, or auto or generate for a new one"),
    "mode": Param("string", None, "one of bridged, routed, openvswitch"),
    "name": Param(
        "maybe-string",
        None,
        "name of the interface, not a number; none clears",
        effect=NOW,
    ),
    "network": Param("maybe-string", None, "network name or uuid, none clears"),
    "vlan": Param("maybe-string", None, "VLAN of the interface, as for the cluster"),
}

#: Keys of a disk in a request.
IDISK: Final[dict[str, Param]] = {
    "access": Param(
        "string",
        None,
        "path of the data: kernelspace through a block device, userspace in the emulator",
        effect=START,
    ),
    "adopt": Param("string", None, "existing volume to take over", root=forms.ANY),
    "dev_type": Param("string", None, "disk type when adding to a mixed instance"),
    "metavg": Param("string", None, "volume group for DRBD metadata", form=forms.NAME),
    "mode": Param(
        "string", None, "ro for read-only, rw for reading and writing", effect=START
    ),
    "name": Param(
        "maybe-string", None, "name of the disk, not a number; none clears", effect=NOW
    ),
    "provider": Param("string", None, "external storage provider", root=forms.ANY),
    "size": Param("size", None, "size in MiB, or with a unit such as 10g"),
    "spindles": Param("int", None, "spindles of the disk, with exclusive storage only"),
    "vg": Param("string", None, "volume group of the data", form=forms.NAME),
}

_ACCESS: Final = Param(
    "string",
    "kernelspace",
    "path of the data: kernelspace through a block device, userspace in the emulator",
    effect=START,
)

#: Disk parameters by template.
DISK: Final[dict[str, dict[str, Param]]] = {
    "blockdev": {},
    "diskless": {},
    "drbd": {
        "c-delay-target": Param(
            "int",
            1,
            "delay that dynamic sync aims at, tenths of a second, see drbd.conf(5)",
        ),
        "c-fill-target": Param(
            "int",
            0,
            "amount of data in flight that dynamic sync aims at, sectors; 0 to use the delay",
        ),
        "c-max-rate": Param("int", 61440, "largest speed of dynamic sync, KiB/s"),
        "c-min-rate": Param(
            "int", 4096, "speed that dynamic sync keeps while the guest writes, KiB/s"
        ),
        "c-plan-ahead": Param(
            "int", 20, "how far dynamic sync looks ahead, tenths of a second"
        ),
        "data-stripe_size": Param(
            "int",
            0,
            "KiB of data volumes that a stripe has; 0 for the default of LVM",
            effect=NEW_DISKS,
            added=True,
        ),
        "data-stripes": Param(
            "int",
            1,
            "physical volumes across which data volumes are striped",
            effect=NEW_DISKS,
        ),
        "disk-barriers": Param(
            "string", "n", "barriers to disable: n none, or letters of b, f, d"
        ),
        "disk-custom": Param(
            "string", "", "further disk options of DRBD, as typed", root=forms.ANY
        ),
        "dynamic-resync": Param(
            "bool", False, "adapt the sync speed to the load, with the parameters c-..."
        ),
        "meta-barriers": Param("bool", False, "disable metadata flushes"),
        "meta-stripe_size": Param(
            "int",
            0,
            "KiB of metadata volumes that a stripe has; 0 for the default of LVM",
            effect=NEW_DISKS,
            added=True,
        ),
        "meta-stripes": Param(
            "int",
            1,
            "physical volumes across which metadata volumes are striped",
            effect=NEW_DISKS,
        ),
        "metavg": Param(
            "string",
            "xenvg",
            "default volume group for metadata",
            form=forms.NAME,
            effect=NEW_DISKS,
        ),
        "net-custom": Param(
            "string", "", "further network options of DRBD, as typed", root=forms.ANY
        ),
        "protocol": Param(
            "string",
            "C",
            "protocol of replication: A, B or C; only C never loses acknowledged writes",
        ),
        "resync-rate": Param("int", 61440, "static sync speed, KiB/s"),
    },
    "ext": {"access": _ACCESS},
    "file": {},
    "gluster": {
        "access": _ACCESS,
        # Its server decides what its client, which is root, loads and reads.
        "host": Param(
            "string",
            "127.0.0.1",
            "host of the gluster server",
            form=forms.HOST,
            root=forms.ANY,
        ),
        "port": Param("int", 24007, "port of the gluster server"),
        "volume": Param(
            "string",
            "gv0",
            "name of the gluster volume",
            form=forms.NAME,
            effect=NEW_DISKS,
        ),
    },
    "plain": {
        "stripe_size": Param(
            "int",
            0,
            "KiB of a volume that a stripe has; 0 for the default of LVM",
            effect=NEW_DISKS,
            added=True,
        ),
        "stripes": Param(
            "int",
            1,
            "physical volumes across which a volume is striped",
            effect=NEW_DISKS,
        ),
    },
    "rbd": {
        "access": _ACCESS,
        "pool": Param(
            "string", "rbd", "name of the RADOS pool", form=forms.NAME, effect=NEW_DISKS
        ),
    },
    "sharedfile": {},
}
#: Node parameters that only cluster and groups may set.
NODE_GLOBAL: Final = ("exclusive_storage",)

IPOLICY_ALL_KEYS: Final = (
    "disk-templates",
    "minmax",
    "spindle-ratio",
    "std",
    "vcpu-ratio",
)
ISPECS_PARAMETERS: Final = (
    "cpu-count",
    "disk-count",
    "disk-size",
    "memory-size",
    "nic-count",
    "spindle-use",
)
ISPECS_MINMAX_KEYS: Final = ("max", "min")
_SMALLEST: Final = {
    "cpu-count": 1,
    "disk-count": 1,
    "disk-size": 1024,
    "memory-size": 128,
    "nic-count": 1,
    "spindle-use": 1,
}
ISPECS_MINMAX_DEFAULTS: Final = {
    "max": {
        "cpu-count": 8,
        "disk-count": 16,
        "disk-size": 1048576,
        "memory-size": 32768,
        "nic-count": 8,
        "spindle-use": 12,
    },
    "min": _SMALLEST,
}
IPOLICY_DEFAULTS: Final = {
    "disk-templates": list(DISK_TEMPLATES),
    "minmax": [copy.deepcopy(ISPECS_MINMAX_DEFAULTS)],
    "spindle-ratio": 32.0,
    "std": dict(_SMALLEST),
    "vcpu-ratio": 4.0,
}
#: List of {min, max}; an instance must fit one of them.
ISPECS_MINMAX: Final = "minmax"
#: Cluster level only; refused in requests for groups.
ISPECS_STD: Final = "std"
IPOLICY_DTS: Final = "disk-templates"
IPOLICY_VCPU_RATIO: Final = "vcpu-ratio"
IPOLICY_SPINDLE_RATIO: Final = "spindle-ratio"
