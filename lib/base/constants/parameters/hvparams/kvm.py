"""Parameters of KVM."""

from typing import Final

from ganeti.base.constants.parameters import forms
from ganeti.base.constants.parameters.forms import MIGRATION, Param, node_file

#: Values of ``disk_type`` and ``cdrom_disk_type``.
_DISK_TYPES: Final = (
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

#: Parameters of ``kvm``.
KVM: Final[dict[str, Param]] = {
    "acpi": Param(
        "bool",
        True,
        "provide ACPI, through which the guest learns of a requested shutdown",
    ),
    "boot_order": Param(
        "string",
        "disk",
        "devices to boot from, in this order",
        required=True,
        allowed=("cdrom", "disk", "floppy", "network"),
    ),
    "cdrom2_image_path": Param(
        "string",
        "",
        "image of the second CD drive, a path or a URL",
        allowed="absolute path of an existing file, or a URL",
        form=forms.IMAGE,
        root=forms.ANY,
    ),
    "cdrom_disk_type": Param(
        "string",
        "",
        "bus of the CD devices; empty follows disk_type",
        allowed=_DISK_TYPES,
    ),
    "cdrom_image_path": Param(
        "string",
        "",
        "image of the CD drive, a path or a URL",
        allowed="absolute path of an existing file, or a URL",
        form=forms.IMAGE,
        root=forms.ANY,
    ),
    "cpu_cores": Param("int", 0, "cores per socket, 0 is automatic", allowed=">= 0"),
    "cpu_mask": Param(
        "string",
        "all",
        "physical CPUs that the virtual CPUs may use, per virtual CPU separated by colons",
        allowed="CPU masks separated by colon, or all",
        form=forms.LINE,
    ),
    "cpu_sockets": Param("int", 0, "sockets, 0 is automatic", allowed=">= 0"),
    "cpu_threads": Param("int", 0, "threads per core, 0 is automatic", allowed=">= 0"),
    "cpu_type": Param(
        "string", "", "CPU model passed to the emulator", form=forms.MODEL
    ),
    "disk_aio": Param(
        "string",
        "threads",
        "kind of asynchronous disk requests; native needs disk_cache none",
        allowed=("io_uring", "native", "threads"),
    ),
    "disk_cache": Param(
        "string",
        "default",
        "cache of disk writes on the node; default is writeback; disks on shared storage always use none",
        required=True,
        allowed=("default", "none", "writeback", "writethrough"),
    ),
    "disk_discard": Param(
        "string",
        "ignore",
        "whether the guest's discard requests free space of the disk",
        allowed=("ignore", "unmap"),
    ),
    "disk_type": Param(
        "string",
        "paravirtual",
        "bus of the disks, paravirtual is virtio",
        required=True,
        allowed=_DISK_TYPES,
    ),
    "firmware": Param(
        "string",
        "bios",
        "firmware of the guest: the emulator's BIOS, or UEFI with variables of its own",
        required=True,
        allowed=("bios", "uefi"),
        added=True,
    ),
    "floppy_image_path": node_file("", "image of the floppy drive"),
    "initrd_path": node_file("", "initrd for direct kernel boot"),
    "io_threads": Param(
        "int",
        0,
        "threads of the emulator for virtio disks, 0 uses its main thread",
        allowed="0..16",
        added=True,
    ),
    "kernel_args": Param(
        "string", "ro", "kernel arguments for direct kernel boot", form=forms.LINE
    ),
    "kernel_path": node_file(
        "/boot/vmlinuz-3-kvmU",
        "kernel for direct kernel boot; empty boots from the disk",
    ),
    "keymap": Param(
        "string", "", "keyboard layout of VNC clients, such as de", form=forms.KEYMAP
    ),
    "kvm_extra": Param(
        "string",
        "",
        "further arguments of QEMU, as typed in a shell",
        form=forms.LINE,
        root=forms.ANY,
    ),
    "kvm_flag": Param(
        "string",
        "",
        "force hardware virtualisation on or off",
        allowed=("disabled", "enabled"),
    ),
    "kvm_path": node_file(
        "/usr/bin/kvm", "program of the emulator on the nodes", required=True
    ),
    "kvm_pci_reservations": Param(
        "int", 12, "PCI slots left for the emulator", allowed="0..32"
    ),
    "machine_version": Param(
        "string",
        "",
        "machine type of QEMU, such as pc-i440fx-7.2; empty for its default",
        form=forms.LINE,
        root=forms.LIST,
    ),
    "mem_path": Param(
        "string",
        "",
        "directory for hugepage backed memory",
        allowed="absolute path of an existing directory",
        form=forms.ABSOLUTE,
        root=forms.ANY,
    ),
    "migration_bandwidth": Param(
        "int",
        32,
        "largest speed of a migration in MiB per second",
        required=True,
        allowed=">= 0",
        cluster_only=True,
        effect=MIGRATION,
    ),
    "migration_caps": Param(
        "string",
        "",
        "migration capabilities of QEMU that are switched on, separated by colons",
        form=forms.CAPABILITIES,
        effect=MIGRATION,
    ),
    "migration_downtime": Param(
        "int",
        30,
        "longest pause of the guest at the end of a live migration, in milliseconds",
        required=True,
        allowed=">= 0",
        effect=MIGRATION,
    ),
    "migration_mode": Param(
        "string",
        "live",
        "kind of migration unless the command chooses another: live or with a pause",
        required=True,
        allowed=("live", "non-live"),
        cluster_only=True,
        effect=MIGRATION,
    ),
    "migration_port": Param(
        "int",
        8102,
        "TCP port at which the target node receives migrations",
        required=True,
        allowed="1..65534",
        cluster_only=True,
        effect=MIGRATION,
    ),
    "nic_type": Param(
        "string",
        "paravirtual",
        "model of the network interfaces, paravirtual is virtio",
        required=True,
        allowed=(
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
    ),
    "reboot_behavior": Param(
        "string",
        "reboot",
        "what a reboot from inside does: reboot the guest, or exit and stay down",
        required=True,
        allowed=("reboot", "exit"),
    ),
    "root_path": Param(
        "maybe-string",
        "/dev/vda1",
        "root device for direct kernel boot",
        form=forms.LINE,
    ),
    "scsi_controller_type": Param(
        "string",
        "lsi",
        "SCSI controller model",
        required=True,
        allowed=("lsi", "megasas", "virtio-scsi-pci"),
    ),
    "security_domain": Param(
        "string",
        "",
        "user to run as with security_model user",
        form=forms.USER,
        root=forms.ANY,
    ),
    "security_model": Param(
        "string",
        "none",
        "user of the emulator: root, one of the uid pool, or the security_domain",
        required=True,
        allowed=("none", "pool", "user"),
        root=forms.ANY,
    ),
    "serial_console": Param("bool", True, "provide a serial console"),
    "serial_speed": Param("int", 38400, "baud rate of the serial console"),
    "shared_directories": Param(
        "string",
        "",
        "directories of the node that the guest mounts by virtio-fs, by their tags",
        allowed="TAG=DIRECTORY, separated by colons",
        form=forms.LINE,
        root=forms.ANY,
        added=True,
    ),
    "soundhw": Param("string", "", "sound cards of the guest", form=forms.SOUND),
    "spice_bind": Param("string", "", "SPICE address or interface", form=forms.LINE),
    "spice_image_compression": Param(
        "string",
        "",
        "lossless compression of images by SPICE",
        allowed=("auto_glz", "auto_lz", "glz", "lz", "off", "quic"),
    ),
    "spice_ip_version": Param(
        "int",
        0,
        "IP version of the address if spice_bind names an interface, 0 for any",
        allowed="0, 4 or 6",
    ),
    "spice_jpeg_wan_compression": Param(
        "string",
        "",
        "compression of images with JPEG by SPICE on slow links",
        allowed=("always", "auto", "never"),
    ),
    "spice_password_file": node_file("", "file with the SPICE password"),
    "spice_playback_compression": Param(
        "bool", True, "compress the sound that SPICE clients play"
    ),
    "spice_streaming_video": Param(
        "string",
        "",
        "detection of video streams by SPICE",
        allowed=("all", "filter", "off"),
    ),
    "spice_tls_ciphers": Param(
        "string",
        "HIGH:-DES:-3DES:-EXPORT:-DH",
        "TLS ciphers that SPICE accepts, in the notation of OpenSSL",
        form=forms.CIPHERS,
    ),
    "spice_use_tls": Param("bool", False, "encrypt SPICE with TLS"),
    "spice_use_vdagent": Param(
        "bool", True, "provide the channel of the SPICE agent in the guest"
    ),
    "spice_zlib_glz_wan_compression": Param(
        "string",
        "",
        "compression of images with GLZ by SPICE on slow links",
        allowed=("always", "auto", "never"),
    ),
    "swtpm_path": node_file(
        "/usr/bin/swtpm", "program of the TPM on the nodes", added=True
    ),
    "tpm": Param("bool", False, "provide a TPM 2.0 of the guest's own", added=True),
    "uefi_code_path": node_file(
        "/usr/share/OVMF/OVMF_CODE_4M.fd",
        "program of the UEFI firmware on the nodes",
        added=True,
    ),
    "uefi_vars_path": node_file(
        "/usr/share/OVMF/OVMF_VARS_4M.fd",
        "UEFI variables of a guest at its first start; must fit uefi_code_path",
        added=True,
    ),
    "usb_devices": Param(
        "string", "", "USB devices, comma separated", form=forms.USB, root=forms.ANY
    ),
    "usb_mouse": Param("string", "", "USB pointer type", allowed=("mouse", "tablet")),
    "use_chroot": Param(
        "bool",
        False,
        "run the emulator in an empty directory as its root",
        root=forms.OFF,
    ),
    "use_guest_agent": Param("bool", False, "provide the guest agent channel"),
    "use_localtime": Param(
        "bool", False, "the guest's clock shows local time instead of UTC"
    ),
    "user_shutdown": Param(
        "bool", False, "keep the instance recorded as down after a shutdown from inside"
    ),
    "vga": Param(
        "string",
        "",
        "model of the VGA adapter, such as std or virtio; empty for the default of QEMU",
        form=forms.NAME,
    ),
    "vhost_net": Param(
        "bool", True, "move packets of virtio interfaces in the kernel of the node"
    ),
    "virtio_net_queues": Param(
        "int",
        1,
        "queues per virtio interface; more than 1 needs vhost_net",
        allowed="1..8",
    ),
    "virtio_rng": Param(
        "bool", False, "provide random numbers of the node to the guest", added=True
    ),
    "virtiofsd_path": node_file(
        "/usr/lib/qemu/virtiofsd",
        "program that shares directories, on the nodes",
        added=True,
    ),
    "vnc_bind_address": Param(
        "string",
        "",
        "VNC address, interface or socket directory",
        form=forms.LINE,
        root=forms.PATH,
    ),
    "vnc_password_file": node_file("", "file with the VNC password"),
    "vnc_tls": Param("bool", False, "use TLS for VNC"),
    "vnc_x509_path": Param(
        "string",
        "",
        "directory with VNC certificates",
        allowed="absolute path of an existing directory",
        form=forms.ABSOLUTE,
        root=forms.ANY,
    ),
    "vnc_x509_verify": Param("bool", False, "ask VNC clients for certificates"),
    "vnet_hdr": Param("bool", True, "virtio network header on taps"),
}
