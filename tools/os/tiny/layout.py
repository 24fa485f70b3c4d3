"""Layout of a tiny disk: boot sector, boot files, one partition.

Sector 0 has loader and partition table. From 1 MiB on there are the kernel, the
initial RAM disk and the kernel's command line; partition 1 takes the rest. A disk too
small for boot files has its partition at 1 MiB and needs a kernel from outside.
"""

import dataclasses
import os
import struct
from typing import BinaryIO

SECTOR = 512
MIB = 1024 * 1024
#: Assembled from boot.S.
LOADER = bytes.fromhex(
    "fa31c08ed88ec08ed0bc007cfb88169e7cbe807d668b44046685c0745f6683f840760666"
    "b840000000a3a27c668b1c66891ea87c665056bea07c8a169e7cb442cd1372575e665866"
    "010466294404668b5c08891eca7c66c1eb10881ecc7c883ecf7c89c1c1e10866c1e00966"
    "01440856beb07cb487cd1572225eeb9883c60c81feb07d728ffab800908ed88ec08ee08e"
    "e88ed0bcf0dfea00002090f4ebfd00901000000000000010000000000000000000000000"
    "000000000000000000000000ffff000001930000ffff00000093"
)
_TABLE_AT = 0x180
_PARTITIONS_AT = 446
_LINUX = 0x83
#: Memory addresses: real-mode part, protected part, RAM disk, command line.
_SETUP_AT, _KERNEL_AT, _INITRD_AT, _CMDLINE_AT = 0x90000, 0x100000, 0x6000000, 0x9E000
#: Least size of the partition, besides boot files.
_MIN_PARTITION = 8 * MIB


@dataclasses.dataclass(frozen=True)
class BootFiles:
    """The files that the boot loader loads."""

    kernel: bytes
    initrd: bytes
    cmdline: str

    @property
    def area(self) -> int:
        """Bytes that the files take on the disk, in whole MiB."""
        size = len(self.kernel) + len(self.initrd) + 16 * SECTOR
        return -(-size // MIB) * MIB


def plan(disk_size: int, boot: BootFiles | None) -> tuple[int, bool]:
    """Return the offset of partition 1, and whether boot files fit before it."""
    if boot is not None and MIB + boot.area + _MIN_PARTITION <= disk_size:
        return MIB + boot.area, True
    return MIB, False


def write(path: str, disk_size: int, boot: BootFiles | None) -> int:
    """Write everything before partition 1; return the partition's offset."""
    start, fits = plan(disk_size, boot)
    with open(path, "r+b") as disk:
        sector = bytearray(SECTOR)
        if boot is not None and fits:
            sector[: len(LOADER)] = LOADER
            rows = _write_files(disk, boot)
            table = b"".join(struct.pack("<III", *row) for row in rows)
            sector[_TABLE_AT : _TABLE_AT + len(table)] = table
        entry = struct.pack(
            "<B3sB3sII",
            0x80,
            b"\xfe\xff\xff",
            _LINUX,
            b"\xfe\xff\xff",
            start // SECTOR,
            (disk_size - start) // SECTOR,
        )
        sector[_PARTITIONS_AT : _PARTITIONS_AT + 16] = entry
        sector[510:] = b"\x55\xaa"
        disk.seek(0)
        disk.write(sector)
        disk.flush()
        os.fsync(disk.fileno())
    return start


def _write_files(disk: BinaryIO, boot: BootFiles) -> list[tuple[int, int, int]]:
    """Write the boot files; return the loader's table."""
    setup_size = (boot.kernel[0x1F1] or 4) * SECTOR + SECTOR
    setup = _filled_header(boot, setup_size)
    parts = (
        (setup, _SETUP_AT),
        (boot.cmdline.encode() + b"\0", _CMDLINE_AT),
        (boot.kernel[setup_size:], _KERNEL_AT),
        (boot.initrd, _INITRD_AT),
    )
    rows = []
    sector = MIB // SECTOR
    for data, address in parts:
        count = -(-len(data) // SECTOR)
        disk.seek(sector * SECTOR)
        disk.write(data.ljust(count * SECTOR, b"\0"))
        rows.append((sector, count, address))
        sector += count
    return rows


def _filled_header(boot: BootFiles, size: int) -> bytes:
    """Return the kernel's real-mode part with a boot loader's fields filled in.

    Offsets are those of the x86 boot protocol, documented with the kernel.
    """
    setup = bytearray(boot.kernel[:size])
    if setup[0x202:0x206] != b"HdrS":
        raise SystemExit("the kernel is no Linux kernel of a known boot protocol")
    setup[0x210] = 0xFF  # a loader without a number of its own
    setup[0x211] |= 0x80  # heap_end_ptr is valid
    struct.pack_into("<II", setup, 0x218, _INITRD_AT, len(boot.initrd))
    struct.pack_into("<H", setup, 0x224, 0xDE00)
    struct.pack_into("<I", setup, 0x228, _CMDLINE_AT)
    return bytes(setup)
