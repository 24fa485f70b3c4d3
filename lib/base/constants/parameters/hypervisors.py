"""Hypervisor names and value sets of their parameters."""

from typing import Final

HYPER_TYPES: Final = ("chroot", "fake", "kvm", "lxc", "xen-hvm", "xen-pvm")
DEFAULT_ENABLED_HYPERVISOR: Final = "xen-pvm"
#: Need a network port per instance.
HTS_REQ_PORT: Final = ("kvm", "xen-hvm")
#: May only be set at cluster level.
HVC_GLOBALS: Final = ("migration_bandwidth", "migration_mode", "migration_port")
VNC_BASE_PORT: Final = 5900
VNC_DEFAULT_BIND_ADDRESS: Final = "0.0.0.0"
HT_MIGRATION_MODES: Final = ("live", "non-live")
HT_KVM_VALID_NIC_TYPES: Final = (
    "e1000",
    "i82551",
    "i82557b",
    "i82559er",
    "ne2k_isa",
    "ne2k_pci",
    "paravirtual",
    "pcnet",
    "rtl8139",
)
HT_KVM_VALID_DISK_TYPES: Final = (
    "ide",
    "mtd",
    "paravirtual",
    "pflash",
    "scsi",
    "scsi-block",
    "scsi-cd",
    "scsi-generic",
    "scsi-hd",
    "sd",
)
HT_KVM_VALID_SCSI_CONTROLLER_TYPES: Final = ("lsi", "megasas", "virtio-scsi-pci")
HT_KVM_VALID_BO_TYPES: Final = ("cdrom", "disk", "floppy", "network")
HT_KVM_VALID_MOUSE_TYPES: Final = ("mouse", "tablet")
HT_KVM_VALID_AIO_TYPES: Final = ("io_uring", "native", "threads")
HT_KVM_VALID_SM_TYPES: Final = ("none", "pool", "user")
HT_KVM_FLAG_VALUES: Final = ("disabled", "enabled")
HT_HVM_VALID_NIC_TYPES: Final = (
    "e1000",
    "ne2k_isa",
    "ne2k_pci",
    "paravirtual",
    "rtl8139",
)
HT_HVM_VALID_DISK_TYPES: Final = ("ioemu", "paravirtual")
HT_HVM_VALID_VIF_TYPES: Final = ("ioemu", "vif")
HT_VALID_CACHE_TYPES: Final = ("default", "none", "writeback", "writethrough")
HT_VALID_DISCARD_TYPES: Final = ("ignore", "unmap")
REBOOT_BEHAVIORS: Final = ("reboot", "exit")
VALID_SERIAL_SPEEDS: Final = (
    75,
    110,
    300,
    600,
    1200,
    1800,
    2400,
    4800,
    9600,
    14400,
    19200,
    28800,
    38400,
    57600,
    115200,
    230400,
    345600,
    460800,
)
CPU_PINNING_ALL: Final = "all"
CPU_PINNING_ALL_VAL: Final = -1
CPU_PINNING_ALL_XEN: Final = "0-63"
#: Separates the masks of several vCPUs.
CPU_PINNING_SEP: Final = ":"
QEMU_PCI_SLOTS: Final = 32
QEMU_DEFAULT_PCI_RESERVATIONS: Final = 12
HOTPLUG_ALL_ACTIONS: Final = ("hotadd", "hotmod", "hotremove")
HOTPLUG_ALL_TARGETS: Final = ("disk", "nic")
#: Console kinds in console descriptions.
CONS_ALL: Final = ("msg", "spice", "ssh", "vnc")
#: Types used in parameter tables.
ENFORCEABLE_TYPES: Final = ("bool", "float", "int", "maybe-string", "size", "string")
#: Seconds.
DEFAULT_SHUTDOWN_TIMEOUT: Final = 120
#: Seconds.
HELPER_VM_STARTUP: Final = 300
#: Seconds.
HELPER_VM_SHUTDOWN: Final = 7200
ZEROING_TIMEOUT_PER_MIB: Final = 0.05
