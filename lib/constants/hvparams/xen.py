"""Parameters of Xen."""

from typing import Final

from ganeti.constants import hypervisors
from ganeti.constants.hvparams.row import HvParam

#: Parameters of ``xen-hvm``, fully virtualised guests.
XEN_HVM: Final[dict[str, HvParam]] = {
    "acpi": HvParam(
        "bool",
        True,
        False,
        None,
        False,
        "provide ACPI, through which the guest learns of a requested shutdown",
    ),
    "blockdev_prefix": HvParam(
        "string", "hd", False, None, False, "device name prefix in the guest"
    ),
    "boot_order": HvParam(
        "string",
        "cd",
        True,
        "one or more letters of a, c, d, n",
        False,
        "devices to boot from, in this order",
    ),
    "cdrom_image_path": HvParam(
        "string",
        "",
        False,
        "absolute normalised path of an existing file",
        False,
        "image of the CD drive, a path or a URL",
    ),
    "cpu_cap": HvParam(
        "int", 0, False, None, False, "CPU cap in percent of one CPU, 0 is none"
    ),
    "cpu_mask": HvParam(
        "string",
        "all",
        False,
        "CPU masks separated by colon, or all",
        False,
        "physical CPUs that the virtual CPUs may use, per virtual CPU separated by colons",
    ),
    "cpu_weight": HvParam(
        "int",
        256,
        False,
        "1..65534",
        False,
        "weight of the instance in the CPU scheduler",
    ),
    "cpuid": HvParam("string", "", False, None, False, "CPUID settings passed on"),
    "device_model": HvParam(
        "string",
        "/usr/lib/xen/bin/qemu-dm",
        True,
        "absolute normalised path of an existing file",
        False,
        "program of the emulator on the nodes",
    ),
    "disk_type": HvParam(
        "string",
        "paravirtual",
        True,
        ("ioemu", "paravirtual"),
        False,
        "no effect: blockdev_prefix decides which disks the guest sees",
    ),
    "kernel_path": HvParam(
        "string",
        "/usr/lib/xen/boot/hvmloader",
        True,
        "absolute normalised path of an existing file",
        False,
        "kernel for direct kernel boot; empty boots from the disk",
    ),
    "migration_mode": HvParam(
        "string",
        "non-live",
        True,
        ("live", "non-live"),
        True,
        "kind of migration unless the command chooses another: live or with a pause",
    ),
    "migration_port": HvParam(
        "int",
        8002,
        True,
        "1..65534",
        True,
        "TCP port at which the target node receives migrations",
    ),
    "nic_type": HvParam(
        "string",
        "rtl8139",
        True,
        hypervisors.HT_HVM_VALID_NIC_TYPES,
        False,
        "model of the network interfaces; paravirtual emulates none",
    ),
    "pae": HvParam(
        "bool",
        True,
        False,
        None,
        False,
        "provide PAE, which 32-bit guests with more than 4 GiB need",
    ),
    "pci_pass": HvParam(
        "string", "", False, None, False, "PCI devices to pass through"
    ),
    "reboot_behavior": HvParam(
        "string",
        "reboot",
        True,
        ("reboot", "exit"),
        False,
        "what a reboot from inside does: reboot the guest, or exit and stay down",
    ),
    "soundhw": HvParam("string", "", False, None, False, "sound cards of the guest"),
    "use_localtime": HvParam(
        "bool",
        False,
        False,
        None,
        False,
        "the guest's clock shows local time instead of UTC",
    ),
    "vif_script": HvParam(
        "string",
        "",
        False,
        "absolute normalised path of an existing file",
        False,
        "network script of the tool stack",
    ),
    "vif_type": HvParam(
        "string",
        "ioemu",
        False,
        ("ioemu", "vif"),
        False,
        "kind of virtual interface",
    ),
    "viridian": HvParam("bool", False, False, None, False, "expose Hyper-V interface"),
    "vnc_bind_address": HvParam(
        "string",
        "0.0.0.0",
        False,
        "IPv4 address",
        False,
        "VNC address, interface or socket directory",
    ),
    "vnc_password_file": HvParam(
        "string",
        "/etc/ganeti/vnc-cluster-password",
        True,
        "absolute normalised path of an existing file",
        False,
        "file with the VNC password",
    ),
}

#: Parameters of ``xen-pvm``, paravirtual guests.
XEN_PVM: Final[dict[str, HvParam]] = {
    "blockdev_prefix": HvParam(
        "string", "sd", False, None, False, "device name prefix in the guest"
    ),
    "bootloader_args": HvParam(
        "string", "", False, None, False, "extra arguments for the boot loader"
    ),
    "bootloader_path": HvParam(
        "string",
        "",
        False,
        "absolute normalised path of an existing file",
        False,
        "boot loader; empty uses the system default",
    ),
    "cpu_cap": HvParam(
        "int", 0, False, ">= 0", False, "CPU cap in percent of one CPU, 0 is none"
    ),
    "cpu_mask": HvParam(
        "string",
        "all",
        False,
        "CPU masks separated by colon, or all",
        False,
        "physical CPUs that the virtual CPUs may use, per virtual CPU separated by colons",
    ),
    "cpu_weight": HvParam(
        "int",
        256,
        False,
        "1..65535",
        False,
        "weight of the instance in the CPU scheduler",
    ),
    "cpuid": HvParam("string", "", False, None, False, "CPUID settings passed on"),
    "initrd_path": HvParam(
        "string",
        "",
        False,
        "absolute normalised path of an existing file",
        False,
        "initrd for direct kernel boot",
    ),
    "kernel_args": HvParam(
        "string",
        "ro",
        False,
        None,
        False,
        "kernel arguments for direct kernel boot",
    ),
    "kernel_path": HvParam(
        "string",
        "/boot/vmlinuz-3-xenU",
        True,
        "absolute normalised path of an existing file",
        False,
        "kernel for direct kernel boot; empty boots from the disk",
    ),
    "migration_mode": HvParam(
        "string",
        "live",
        True,
        ("live", "non-live"),
        True,
        "kind of migration unless the command chooses another: live or with a pause",
    ),
    "migration_port": HvParam(
        "int",
        8002,
        True,
        "1..65534",
        True,
        "TCP port at which the target node receives migrations",
    ),
    "reboot_behavior": HvParam(
        "string",
        "reboot",
        True,
        ("reboot", "exit"),
        False,
        "what a reboot from inside does: reboot the guest, or exit and stay down",
    ),
    "root_path": HvParam(
        "maybe-string",
        "/dev/xvda1",
        False,
        None,
        False,
        "root device for direct kernel boot",
    ),
    "soundhw": HvParam("string", "", False, None, False, "sound cards of the guest"),
    "use_bootloader": HvParam(
        "bool", False, False, None, False, "boot through the boot loader"
    ),
    "vif_script": HvParam(
        "string",
        "",
        False,
        "absolute normalised path of an existing file",
        False,
        "network script of the tool stack",
    ),
}
