"""Hypervisor parameters: type, built-in default, allowed values and meaning."""

from typing import Any, Final, NamedTuple


class HvParam(NamedTuple):
    """One hypervisor parameter.

    ``allowed`` is a text or a list of values; None means any value of the type.
    ``required`` parameters may not be empty; ``cluster_only`` ones cannot be set
    on an instance.
    """

    type: str
    default: Any
    required: bool
    allowed: Any
    cluster_only: bool
    meaning: str


#: Parameters by hypervisor.
HYPERVISOR: Final[dict[str, dict[str, HvParam]]] = {
    "chroot": {
        "init_script": HvParam(
            "string",
            "/ganeti-chroot",
            True,
            "absolute normalised path (inside the chroot)",
            False,
            "script run inside the chroot",
        ),
    },
    "fake": {
        "migration_mode": HvParam(
            "string", "live", True, ("live", "non-live"), True, "default migration mode"
        ),
    },
    "kvm": {
        "acpi": HvParam("bool", True, False, None, False, "expose ACPI"),
        "boot_order": HvParam(
            "string",
            "disk",
            True,
            ("cdrom", "disk", "floppy", "network"),
            False,
            "device(s) to boot from",
        ),
        "cdrom2_image_path": HvParam(
            "string",
            "",
            False,
            "absolute path of an existing file, or a URL",
            False,
            "second CD image, path or URL",
        ),
        "cdrom_disk_type": HvParam(
            "string",
            "",
            False,
            (
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
            ),
            False,
            "bus of the CD devices; empty follows disk_type",
        ),
        "cdrom_image_path": HvParam(
            "string",
            "",
            False,
            "absolute path of an existing file, or a URL",
            False,
            "CD image",
        ),
        "cpu_cores": HvParam(
            "int", 0, False, ">= 0", False, "cores per socket, 0 is automatic"
        ),
        "cpu_mask": HvParam(
            "string",
            "all",
            False,
            "CPU masks separated by colon, or all",
            False,
            "vCPU to physical CPU pinning",
        ),
        "cpu_sockets": HvParam(
            "int", 0, False, ">= 0", False, "sockets, 0 is automatic"
        ),
        "cpu_threads": HvParam(
            "int", 0, False, ">= 0", False, "threads per core, 0 is automatic"
        ),
        "cpu_type": HvParam(
            "string", "", False, None, False, "CPU model passed to the emulator"
        ),
        "disk_aio": HvParam(
            "string",
            "threads",
            False,
            ("io_uring", "native", "threads"),
            False,
            "asynchronous IO flavour",
        ),
        "disk_cache": HvParam(
            "string",
            "default",
            True,
            ("default", "none", "writeback", "writethrough"),
            False,
            "disk cache mode",
        ),
        "disk_discard": HvParam(
            "string", "ignore", False, ("ignore", "unmap"), False, "discard handling"
        ),
        "disk_type": HvParam(
            "string",
            "paravirtual",
            True,
            (
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
            ),
            False,
            "disk bus",
        ),
        "floppy_image_path": HvParam(
            "string",
            "",
            False,
            "absolute normalised path of an existing file",
            False,
            "floppy image",
        ),
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
            "/boot/vmlinuz-3-kvmU",
            False,
            "absolute normalised path of an existing file",
            False,
            "kernel for direct boot",
        ),
        "keymap": HvParam("string", "", False, None, False, "VNC keyboard map"),
        "kvm_extra": HvParam(
            "string", "", False, None, False, "extra emulator arguments"
        ),
        "kvm_flag": HvParam(
            "string",
            "",
            False,
            ("disabled", "enabled"),
            False,
            "force hardware virtualisation on or off",
        ),
        "kvm_path": HvParam(
            "string",
            "/usr/bin/kvm",
            True,
            "absolute normalised path of an existing file",
            False,
            "emulator binary",
        ),
        "kvm_pci_reservations": HvParam(
            "int", 12, False, "0..32", False, "PCI slots left for the emulator"
        ),
        "machine_version": HvParam(
            "string", "", False, None, False, "emulator machine type"
        ),
        "mem_path": HvParam(
            "string",
            "",
            False,
            "absolute path of an existing directory",
            False,
            "directory for hugepage backed memory",
        ),
        "migration_bandwidth": HvParam("int", 32, True, ">= 0", True, "MiB per second"),
        "migration_caps": HvParam(
            "string",
            "",
            False,
            None,
            False,
            "emulator migration capabilities, colon separated",
        ),
        "migration_downtime": HvParam(
            "int", 30, True, ">= 0", False, "allowed pause in milliseconds"
        ),
        "migration_mode": HvParam(
            "string", "live", True, ("live", "non-live"), True, "default migration mode"
        ),
        "migration_port": HvParam(
            "int", 8102, True, "1..65534", True, "TCP port for migration"
        ),
        "nic_type": HvParam(
            "string",
            "paravirtual",
            True,
            (
                "e1000",
                "i82551",
                "i82557b",
                "i82559er",
                "ne2k_isa",
                "ne2k_pci",
                "paravirtual",
                "pcnet",
                "rtl8139",
            ),
            False,
            "NIC model",
        ),
        "reboot_behavior": HvParam(
            "string",
            "reboot",
            True,
            ("reboot", "exit"),
            False,
            "what a guest reboot does",
        ),
        "root_path": HvParam(
            "maybe-string",
            "/dev/vda1",
            False,
            None,
            False,
            "root device for direct kernel boot",
        ),
        "scsi_controller_type": HvParam(
            "string",
            "lsi",
            True,
            ("lsi", "megasas", "virtio-scsi-pci"),
            False,
            "SCSI controller model",
        ),
        "security_domain": HvParam(
            "string", "", False, None, False, "user to run as with security_model user"
        ),
        "security_model": HvParam(
            "string",
            "none",
            True,
            ("none", "pool", "user"),
            False,
            "privilege separation",
        ),
        "serial_console": HvParam(
            "bool", True, False, None, False, "provide a serial console"
        ),
        "serial_speed": HvParam(
            "int", 38400, False, None, False, "baud rate of the serial console"
        ),
        "soundhw": HvParam("string", "", False, None, False, "sound hardware"),
        "spice_bind": HvParam(
            "string", "", False, None, False, "SPICE address or interface"
        ),
        "spice_image_compression": HvParam(
            "string",
            "",
            False,
            ("auto_glz", "auto_lz", "glz", "lz", "off", "quic"),
            False,
            "lossless image compression",
        ),
        "spice_ip_version": HvParam(
            "int", 0, False, "0, 4 or 6", False, "IP family for an interface bind"
        ),
        "spice_jpeg_wan_compression": HvParam(
            "string", "", False, ("always", "auto", "never"), False, "jpeg compression"
        ),
        "spice_password_file": HvParam(
            "string",
            "",
            False,
            "absolute normalised path of an existing file",
            False,
            "file with the SPICE password",
        ),
        "spice_playback_compression": HvParam(
            "bool", True, False, None, False, "compress audio"
        ),
        "spice_streaming_video": HvParam(
            "string",
            "",
            False,
            ("all", "filter", "off"),
            False,
            "video stream detection",
        ),
        "spice_tls_ciphers": HvParam(
            "string", "HIGH:-DES:-3DES:-EXPORT:-DH", False, None, False, "TLS ciphers"
        ),
        "spice_use_tls": HvParam("bool", False, False, None, False, "use TLS"),
        "spice_use_vdagent": HvParam(
            "bool", True, False, None, False, "use the vdagent channel"
        ),
        "spice_zlib_glz_wan_compression": HvParam(
            "string", "", False, ("always", "auto", "never"), False, "glz compression"
        ),
        "usb_devices": HvParam(
            "string", "", False, None, False, "USB devices, comma separated"
        ),
        "usb_mouse": HvParam(
            "string", "", False, ("mouse", "tablet"), False, "USB pointer type"
        ),
        "use_chroot": HvParam(
            "bool", False, False, None, False, "run the emulator in a chroot"
        ),
        "use_guest_agent": HvParam(
            "bool", False, False, None, False, "provide the guest agent channel"
        ),
        "use_localtime": HvParam(
            "bool", False, False, None, False, "clock in local time"
        ),
        "user_shutdown": HvParam(
            "bool",
            False,
            False,
            None,
            False,
            "keep the instance recorded as down after a shutdown from inside",
        ),
        "vga": HvParam("string", "", False, None, False, "VGA adapter"),
        "vhost_net": HvParam("bool", True, False, None, False, "use vhost networking"),
        "virtio_net_queues": HvParam(
            "int", 1, False, "1..8", False, "virtio queues per NIC"
        ),
        "vnc_bind_address": HvParam(
            "string",
            "",
            False,
            None,
            False,
            "VNC address, interface or socket directory",
        ),
        "vnc_password_file": HvParam(
            "string",
            "",
            False,
            "absolute normalised path of an existing file",
            False,
            "file with the VNC password",
        ),
        "vnc_tls": HvParam("bool", False, False, None, False, "use TLS for VNC"),
        "vnc_x509_path": HvParam(
            "string",
            "",
            False,
            "absolute path of an existing directory",
            False,
            "directory with VNC certificates",
        ),
        "vnc_x509_verify": HvParam(
            "bool", False, False, None, False, "ask VNC clients for certificates"
        ),
        "vnet_hdr": HvParam(
            "bool", True, False, None, False, "virtio network header on taps"
        ),
    },
    "lxc": {
        "cpu_mask": HvParam(
            "string",
            "",
            False,
            "one CPU mask such as 0-3,5",
            False,
            "vCPU to physical CPU pinning",
        ),
        "devices": HvParam(
            "string",
            "c 1:3 rw,c 1:5 rw,c 1:7 rw,c 1:8 rw,c 1:9 rw,c 1:10 rw,c 5:0 rw,c 5:1 rw,c 5:2 rw,c 136:* rw",
            False,
            None,
            False,
            "allowed device nodes, comma separated",
        ),
        "drop_capabilities": HvParam(
            "string",
            "mac_override,sys_boot,sys_module,sys_time,sys_admin",
            False,
            None,
            False,
            "capabilities to drop, comma separated",
        ),
        "extra_cgroups": HvParam(
            "string", "", False, None, False, "further cgroup subsystems to mount"
        ),
        "extra_config": HvParam(
            "string",
            "",
            False,
            None,
            False,
            "extra container config lines, comma separated",
        ),
        "num_ttys": HvParam("int", 6, True, ">= 0", False, "consoles in the container"),
        "startup_timeout": HvParam(
            "int", 30, False, ">= 0", False, "seconds to wait for start"
        ),
    },
    "xen-hvm": {
        "acpi": HvParam("bool", True, False, None, False, "expose ACPI"),
        "blockdev_prefix": HvParam(
            "string", "hd", False, None, False, "device name prefix in the guest"
        ),
        "boot_order": HvParam(
            "string",
            "cd",
            True,
            "one or more letters of a, c, d, n",
            False,
            "device(s) to boot from",
        ),
        "cdrom_image_path": HvParam(
            "string",
            "",
            False,
            "absolute normalised path of an existing file",
            False,
            "CD image",
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
            "vCPU to physical CPU pinning",
        ),
        "cpu_weight": HvParam("int", 256, False, "1..65534", False, "scheduler weight"),
        "cpuid": HvParam("string", "", False, None, False, "CPUID settings passed on"),
        "device_model": HvParam(
            "string",
            "/usr/lib/xen/bin/qemu-dm",
            True,
            "absolute normalised path of an existing file",
            False,
            "emulator binary",
        ),
        "disk_type": HvParam(
            "string", "paravirtual", True, ("ioemu", "paravirtual"), False, "disk bus"
        ),
        "kernel_path": HvParam(
            "string",
            "/usr/lib/xen/boot/hvmloader",
            True,
            "absolute normalised path of an existing file",
            False,
            "kernel for direct boot",
        ),
        "migration_mode": HvParam(
            "string",
            "non-live",
            True,
            ("live", "non-live"),
            True,
            "default migration mode",
        ),
        "migration_port": HvParam(
            "int", 8002, True, "1..65534", True, "TCP port for migration"
        ),
        "nic_type": HvParam(
            "string",
            "rtl8139",
            True,
            ("e1000", "ne2k_isa", "ne2k_pci", "paravirtual", "rtl8139"),
            False,
            "NIC model",
        ),
        "pae": HvParam("bool", True, False, None, False, "enable PAE"),
        "pci_pass": HvParam(
            "string", "", False, None, False, "PCI devices to pass through"
        ),
        "reboot_behavior": HvParam(
            "string",
            "reboot",
            True,
            ("reboot", "exit"),
            False,
            "what a guest reboot does",
        ),
        "soundhw": HvParam("string", "", False, None, False, "sound hardware"),
        "use_localtime": HvParam(
            "bool", False, False, None, False, "clock in local time"
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
        "viridian": HvParam(
            "bool", False, False, None, False, "expose Hyper-V interface"
        ),
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
    },
    "xen-pvm": {
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
            "vCPU to physical CPU pinning",
        ),
        "cpu_weight": HvParam("int", 256, False, "1..65535", False, "scheduler weight"),
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
            "kernel for direct boot",
        ),
        "migration_mode": HvParam(
            "string", "live", True, ("live", "non-live"), True, "default migration mode"
        ),
        "migration_port": HvParam(
            "int", 8002, True, "1..65534", True, "TCP port for migration"
        ),
        "reboot_behavior": HvParam(
            "string",
            "reboot",
            True,
            ("reboot", "exit"),
            False,
            "what a guest reboot does",
        ),
        "root_path": HvParam(
            "maybe-string",
            "/dev/xvda1",
            False,
            None,
            False,
            "root device for direct kernel boot",
        ),
        "soundhw": HvParam("string", "", False, None, False, "sound hardware"),
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
    },
}
