"""Real guests for tests: KVM instances that boot the tiny OS, their consoles and images."""

import contextlib
import glob
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from typing import Any, Self

from fakes import nodes
from ganeti.base.constants.parameters import hvparams

TINY = str(pathlib.Path(__file__).parents[3] / "tools/os/tiny")
#: Seconds for a guest to boot on a busy machine; 3 are usual.
BOOT_S = 90


def make_boot(directory: str) -> None:
    """Write kernel and RAM disk of tiny guests."""
    subprocess.run([f"{TINY}/make-boot", directory], check=True, capture_output=True)


def kvm_params(boot: str | None = None, **more: Any) -> dict[str, Any]:
    """Return filled parameters; with boot files the guest needs no disk."""
    actual = {name: row.default for name, row in hvparams.HYPERVISOR["kvm"].items()}
    actual |= {"kvm_flag": "disabled", "kernel_path": "", "vhost_net": False}
    if boot:
        actual |= {"kernel_path": f"{boot}/vmlinuz", "initrd_path": f"{boot}/initrd"}
        actual |= {"kernel_args": "quiet no_timer_check"}
    return actual | more


def kvm_instance(name: str, params: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return an instance under KVM in wire form."""
    beparams = {"maxmem": 128, "minmem": 128, "vcpus": 1}
    more = {"beparams": beparams, "uuid": nodes.UUID.format(200)} | more
    return nodes.instance(name, hypervisor="kvm", hvparams=params, **more)


def with_ballast(directory: str, memory_mib: int = 96) -> tuple[str, ...]:
    """Return options of ``gnt-instance add`` for a guest that takes long to migrate.

    A guest that has hardly begun uses little memory, and empty pages are not sent: at
    1 MiB/s it may be gone before a test looks. This one has something in all its memory
    but 32 MiB, from the start.
    """
    path = pathlib.Path(directory, "ballast")
    if not path.exists():
        path.write_bytes(b"x" * ((memory_mib - 32) << 20))
    loader = f"-device loader\\,file={path}\\,addr={16 << 20}\\,force-raw=on"
    return ("-H", f"kvm:kvm_extra={loader}", "-B", f"memory={memory_mib}M")


@contextlib.contextmanager
def short_directory():
    """Make a directory whose name leaves room for socket paths, and end what is there.

    Emulators that a failed test left behind are ended with it.
    """
    path = tempfile.mkdtemp(prefix="gt", dir="/tmp")
    try:
        yield path
    finally:
        for file in glob.glob(f"{path}/*/var/run/ganeti/kvm-hypervisor/pid/*"):
            with open(file) as src, contextlib.suppress(ProcessLookupError, ValueError):
                os.kill(int(src.read()), signal.SIGKILL)
        shutil.rmtree(path, ignore_errors=True)


class Console:
    """A guest's serial console; all its output is in ``text``."""

    def __init__(self, node: Any, name: str) -> None:
        path = f"{node.paths.run_dir}/kvm-hypervisor/ctrl/{name}.serial"
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._socket.settimeout(0.2)
        self.text = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._socket.close()

    def send(self, text: str) -> None:
        self._socket.sendall(text.encode())

    def wait_for(self, pattern: str, timeout_s: float = BOOT_S) -> "re.Match[str]":
        """Read until a pattern is there; return its last match."""
        end = time.monotonic() + timeout_s
        while True:
            actual = list(re.finditer(pattern, self.text))
            if actual:
                return actual[-1]
            if time.monotonic() > end:
                raise AssertionError(f"no {pattern!r} in {self.text!r}")
            with contextlib.suppress(TimeoutError):
                data = self._socket.recv(4096)
                if not data:
                    raise AssertionError(f"closed, no {pattern!r} in {self.text!r}")
                self.text += data.decode(errors="replace")

    def login(self) -> None:
        """Log in as root; input that comes before the prompt is lost, so try again."""
        for _ in range(BOOT_S // 2):
            self.text = ""
            self.send("root\r")
            with contextlib.suppress(AssertionError):
                self.wait_for("# ", 2)
                return
        raise AssertionError(f"cannot log in: {self.text!r}")

    def wait_for_counter(self, above: int = -1) -> int:
        """Return the next step of the guest's counter above a number."""
        end = time.monotonic() + BOOT_S
        while time.monotonic() < end:
            count = int(self.wait_for(r"tiny counter (\d+)\r").group(1))
            if count > above:
                return count
            self.text = ""
        raise AssertionError(f"the counter stays at {above}")


MIB = 1 << 20
#: Writes zeros to the second disk from 1 MiB to 16 MiB by the BIOS, powers off by ACPI.
ZEROES = bytes.fromhex(
    "fa31c08ed88ed0bc007cfbfcb800108ec031ffb9004031c0f3abbe3e7cb80043b281cd1372128306"
    "467c40ff0e3c7c75e9ba0406b80020effaf4ebfce00110004000000000100008000000000000"
)
#: Halts, and never ends.
HALTS = bytes.fromhex("faf4ebfc")


def image(directory, code):
    """Write an image that boots into code; return its path on the node."""
    path = f"{directory}/helper.raw"
    with open(path, "wb") as disk:
        disk.write((code.ljust(510, b"\0") + b"\x55\xaa").ljust(MIB, b"\0"))
    return path


def install_image(path):
    """Write the install image that the product makes."""
    subprocess.run(
        [f"{TINY}/make-install-image", path], check=True, capture_output=True
    )
