"""Start of a machine below Xen: the emulator loads Xen, and Xen the kernel.

The machine is the first domain, which needs no support of virtualisation by the
processor, as paravirtual guests do not. So both run under the emulator.
"""

import gzip

from lab.product import PACKAGES, STORED, LabError

#: Console of the first domain; Xen passes it on to the serial line.
CONSOLE = "hvc0"
#: The first domain gets this part of the memory; guests and Xen itself get the rest.
_PART = 0.7
_IMAGE = STORED / "xen"


def boot_argv(kernel, line, initramfs, memory_mib):
    """Return the emulator's options for the start of Xen with a first domain.

    Args:
        kernel: file of the first domain's kernel.
        line: command line of this kernel.
        initramfs: file with its first programs.
        memory_mib: memory of the machine.

    Raises:
        LabError: the packages of the lab have no Xen.
    """
    own = int(memory_mib * _PART)
    options = (
        f"console=com1 dom0_mem={own}M,max:{own}M no-watchdog spec-ctrl=no xpti=no"
    )
    modules = f"{_escaped(kernel)} {_escaped(line)},{_escaped(initramfs)}"
    return ("-kernel", _image(), "-append", options, "-initrd", modules)


def _escaped(text):
    """Return a part of a list that the emulator splits at commas."""
    return str(text).replace(",", ",,")


def _image():
    """Return Xen's file, which the emulator wants without compression."""
    packed = sorted((PACKAGES / "boot").glob("xen-*-amd64.gz"))
    if not packed:
        raise LabError(f"no Xen in {PACKAGES}: run autotools/setup-env --lab")
    if not _IMAGE.exists() or _IMAGE.stat().st_mtime < packed[-1].stat().st_mtime:
        new = _IMAGE.with_suffix(".new")
        new.write_bytes(gzip.decompress(packed[-1].read_bytes()))
        new.rename(_IMAGE)
    return _IMAGE
