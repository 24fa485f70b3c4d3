"""Parameters of instances, NICs, nodes and disks: types and built-in defaults."""

from typing import Any, Final, NamedTuple


class Param(NamedTuple):
    """One parameter: its type word, built-in default and meaning."""

    type: str
    default: Any
    meaning: str


#: Backend parameters (sizes in MiB).
BACKEND: Final[dict[str, Param]] = {
    "always_failover": Param("bool", False, "never migrate, always fail over"),
    "auto_balance": Param(
        "bool", True, "count the instance when balancing and for N+1"
    ),
    "maxmem": Param("size", 128, "largest memory (MiB)"),
    "minmem": Param("size", 128, "smallest memory (MiB)"),
    "spindle_use": Param("int", 1, "spindles the instance loads"),
    "vcpus": Param("int", 1, "virtual CPUs"),
    "memory": Param("size", None, "legacy input only: sets minmem and maxmem together"),
}

#: NIC parameters of cluster, network connection and NIC.
NIC: Final[dict[str, Param]] = {
    "link": Param(
        "string", "xen-br0", "bridge, routing table or switch (default is build_time)"
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
    "cpu_speed": Param("float", 1.0, "relative CPU speed"),
    "exclusive_storage": Param("bool", False, "give whole physical volumes to disks"),
    "oob_program": Param("string", "", "out-of-band helper path"),
    "ovs": Param("bool", False, "configure Open vSwitch"),
    "ovs_link": Param("maybe-string", "", "physical port of the switch"),
    "ovs_name": Param("maybe-string", "switch1", "switch name"),
    "spindle_count": Param("int", 1, "spindles in the node"),
    "ssh_port": Param("int", 22, "SSH port"),
}

#: Keys of a NIC in a request.
INIC: Final[dict[str, Param]] = {
    "bridge": Param("maybe-string", None, "old name of link"),
    "ip": Param("maybe-string", None, "IP, none or pool"),
    "link": Param("string", None, "link"),
    "mac": Param("string", None, "MAC, auto or generate"),
    "mode": Param("string", None, "mode"),
    "name": Param("maybe-string", None, "NIC name, none clears"),
    "network": Param("maybe-string", None, "network name or uuid, none clears"),
    "vlan": Param("maybe-string", None, "vlan"),
}

#: Keys of a disk in a request.
IDISK: Final[dict[str, Param]] = {
    "access": Param("string", None, "kernelspace or userspace"),
    "adopt": Param("string", None, "existing volume to take over"),
    "dev_type": Param("string", None, "disk type when adding to a mixed instance"),
    "metavg": Param("string", None, "volume group for DRBD metadata"),
    "mode": Param("string", None, "ro or rw"),
    "name": Param("maybe-string", None, "disk name"),
    "provider": Param("string", None, "external storage provider"),
    "size": Param("size", None, "MiB or text with unit"),
    "spindles": Param("int", None, "spindles (exclusive storage)"),
    "vg": Param("string", None, "volume group"),
}

#: Disk parameters by template.
DISK: Final[dict[str, dict[str, Param]]] = {
    "blockdev": {},
    "diskless": {},
    "drbd": {
        "c-delay-target": Param("int", 1, "DRBD dynamic sync"),
        "c-fill-target": Param("int", 0, "DRBD dynamic sync"),
        "c-max-rate": Param("int", 61440, "DRBD dynamic sync, KiB/s"),
        "c-min-rate": Param("int", 4096, "DRBD dynamic sync, KiB/s"),
        "c-plan-ahead": Param("int", 20, "DRBD dynamic sync"),
        "data-stripes": Param("int", 1, "LVM stripes of data volumes"),
        "disk-barriers": Param(
            "string", "n", "barriers to disable: n none, or letters of b, f, d"
        ),
        "disk-custom": Param("string", "", "extra disk options"),
        "dynamic-resync": Param("bool", False, "use dynamic sync speed"),
        "meta-barriers": Param("bool", False, "disable metadata flushes"),
        "meta-stripes": Param("int", 1, "LVM stripes of metadata volumes"),
        "metavg": Param("string", "xenvg", "default volume group for metadata"),
        "net-custom": Param("string", "", "extra net options"),
        "protocol": Param("string", "C", "DRBD protocol letter"),
        "resync-rate": Param("int", 61440, "static sync speed, KiB/s"),
    },
    "ext": {
        "access": Param("string", "kernelspace", "kernelspace or userspace"),
    },
    "file": {},
    "gluster": {
        "access": Param("string", "kernelspace", "kernelspace or userspace"),
        "host": Param("string", "127.0.0.1", "gluster server"),
        "port": Param("int", 24007, "gluster port"),
        "volume": Param("string", "gv0", "gluster volume"),
    },
    "plain": {
        "stripes": Param("int", 1, "LVM stripes"),
    },
    "rbd": {
        "access": Param("string", "kernelspace", "kernelspace or userspace"),
        "pool": Param("string", "rbd", "pool name"),
    },
    "sharedfile": {},
}

#: Node parameters that only cluster and groups may set.
NODE_GLOBAL: Final = ("exclusive_storage",)
