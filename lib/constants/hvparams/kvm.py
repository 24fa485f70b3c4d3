"""Parameters of KVM."""

from typing import Final

from ganeti.constants import hypervisors
from ganeti.constants.hvparams.row import HvParam

#: Parameters of ``kvm``.
KVM: Final[dict[str, HvParam]] = {
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
        hypervisors.HT_KVM_VALID_BO_TYPES,
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
        hypervisors.HT_KVM_VALID_DISK_TYPES,
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
    "cpu_sockets": HvParam("int", 0, False, ">= 0", False, "sockets, 0 is automatic"),
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
        hypervisors.HT_KVM_VALID_AIO_TYPES,
        False,
        "kind of asynchronous disk requests; native needs disk_cache none",
    ),
    "disk_cache": HvParam(
        "string",
        "default",
        True,
        hypervisors.HT_VALID_CACHE_TYPES,
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
        hypervisors.HT_KVM_VALID_DISK_TYPES,
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
        hypervisors.HT_KVM_VALID_NIC_TYPES,
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
        hypervisors.HT_KVM_VALID_SCSI_CONTROLLER_TYPES,
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
        hypervisors.HT_KVM_VALID_SM_TYPES,
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
    "soundhw": HvParam("string", "", False, None, False, "sound cards of the guest"),
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
}

#: Those that Ganeti does not have.
KVM_ADDITIONS: Final = frozenset(
    (
        *("firmware", "io_threads", "shared_directories", "swtpm_path", "tpm"),
        *("uefi_code_path", "uefi_vars_path", "virtiofsd_path"),
    )
)
