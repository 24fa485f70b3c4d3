"""Make what a machine starts with: kernel, and archive of busybox and modules."""

import gzip
import lzma
import pathlib
import shutil
import struct
import subprocess
import tempfile

from lab.product import PACKAGES, STORED, LabError, check

ARCHIVE = STORED / "initramfs.gz"
#: The kernel as it runs: to unpack itself takes it longer than the rest of its start.
KERNEL = STORED / "vmlinux"
_SCRIPT = pathlib.Path(__file__).parent / "guest" / "initramfs-init"
#: Modules that are loaded before the root file system is there; modprobe finds the others.
_EARLY = (
    *("virtio_pci", "virtio_blk", "9p", "9pnet_virtio", "overlay"),
    *("crc32c_generic", "libcrc32c", "ext4"),
)


def kernel():
    """Return the kernel's file and its release.

    Raises:
        LabError: the packages of the lab are missing.
    """
    images = sorted((PACKAGES / "boot").glob("vmlinuz-*"))
    if not images:
        raise LabError(
            f"no kernel in {PACKAGES}: run autotools/setup-env --lab, which unpacks it"
        )
    return images[-1], images[-1].name.removeprefix("vmlinuz-")


def make():
    """Make kernel and archive, unless they are newer than their sources."""
    image, release = kernel()
    newest = max(
        path.stat().st_mtime for path in (_SCRIPT, image, pathlib.Path(__file__))
    )
    if ARCHIVE.exists() and ARCHIVE.stat().st_mtime >= newest and KERNEL.exists():
        return
    KERNEL.write_bytes(unpacked(image.read_bytes()))
    modules = PACKAGES / "usr" / "lib" / "modules" / release
    if not (modules / "modules.dep").exists():
        check("depmod", "-b", PACKAGES / "usr", release)
    with tempfile.TemporaryDirectory() as name:
        root = pathlib.Path(name)
        for folder in ("bin", "modules", "proc", "sys", "dev", "newroot"):
            (root / folder).mkdir()
        shutil.copy("/bin/busybox", root / "bin" / "busybox")
        shutil.copy(_SCRIPT, root / "init")
        (root / "init").chmod(0o755)
        order = in_order(modules, _EARLY)
        for path in order:
            shutil.copy(path, root / "modules")
        (root / "modules" / "order").write_text(
            "".join(f"{path.name}\n" for path in order)
        )
        content = packed(root)
    new = ARCHIVE.with_suffix(".new")
    new.write_bytes(content)
    new.rename(ARCHIVE)


def unpacked(image):
    """Return the kernel in a Linux image, whose header says where it is.

    Header: Documentation/arch/x86/boot.rst of Linux, from setup_sects on.
    """
    sectors = image[0x1F1] or 4
    offset, size = struct.unpack_from("<II", image, 0x248)
    begin = 512 * (sectors + 1) + offset
    return lzma.LZMADecompressor().decompress(image[begin : begin + size])


def packed(root):
    """Return the compressed archive of a directory."""
    listed = subprocess.run(
        ["find", ".", "-print0"], cwd=root, capture_output=True, check=True
    )
    archive = subprocess.run(
        ["cpio", "--null", "-o", "--format=newc", "--quiet"],
        cwd=root, input=listed.stdout, capture_output=True, check=True,
    )  # fmt: skip
    return gzip.compress(archive.stdout, 1)


def in_order(modules, names):
    """Return the files of some modules, each after those that it needs."""
    needs = {}
    for line in (modules / "modules.dep").read_text().splitlines():
        path, _, others = line.partition(":")
        needs[path] = others.split()
    by_name = {pathlib.Path(path).stem: path for path in needs}
    order = []
    for name in names:
        if name not in by_name:
            continue  # built in
        # modules.dep lists the nearest first.
        for path in (*reversed(needs[by_name[name]]), by_name[name]):
            if path not in order:
                order.append(path)
    return [modules / path for path in order]
