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
            "string",
            "live",
            True,
            ("live", "non-live"),
            True,
            "kind of migration unless the command chooses another: live or with a pause",
        ),
    },
    "kvm": {
        "acpi": HvParam(
            "bool",
            True,
            False,
            None,
            False,
            "provide ACPI, through which the guest learns of a requested shutdown",
        ),
        "boot_order": HvParam(
            "string",
            "disk",
            True,
            ("cdrom", "disk", "floppy", "network"),
            False,
            "devices to boot from, in this order",
        ),
        "cdrom2_image_path": HvParam(
            "string",
            "",
            False,
            "absolute path of an existing file, or a URL",
            False,
            "image of the second CD drive, a path or a URL",
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
            "image of the CD drive, a path or a URL",
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
            "physical CPUs that the virtual CPUs may use, per virtual CPU separated by colons",
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
            "kind of asynchronous disk requests; native needs disk_cache none",
        ),
        "disk_cache": HvParam(
            "string",
            "default",
            True,
            ("default", "none", "writeback", "writethrough"),
            False,
            "cache of disk writes on the node; default is writeback; disks on shared storage always use none",
        ),
        "disk_discard": HvParam(
            "string",
            "ignore",
            False,
            ("ignore", "unmap"),
            False,
            "whether the guest's discard requests free space of the disk",
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
            "bus of the disks, paravirtual is virtio",
        ),
        "firmware": HvParam(
            "string",
            "bios",
            True,
            ("bios", "uefi"),
            False,
            "firmware of the guest: the emulator's BIOS, or UEFI with variables of its own",
        ),
        "floppy_image_path": HvParam(
            "string",
            "",
            False,
            "absolute normalised path of an existing file",
            False,
            "image of the floppy drive",
        ),
        "initrd_path": HvParam(
            "string",
            "",
            False,
            "absolute normalised path of an existing file",
            False,
            "initrd for direct kernel boot",
        ),
        "io_threads": HvParam(
            "int",
            0,
            False,
            "0..16",
            False,
            "threads of the emulator for virtio disks, 0 uses its main thread",
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
            "kernel for direct kernel boot; empty boots from the disk",
        ),
        "keymap": HvParam(
            "string",
            "",
            False,
            None,
            False,
            "keyboard layout of VNC clients, such as de",
        ),
        "kvm_extra": HvParam(
            "string",
            "",
            False,
            None,
            False,
            "further arguments of QEMU, as typed in a shell",
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
            "program of the emulator on the nodes",
        ),
        "kvm_pci_reservations": HvParam(
            "int", 12, False, "0..32", False, "PCI slots left for the emulator"
        ),
        "machine_version": HvParam(
            "string",
            "",
            False,
            None,
            False,
            "machine type of QEMU, such as pc-i440fx-7.2; empty for its default",
        ),
        "mem_path": HvParam(
            "string",
            "",
            False,
            "absolute path of an existing directory",
            False,
            "directory for hugepage backed memory",
        ),
        "migration_bandwidth": HvParam(
            "int",
            32,
            True,
            ">= 0",
            True,
            "largest speed of a migration in MiB per second",
        ),
        "migration_caps": HvParam(
            "string",
            "",
            False,
            None,
            False,
            "migration capabilities of QEMU that are switched on, separated by colons",
        ),
        "migration_downtime": HvParam(
            "int",
            30,
            True,
            ">= 0",
            False,
            "longest pause of the guest at the end of a live migration, in milliseconds",
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
            8102,
            True,
            "1..65534",
            True,
            "TCP port at which the target node receives migrations",
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
            "model of the network interfaces, paravirtual is virtio",
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
            "user of the emulator: root, one of the uid pool, or the security_domain",
        ),
        "serial_console": HvParam(
            "bool", True, False, None, False, "provide a serial console"
        ),
        "serial_speed": HvParam(
            "int", 38400, False, None, False, "baud rate of the serial console"
        ),
        "shared_directories": HvParam(
            "string",
            "",
            False,
            "TAG=DIRECTORY, separated by colons",
            False,
            "directories of the node that the guest mounts by virtio-fs, by their tags",
        ),
        "soundhw": HvParam(
            "string", "", False, None, False, "sound cards of the guest"
        ),
        "spice_bind": HvParam(
            "string", "", False, None, False, "SPICE address or interface"
        ),
        "spice_image_compression": HvParam(
            "string",
            "",
            False,
            ("auto_glz", "auto_lz", "glz", "lz", "off", "quic"),
            False,
            "lossless compression of images by SPICE",
        ),
        "spice_ip_version": HvParam(
            "int",
            0,
            False,
            "0, 4 or 6",
            False,
            "IP version of the address if spice_bind names an interface, 0 for any",
        ),
        "spice_jpeg_wan_compression": HvParam(
            "string",
            "",
            False,
            ("always", "auto", "never"),
            False,
            "compression of images with JPEG by SPICE on slow links",
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
            "bool",
            True,
            False,
            None,
            False,
            "compress the sound that SPICE clients play",
        ),
        "spice_streaming_video": HvParam(
            "string",
            "",
            False,
            ("all", "filter", "off"),
            False,
            "detection of video streams by SPICE",
        ),
        "spice_tls_ciphers": HvParam(
            "string",
            "HIGH:-DES:-3DES:-EXPORT:-DH",
            False,
            None,
            False,
            "TLS ciphers that SPICE accepts, in the notation of OpenSSL",
        ),
        "spice_use_tls": HvParam(
            "bool", False, False, None, False, "encrypt SPICE with TLS"
        ),
        "spice_use_vdagent": HvParam(
            "bool",
            True,
            False,
            None,
            False,
            "provide the channel of the SPICE agent in the guest",
        ),
        "spice_zlib_glz_wan_compression": HvParam(
            "string",
            "",
            False,
            ("always", "auto", "never"),
            False,
            "compression of images with GLZ by SPICE on slow links",
        ),
        "swtpm_path": HvParam(
            "string",
            "/usr/bin/swtpm",
            False,
            "absolute normalised path of an existing file",
            False,
            "program of the TPM on the nodes",
        ),
        "tpm": HvParam(
            "bool", False, False, None, False, "provide a TPM 2.0 of the guest's own"
        ),
        "uefi_code_path": HvParam(
            "string",
            "/usr/share/OVMF/OVMF_CODE_4M.fd",
            False,
            "absolute normalised path of an existing file",
            False,
            "program of the UEFI firmware on the nodes",
        ),
        "uefi_vars_path": HvParam(
            "string",
            "/usr/share/OVMF/OVMF_VARS_4M.fd",
            False,
            "absolute normalised path of an existing file",
            False,
            "UEFI variables of a guest at its first start; must fit uefi_code_path",
        ),
        "usb_devices": HvParam(
            "string", "", False, None, False, "USB devices, comma separated"
        ),
        "usb_mouse": HvParam(
            "string", "", False, ("mouse", "tablet"), False, "USB pointer type"
        ),
        "use_chroot": HvParam(
            "bool",
            False,
            False,
            None,
            False,
            "run the emulator in an empty directory as its root",
        ),
        "use_guest_agent": HvParam(
            "bool", False, False, None, False, "provide the guest agent channel"
        ),
        "use_localtime": HvParam(
            "bool",
            False,
            False,
            None,
            False,
            "the guest's clock shows local time instead of UTC",
        ),
        "user_shutdown": HvParam(
            "bool",
            False,
            False,
            None,
            False,
            "keep the instance recorded as down after a shutdown from inside",
        ),
        "vga": HvParam(
            "string",
            "",
            False,
            None,
            False,
            "model of the VGA adapter, such as std or virtio; empty for the default of QEMU",
        ),
        "vhost_net": HvParam(
            "bool",
            True,
            False,
            None,
            False,
            "move packets of virtio interfaces in the kernel of the node",
        ),
        "virtio_net_queues": HvParam(
            "int",
            1,
            False,
            "1..8",
            False,
            "queues per virtio interface; more than 1 needs vhost_net",
        ),
        "virtiofsd_path": HvParam(
            "string",
            "/usr/lib/qemu/virtiofsd",
            False,
            "absolute normalised path of an existing file",
            False,
            "program that shares directories, on the nodes",
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
            "physical CPUs that the virtual CPUs may use, per virtual CPU separated by colons",
        ),
        "devices": HvParam(
            "string",
            "c 1:3 rw,c 1:5 rw,c 1:7 rw,c 1:8 rw,c 1:9 rw,c 1:10 rw,c 5:0 rw,c 5:1 rw,c 5:2 rw,c 136:* rw",
            False,
            None,
            False,
            "device nodes that the container may use, separated by commas",
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
            "bus of the disks, paravirtual is virtio",
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
            ("e1000", "ne2k_isa", "ne2k_pci", "paravirtual", "rtl8139"),
            False,
            "model of the network interfaces, paravirtual is virtio",
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
        "soundhw": HvParam(
            "string", "", False, None, False, "sound cards of the guest"
        ),
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
        "soundhw": HvParam(
            "string", "", False, None, False, "sound cards of the guest"
        ),
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

#: Parameters that Ganeti does not have, by hypervisor: an export leaves them out.
ADDITIONS: Final[dict[str, frozenset[str]]] = {
    "kvm": frozenset(
        (
            *("firmware", "io_threads", "shared_directories", "swtpm_path", "tpm"),
            *("uefi_code_path", "uefi_vars_path", "virtiofsd_path"),
        )
    ),
}


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
