"""Parameters of instances, NICs, nodes and disks: types and built-in defaults."""

from typing import Any, Final, NamedTuple

from ganeti.base.constants.parameters import forms


class Param(NamedTuple):
    """One parameter: its type word, built-in default and meaning.

    ``root`` are the values that need the right to control nodes.
    """

    type: str
    default: Any
    meaning: str
    form: forms.Form | None = None
    root: forms.Root | None = None


#: Backend parameters (sizes in MiB).
BACKEND: Final[dict[str, Param]] = {
    "always_failover": Param("bool", False, "never migrate, always fail over"),
    "auto_balance": Param(
        "bool", True, "count the instance when balancing and for N+1"
    ),
    "maxmem": Param("size", 128, "largest memory of the instance (MiB)"),
    "minmem": Param(
        "size", 128, "smallest memory of the instance (MiB), for ballooning"
    ),
    "spindle_use": Param(
        "int", 1, "spindles that the instance occupies, for placement"
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
    "exclusive_storage": Param("bool", False, "give whole physical volumes to disks"),
    "oob_program": Param(
        "string",
        "",
        "path of the out-of-band helper that controls the power",
        root=forms.ANY,
    ),
    "ovs": Param("bool", False, "configure Open vSwitch"),
    "ovs_link": Param(
        "maybe-string", "", "physical port of the switch", form=forms.NAME
    ),
    "ovs_name": Param(
        "maybe-string", "switch1", "name of the Open vSwitch", form=forms.NAME
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
        "maybe-string", None, "name of the interface, not a number; none clears"
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
    ),
    "adopt": Param("string", None, "existing volume to take over", root=forms.ANY),
    "dev_type": Param("string", None, "disk type when adding to a mixed instance"),
    "metavg": Param("string", None, "volume group for DRBD metadata", form=forms.NAME),
    "mode": Param("string", None, "ro for read-only, rw for reading and writing"),
    "name": Param("maybe-string", None, "name of the disk, not a number; none clears"),
    "provider": Param("string", None, "external storage provider", root=forms.ANY),
    "size": Param("size", None, "size in MiB, or with a unit such as 10g"),
    "spindles": Param("int", None, "spindles of the disk, with exclusive storage only"),
    "vg": Param("string", None, "volume group of the data", form=forms.NAME),
}

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
            "int", 0, "KiB of data volumes that a stripe has; 0 for the default of LVM"
        ),
        "data-stripes": Param(
            "int", 1, "physical volumes across which data volumes are striped"
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
        ),
        "meta-stripes": Param(
            "int", 1, "physical volumes across which metadata volumes are striped"
        ),
        "metavg": Param(
            "string", "xenvg", "default volume group for metadata", form=forms.NAME
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
    "ext": {
        "access": Param(
            "string",
            "kernelspace",
            "path of the data: kernelspace through a block device, userspace in the emulator",
        ),
    },
    "file": {},
    "gluster": {
        "access": Param(
            "string",
            "kernelspace",
            "path of the data: kernelspace through a block device, userspace in the emulator",
        ),
        # Its server decides what its client, which is root, loads and reads.
        "host": Param(
            "string",
            "127.0.0.1",
            "host of the gluster server",
            form=forms.HOST,
            root=forms.ANY,
        ),
        "port": Param("int", 24007, "port of the gluster server"),
        "volume": Param("string", "gv0", "name of the gluster volume", form=forms.NAME),
    },
    "plain": {
        "stripe_size": Param(
            "int", 0, "KiB of a volume that a stripe has; 0 for the default of LVM"
        ),
        "stripes": Param("int", 1, "physical volumes across which a volume is striped"),
    },
    "rbd": {
        "access": Param(
            "string",
            "kernelspace",
            "path of the data: kernelspace through a block device, userspace in the emulator",
        ),
        "pool": Param("string", "rbd", "name of the RADOS pool", form=forms.NAME),
    },
    "sharedfile": {},
}
#: Names of those that Ganeti does not have.
DISK_ADDITIONS: Final = frozenset(
    {"stripe_size", "data-stripe_size", "meta-stripe_size"}
)

#: Node parameters that only cluster and groups may set.
NODE_GLOBAL: Final = ("exclusive_storage",)
