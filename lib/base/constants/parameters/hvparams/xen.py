"""Parameters of Xen; rows that are the same for KVM are taken from its table."""

from typing import Final

from ganeti.base.constants.parameters import forms
from ganeti.base.constants.parameters.forms import Param, node_file
from ganeti.base.constants.parameters.hvparams.kvm import KVM

#: Parameters of ``xen-hvm``, fully virtualised guests.
XEN_HVM: Final[dict[str, Param]] = {
    "acpi": KVM["acpi"],
    "blockdev_prefix": Param(
        "string", "hd", "device name prefix in the guest", form=forms.PREFIX
    ),
    "boot_order": Param(
        "string",
        "cd",
        "devices to boot from, in this order",
        required=True,
        allowed="one or more letters of a, c, d, n",
        form=forms.BOOT_LETTERS,
    ),
    "cdrom_image_path": node_file("", "image of the CD drive, a path or a URL"),
    "cpu_cap": Param("int", 0, "CPU cap in percent of one CPU, 0 is none"),
    "cpu_mask": KVM["cpu_mask"],
    "cpu_weight": Param(
        "int", 256, "weight of the instance in the CPU scheduler", allowed="1..65534"
    ),
    "cpuid": Param("string", "", "CPUID settings passed on", form=forms.LINE),
    "device_model": node_file(
        "/usr/lib/xen/bin/qemu-dm",
        "program of the emulator on the nodes",
        required=True,
    ),
    "disk_type": Param(
        "string",
        "paravirtual",
        "no effect: blockdev_prefix decides which disks the guest sees",
        required=True,
        allowed=("ioemu", "paravirtual"),
    ),
    "kernel_path": node_file(
        "/usr/lib/xen/boot/hvmloader",
        "kernel for direct kernel boot; empty boots from the disk",
        required=True,
    ),
    "migration_mode": KVM["migration_mode"]._replace(default="non-live"),
    "migration_port": KVM["migration_port"]._replace(default=8002),
    "nic_type": Param(
        "string",
        "rtl8139",
        "model of the network interfaces; paravirtual emulates none",
        required=True,
        allowed=("e1000", "ne2k_isa", "ne2k_pci", "paravirtual", "rtl8139"),
    ),
    "pae": Param(
        "bool", True, "provide PAE, which 32-bit guests with more than 4 GiB need"
    ),
    "pci_pass": Param(
        "string", "", "PCI devices to pass through", form=forms.PCI, root=forms.ANY
    ),
    "reboot_behavior": KVM["reboot_behavior"],
    "soundhw": Param("string", "", "sound cards of the guest", form=forms.XEN_SOUND),
    "use_localtime": KVM["use_localtime"],
    "vif_script": Param(
        "string",
        "",
        "network script of the tool stack",
        allowed="absolute normalised path of an existing file",
        form=forms.SCRIPT,
        root=forms.ANY,
    ),
    "vif_type": Param(
        "string", "ioemu", "kind of virtual interface", allowed=("ioemu", "vif")
    ),
    "viridian": Param("bool", False, "expose Hyper-V interface"),
    "vnc_bind_address": Param(
        "string",
        "0.0.0.0",
        "VNC address, interface or socket directory",
        allowed="IPv4 address",
        form=forms.LINE,
    ),
    "vnc_password_file": node_file(
        "/etc/ganeti/vnc-cluster-password", "file with the VNC password", required=True
    ),
}

#: Parameters of ``xen-pvm``, paravirtual guests.
XEN_PVM: Final[dict[str, Param]] = {
    "blockdev_prefix": XEN_HVM["blockdev_prefix"]._replace(default="sd"),
    "bootloader_args": Param(
        "string",
        "",
        "extra arguments for the boot loader",
        form=forms.LINE,
        root=forms.ANY,
    ),
    "bootloader_path": node_file("", "boot loader; empty uses the system default"),
    "cpu_cap": Param(
        "int", 0, "CPU cap in percent of one CPU, 0 is none", allowed=">= 0"
    ),
    "cpu_mask": KVM["cpu_mask"],
    "cpu_weight": Param(
        "int", 256, "weight of the instance in the CPU scheduler", allowed="1..65535"
    ),
    "cpuid": XEN_HVM["cpuid"],
    "initrd_path": KVM["initrd_path"],
    "kernel_args": KVM["kernel_args"],
    "kernel_path": XEN_HVM["kernel_path"]._replace(default="/boot/vmlinuz-3-xenU"),
    "migration_mode": KVM["migration_mode"],
    "migration_port": XEN_HVM["migration_port"],
    "reboot_behavior": KVM["reboot_behavior"],
    "root_path": KVM["root_path"]._replace(default="/dev/xvda1"),
    "soundhw": XEN_HVM["soundhw"],
    "use_bootloader": Param("bool", False, "boot through the boot loader"),
    "vif_script": XEN_HVM["vif_script"],
}
