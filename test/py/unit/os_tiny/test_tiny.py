"""The OS definition tiny: layout of disks, RAM disk, and what its scripts refuse."""

import os
import pathlib
import shutil
import struct
import subprocess
import sys

import pytest

TINY = pathlib.Path(__file__).parents[4] / "tools/os/tiny"
sys.path.insert(0, str(TINY))

import guest  # noqa: E402
import layout  # noqa: E402
import tiny  # noqa: E402

MIB = 1024 * 1024


def kernel(size=200_000, setup_sectors=3):
    data = bytearray(os.urandom(size))
    data[0x1F1] = setup_sectors
    data[0x202:0x206] = b"HdrS"
    return bytes(data)


@pytest.mark.skipif(
    not (shutil.which("as") and shutil.which("ld")), reason="needs binutils"
)
def test_the_loader_is_what_its_source_says(tmp_path):
    obj, out = tmp_path / "boot.o", tmp_path / "boot.bin"
    subprocess.run(["as", "--32", TINY / "boot.S", "-o", obj], check=True)
    link = ["ld", "-m", "elf_i386", "-Ttext", "0", "--oformat", "binary"]
    subprocess.run([*link, obj, "-o", out], check=True)
    assert out.read_bytes().rstrip(b"\0") == layout.LOADER
    assert len(out.read_bytes()) == 0x180


def test_boot_files_are_where_the_table_says(tmp_path):
    boot = layout.BootFiles(kernel(), os.urandom(70_000), "root=/dev/vda1")
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(32 * MIB))
    start = layout.write(str(disk), 32 * MIB, boot)
    data = disk.read_bytes()
    assert data.startswith(layout.LOADER)
    assert data[510:512] == b"\x55\xaa"
    assert struct.unpack_from("<II", data, 454) == (
        start // 512,
        (32 * MIB - start) // 512,
    )
    rows = list(struct.iter_unpack("<III", data[0x180 : 0x180 + 48]))
    setup, cmdline, rest, initrd = (
        data[sector * 512 : (sector + count) * 512] for sector, count, _ in rows
    )
    assert [row[2] for row in rows] == [0x90000, 0x9E000, 0x100000, 0x6000000]
    assert cmdline.rstrip(b"\0") == b"root=/dev/vda1"
    assert rest.startswith(boot.kernel[4 * 512 :])
    assert initrd.startswith(boot.initrd)
    assert struct.unpack_from("<II", setup, 0x218) == (0x6000000, 70_000)
    assert all(sector * 512 >= MIB for sector, _, _ in rows)
    assert (rows[-1][0] + rows[-1][1]) * 512 <= start


def test_a_small_disk_has_only_a_partition(tmp_path):
    boot = layout.BootFiles(kernel(), os.urandom(70_000), "")
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(4 * MIB))
    assert layout.write(str(disk), 4 * MIB, boot) == MIB
    assert disk.read_bytes()[:446] == bytes(446)


def test_something_that_is_no_kernel_is_refused(tmp_path):
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(32 * MIB))
    boot = layout.BootFiles(bytes(100_000), b"", "")
    with pytest.raises(SystemExit, match="no Linux kernel"):
        layout.write(str(disk), 32 * MIB, boot)


def test_modules_come_after_what_they_need(tmp_path):
    base = tmp_path / "6.1"
    base.mkdir()
    (base / "modules.dep").write_text(
        "k/ext4.ko: k/jbd2.ko k/crc.ko\nk/jbd2.ko: k/crc.ko\nk/crc.ko:\nk/evdev.ko:\n"
    )
    actual = [path.name for path in guest.module_files("6.1", str(tmp_path))]
    assert actual == ["crc.ko", "jbd2.ko", "ext4.ko", "evdev.ko"]


def test_a_guest_of_xen_has_its_drivers_and_hears_requests_of_xen(
    tmp_path, monkeypatch
):
    base = tmp_path / "6.1"
    base.mkdir()
    drivers = ["k/xen-blkfront.ko", "k/xen-netfront.ko"]
    (base / "modules.dep").write_text("".join(f"{path}:\n" for path in drivers))
    (base / "k").mkdir()
    for path in drivers:
        (base / path).write_text(path)
    busybox = tmp_path / "busybox"
    busybox.touch()
    monkeypatch.setattr(guest, "BUSYBOX", str(busybox))
    modules = guest.module_files("6.1", str(tmp_path))
    monkeypatch.setattr(guest, "module_files", lambda _version: modules)
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    subprocess.run(
        ["cpio", "-i", "--quiet", "--nonmatching", "dev/*"],
        cwd=unpacked, input=guest.initrd("6.1"), check=True,
    )  # fmt: skip
    assert (unpacked / "etc/modules").read_text() == "xen-blkfront\nxen-netfront\n"
    power = (TINY / "guest/power").read_bytes()
    for name in ("poweroff", "reboot"):
        # The kernel runs these.
        assert (unpacked / "sbin" / name).read_bytes() == power
        assert os.access(unpacked / "sbin" / name, os.X_OK)


def verify(*args, **variables):
    return subprocess.run(
        [TINY / "verify", *args],
        env={"PATH": "/usr/bin:/bin", **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def test_verification_of_parameters():
    assert verify("parameters", OSP_INTERVAL="5").returncode == 0
    wrong = verify("parameters", OSP_INTERVAL="soon")
    assert wrong.returncode == 1
    assert "wanted 1 to 3600 seconds, found 'soon'" in wrong.stderr
    assert verify("colours").returncode == 1


def test_a_missing_program_is_named_with_its_package(tmp_path, monkeypatch):
    disk = tmp_path / "disk"
    disk.write_bytes(bytes(4 * MIB))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match=r"mke2fs is missing.* package e2fsprogs"):
        tiny.make_filesystem(str(disk), 0, "data1")
    monkeypatch.setattr(guest, "BUSYBOX", str(tmp_path / "busybox"))
    monkeypatch.setattr(guest, "module_files", lambda _version: [])
    with pytest.raises(SystemExit, match=r"missing.* package busybox-static"):
        guest.initrd("6.1")


@pytest.mark.parametrize("words", [[], ["--help"], ["a", "b"]])
def test_the_maker_of_install_images_wants_one_file(words):
    done = subprocess.run(
        [TINY / "make-install-image", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "usage: make-install-image FILE\n"


def test_the_program_of_install_images_needs_its_disks(tmp_path):
    """It writes nothing where it finds no helper machine, and ends the machine."""
    text = (TINY / "guest/install").read_text()
    assert text.count("poweroff -f\n") == 1
    program = text.replace("/dev/", f"{tmp_path}/").replace("poweroff -f", "echo off")
    done = subprocess.run(
        ["/bin/sh", "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout == "off\n"
    assert "this is no helper machine" in done.stderr
    assert os.listdir(tmp_path) == []
