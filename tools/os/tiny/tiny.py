"""Common code of the scripts of this OS definition: environment and disks."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import guest
import layout

MIB = layout.MIB


def env(name: str, default: str | None = None) -> str:
    """Return a variable of the OS interface; end with a message if it is missing."""
    value = os.environ.get(name, default)
    if value is None:
        raise SystemExit(f"{name} is not set: this script is run by the node daemon")
    return value


def parameter(name: str, default: str) -> str:
    """Return an OS parameter."""
    return os.environ.get(f"OSP_{name.upper()}") or default


def disks() -> list[str]:
    """Return the paths of the instance's disks."""
    return [env(f"DISK_{index}_PATH") for index in range(int(env("DISK_COUNT")))]


def size_of(path: str) -> int:
    """Return the size of a file or device."""
    with open(path, "rb") as disk:
        return disk.seek(0, os.SEEK_END)


def check_parameters() -> None:
    """End with a message if a parameter cannot be used."""
    interval = parameter("interval", "1")
    if not (interval.isdigit() and 1 <= int(interval) <= 3600):
        raise SystemExit(
            f"parameter interval: wanted 1 to 3600 seconds, found {interval!r}"
        )
    if "\0" in parameter("motd", "") or len(parameter("motd", "")) > 4096:
        raise SystemExit("parameter motd: wanted at most 4096 characters")


def settings(name: str) -> str:
    """Return the file of settings that a guest reads at boot."""
    heartbeat = "no" if env("OS_VARIANT", "") == "quiet" else "yes"
    interval = parameter("interval", "1")
    return f"name={name}\ninterval={interval}\nheartbeat={heartbeat}\n"


def boot_files() -> layout.BootFiles:
    """Return kernel, RAM disk and command line for disks that boot by themselves."""
    kernel, version = guest.find_kernel()
    speed = env("INSTANCE_HV_serial_speed", "38400")
    cmdline = f"root=/dev/vda1 quiet console=ttyS0,{speed}"
    return layout.BootFiles(
        pathlib.Path(kernel).read_bytes(), guest.initrd(version), cmdline
    )


def install(path: str, name: str) -> None:
    """Create a root disk."""
    start = layout.write(path, size_of(path), boot_files())
    with tempfile.TemporaryDirectory(prefix="tiny-") as directory:
        etc = pathlib.Path(directory) / "etc"
        etc.mkdir()
        (etc / "tiny.conf").write_text(settings(name))
        if motd := parameter("motd", ""):
            (etc / "motd").write_text(motd + "\n")
        make_filesystem(path, start, "tiny", directory)


def make_filesystem(
    path: str, start: int, label: str, directory: str | None = None
) -> None:
    """Create a file system from an offset to the end of a disk."""
    argv = ["mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-L", label]
    argv += ["-E", f"offset={start},lazy_itable_init=1"]
    if directory:
        argv += ["-d", directory]
    run([*argv, path, f"{(size_of(path) - start) // 1024}k"])


def partition_start(path: str) -> int:
    """Return the offset of partition 1 of a disk."""
    with open(path, "rb") as disk:
        sector = disk.read(layout.SECTOR)
    if sector[510:] != b"\x55\xaa":
        raise SystemExit(f"{path}: no partition table")
    return int.from_bytes(sector[454:458], "little") * layout.SECTOR


def rewrite_settings(path: str, name: str) -> None:
    """Write new settings to a root disk that is not mounted."""
    with tempfile.TemporaryDirectory(prefix="tiny-") as directory:
        file = pathlib.Path(directory) / "tiny.conf"
        file.write_text(settings(name))
        target = f"{path}?offset={partition_start(path)}"
        commands = f"rm /etc/tiny.conf\nwrite {file} /etc/tiny.conf\n"
        run(["debugfs", "-w", "-f", "-", target], text=commands)
        shown = subprocess.run(
            ["debugfs", "-R", "cat /etc/tiny.conf", target],
            capture_output=True,
            text=True,
            check=False,
        )
        if shown.stdout != settings(name):
            raise SystemExit(f"{path}: settings were not written: {shown.stderr}")


def run(argv: list[str], text: str | None = None) -> None:
    """Run a program of e2fsprogs; end with a message if it fails or is missing."""
    try:
        result = subprocess.run(argv, input=text, text=True, check=False)
    except FileNotFoundError as err:
        raise SystemExit(
            f"{argv[0]} is missing on this node; it is in the package e2fsprogs"
        ) from err
    if result.returncode:
        print(f"{argv[0]} exited with code {result.returncode}", file=sys.stderr)
        raise SystemExit(1)


def copy_out(path: str) -> None:
    """Write a disk to standard output."""
    with open(path, "rb") as disk:
        shutil.copyfileobj(disk, sys.stdout.buffer, 4 * MIB)
    sys.stdout.buffer.flush()


def copy_in(path: str) -> None:
    """Fill a disk from standard input; end with a message if it is too small."""
    with open(path, "r+b") as disk:
        try:
            shutil.copyfileobj(sys.stdin.buffer, disk, 4 * MIB)
        except OSError as err:
            raise SystemExit(f"{path}: {err.strerror}") from err
        disk.flush()
        os.fsync(disk.fileno())
