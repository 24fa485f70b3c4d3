"""Boot files of tiny guests: a Debian kernel and an initial RAM disk.

The RAM disk is a cpio archive of busybox, a few kernel modules and the scripts in
``guest``. It is not compressed: unpacking it on an emulated processor takes longer than
loading it.
"""

import os
import pathlib
import stat

HERE = pathlib.Path(__file__).resolve().parent
BUSYBOX = "/bin/busybox"
#: Kernel modules in this order, each after its dependencies.
MODULES = (
    "virtio_pci",
    "virtio_blk",
    "virtio_net",
    "virtio_balloon",
    "virtio-rng",
    "xen-blkfront",
    "xen-netfront",
    "crc32c_generic",
    "ext4",
    "ata_piix",
    "sd_mod",
    "evdev",
    "isofs",
    "button",
)
_DIRECTORY = stat.S_IFDIR | 0o755
_PROGRAM = stat.S_IFREG | 0o755
_TEXT = stat.S_IFREG | 0o644


def find_kernel(boot: str = "/boot", modules: str = "/lib/modules") -> tuple[str, str]:
    """Return the newest kernel that has modules: its path and its version."""
    prefix = "vmlinuz-"
    versions = sorted(
        name[len(prefix) :]
        for name in os.listdir(boot)
        if name.startswith(prefix) and os.path.isdir(f"{modules}/{name[len(prefix) :]}")
    )
    if not versions:
        raise SystemExit(f"no kernel in {boot} with its modules in {modules}")
    return f"{boot}/{prefix}{versions[-1]}", versions[-1]


def module_files(version: str, root: str = "/lib/modules") -> list[pathlib.Path]:
    """Return the module files to load, dependencies first."""
    base = pathlib.Path(root) / version
    needs: dict[str, tuple[str, list[str]]] = {}
    for line in (base / "modules.dep").read_text().splitlines():
        path, _, rest = line.partition(":")
        needs[_module_name(path)] = (path, rest.split())
    ordered: list[str] = []

    def add(path: str) -> None:
        for need in needs[_module_name(path)][1]:
            if need not in ordered:
                add(need)
        if path not in ordered:
            ordered.append(path)

    for name in MODULES:
        if name in needs:
            add(needs[name][0])
    return [base / path for path in ordered]


def _module_name(path: str) -> str:
    return os.path.basename(path).split(".ko")[0]


def _entry(number: int, name: str, mode: int, data: bytes, rdev: int = 0) -> bytes:
    """Return one member of a cpio archive in the format that kernels read."""
    raw = name.encode() + b"\0"
    fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0)
    fields += (rdev >> 8, rdev & 255, len(raw), 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + raw
    return _padded(head) + _padded(data)


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)


def _busybox() -> bytes:
    try:
        return pathlib.Path(BUSYBOX).read_bytes()
    except FileNotFoundError as err:
        raise SystemExit(
            f"{BUSYBOX} is missing on this node; it is in the package busybox-static"
        ) from err


def initrd(version: str, init: str = "init") -> bytes:
    """Return the initial RAM disk for a kernel version; end if busybox is missing.

    Args:
        version: of the kernel.
        init: name of the first process in ``guest``.
    """
    modules = module_files(version)
    listing = "\n".join(_module_name(path.name) for path in modules) + "\n"
    members: list[tuple[str, int, bytes, int]] = [
        *((name, _DIRECTORY, b"", 0) for name in ("bin", "dev", "etc", "lib", "sbin")),
        ("etc/acpi", _DIRECTORY, b"", 0),
        ("etc/acpi/PWRF", _DIRECTORY, b"", 0),
        ("dev/console", stat.S_IFCHR | 0o600, b"", 5 << 8 | 1),
        ("bin/busybox", _PROGRAM, _busybox(), 0),
        ("init", _PROGRAM, (HERE / "guest" / init).read_bytes(), 0),
        ("bin/ganeti-install", _PROGRAM, (HERE / "guest/install").read_bytes(), 0),
        ("bin/tiny-login", _PROGRAM, (HERE / "guest/tiny-login").read_bytes(), 0),
        ("etc/acpi/PWRF/00000080", _PROGRAM, (HERE / "guest/power").read_bytes(), 0),
        # The kernel calls these when Xen asks the guest to shut down or to reboot.
        ("sbin/poweroff", _PROGRAM, (HERE / "guest/power").read_bytes(), 0),
        ("sbin/reboot", _PROGRAM, (HERE / "guest/power").read_bytes(), 0),
        ("etc/modules", _TEXT, listing.encode(), 0),
        ("etc/passwd", _TEXT, b"root::0:0:root:/root:/bin/sh\n", 0),
        ("etc/profile", _TEXT, b"PS1='\\h:\\w# '\n", 0),
    ]
    for path in modules:
        name = f"lib/{_module_name(path.name)}.ko"
        members.append((name, _TEXT, path.read_bytes(), 0))
    members.append(("TRAILER!!!", 0, b"", 0))
    return b"".join(_entry(i, *member) for i, member in enumerate(members, 1))
