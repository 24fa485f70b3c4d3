"""One machine: a QEMU process, its disks, and its control socket."""

import asyncio
import contextlib
import os
import pathlib
import select
import shutil
import signal
import subprocess
import time

from qemu.qmp import ExecuteError, QMPClient, QMPError

from lab import initramfs, network, xen
from lab.product import PACKAGES, PRODUCT, TOP, LabError, check

#: The product's wheels need at least this processor; more features are slower to emulate.
_PROCESSOR = "Nehalem"
_READY = b"LAB READY"
_FAILED = b"LAB FAILED"
#: Exit code of the SSH client without a connection.
_NO_CONNECTION = 255
#: Top directories that the machines see; another one, with the tree in it, is hidden.
_SYSTEM = {"bin", "boot", "dev", "etc", "lib", "lib64", "opt", "proc", "root", "run",
           "sbin", "srv", "sys", "tmp", "usr", "var"}  # fmt: skip


class Machine:
    """A machine of the lab; all its files are in one directory.

    Args:
        directory: of the machine.
        number: from 1.
        namespace: the lab's network.
        memory_mib: size of its memory.
        disks: number of the disks for volume groups.
        has_xen: whether Xen starts first, and the machine is its first domain.
    """

    def __init__(
        self, directory, number, *, namespace, memory_mib, disks, has_xen=False
    ):
        self.directory = pathlib.Path(directory)
        self.number = number
        self.name = f"lab{number}"
        self.namespace = namespace
        self.memory_mib = memory_mib
        self.disks = disks
        self.has_xen = has_xen
        self.files = self.directory / "files"
        self.console = self.directory / "console.log"
        self._control = self.directory / "qmp.sock"
        self._pid_file = self.directory / "pid"
        # The paths of sockets are short.
        self._luxi = f"/run/{namespace}-{self.name}.luxi"

    @property
    def full_name(self):
        """Host name with the lab's domain."""
        return f"{self.name}.lab.test"

    @property
    def address(self):
        """Address in the machines' network."""
        return network.address(self.number)

    def image(self, disk):
        """Return the file of a disk for volume groups; 0 is the first one."""
        return self.directory / f"disk{disk}.img"

    def make(self, *, disk_mib):
        """Make the disks: the machine's own one, and empty ones for volume groups."""
        self.directory.mkdir(parents=True, exist_ok=True)
        own = self.directory / "own.img"
        with open(own, "wb") as out:
            out.truncate(4 << 30)
        check(
            *("mke2fs", "-q", "-F", "-t", "ext4", "-E", "lazy_itable_init=1"),
            *("-O", "^metadata_csum", own),
        )
        for disk in range(self.disks):
            with open(self.image(disk), "wb") as out:
                out.truncate(disk_mib << 20)

    def pid(self):
        """Return the process id of a running QEMU, None if the machine is off."""
        try:
            pid = int(self._pid_file.read_text())
            words = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError):
            return None
        return pid if os.fsencode(self._pid_file) in words else None

    def power_on(self):
        """Start QEMU, unless it runs.

        Raises:
            LabError: QEMU refuses.
        """
        if self.pid() is not None:
            return
        self.console.unlink(missing_ok=True)
        check(*network.inside(self.namespace, *self._argv()))

    def power_off(self):
        """Take the power away, as pulling the plug does."""
        pid = self.pid()
        if pid is None:
            return
        ended = os.pidfd_open(pid)
        try:
            os.kill(pid, signal.SIGKILL)
            # A killed process ends as soon as the kernel lets it; readable is ended.
            select.select([ended], [], [])
        finally:
            os.close(ended)
        self._pid_file.unlink(missing_ok=True)

    def wait_until_ready(self, timeout_s):
        """Wait until the machine has started and lets somebody log in.

        QEMU accepts connections before the machine's SSH server does, and resets them.

        Raises:
            LabError: it failed, or did not start in time.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            printed = self.console.read_bytes() if self.console.exists() else b""
            if _READY in printed and self._can_log_in():
                return
            if _FAILED in printed or self.pid() is None or time.monotonic() > deadline:
                tail = printed[-1500:].decode(errors="replace")
                raise LabError(f"{self.name} did not start:\n{tail}")
            time.sleep(0.2)

    def _can_log_in(self):
        done = subprocess.run(
            [*self.ssh(), "true"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        return done.returncode != _NO_CONNECTION

    def _argv(self):
        argv = [
            *(
                "qemu-system-x86_64",
                "-nodefaults",
                "-no-user-config",
                "-display",
                "none",
            ),
            *("-machine", "pc", "-accel", "tcg,thread=multi,tb-size=160"),
            *("-cpu", _PROCESSOR, "-m", str(self.memory_mib), "-smp", "1"),
            *self._boot_argv(),
            *("-serial", f"file:{self.console}", "-device", "virtio-rng-pci"),
            *("-qmp", f"unix:{self._control},server=on,wait=off"),
            *("-daemonize", "-pidfile", self._pid_file),
        ]
        for tag, path in (
            ("root", "/"),
            ("packages", PACKAGES),
            ("product", PRODUCT),
            ("machine", self.files),
        ):
            share = f"local,id={tag},path={path},security_model=none,readonly=on"
            argv += ["-fsdev", f"{share},multidevs=remap"]
            argv += ["-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]
        argv += self._disk_argv("own", self.directory / "own.img")
        for disk in range(self.disks):
            argv += self._disk_argv(f"disk{disk}", self.image(disk))
        mac = network.hardware_address(self.number)
        tap = network.port(self.number)
        argv += ["-netdev", f"tap,id=net0,ifname={tap},script=no,downscript=no"]
        argv += ["-device", f"virtio-net-pci,netdev=net0,mac={mac},romfile="]
        forward = f"hostfwd=tcp:127.0.0.1:{self.ssh_port}-10.0.2.15:22"
        argv += ["-netdev", f"user,id=net1,restrict=on,{forward}"]
        argv += ["-device", "virtio-net-pci,netdev=net1,romfile="]
        return [str(word) for word in argv]

    def _disk_argv(self, name, image):
        # Two nodes: another one can be put between them while the machine runs.
        file = f"driver=file,node-name={name}-file,filename={image}"
        device = f"virtio-blk-pci,drive={name},id={name}-device,serial={name}"
        return [
            *("-blockdev", f"{file},discard=unmap,locking=off"),
            *("-blockdev", f"driver=raw,node-name={name},file={name}-file"),
            *("-device", f"{device},werror=report,rerror=report"),
        ]

    def _boot_argv(self):
        line = self._kernel_line()
        if self.has_xen:
            kernel, _release = initramfs.kernel()
            return xen.boot_argv(kernel, line, initramfs.ARCHIVE, self.memory_mib)
        files = ("-kernel", initramfs.KERNEL, "-initrd", initramfs.ARCHIVE)
        return (*files, "-append", line)

    def _kernel_line(self):
        parts = TOP.resolve().parts
        hidden = f"/{parts[1]}" if parts[1] not in _SYSTEM else str(TOP.parent)
        # Time would be measured by a processor that is emulated: no checks of it. The one
        # of the timer ends the kernel if the emulator gets too little of this machine.
        console = xen.CONSOLE if self.has_xen else "ttyS0"
        return (
            f"console={console} quiet loglevel=4 panic=1 net.ifnames=0 mitigations=off"
            f" nowatchdog no_timer_check random.trust_cpu=on lab.hide={hidden}"
        )

    @property
    def ssh_port(self):
        """Port in the lab's namespace that leads to the machine's SSH server."""
        return 2200 + self.number

    def ssh(self, *options):
        """Return the start of a command line that logs in."""
        return network.inside(
            self.namespace,
            *("ssh", "-F", "none", "-p", str(self.ssh_port), "-l", "root"),
            *("-i", str(self.directory.parent / "key"), "-o", "IdentitiesOnly=yes"),
            *("-o", "UserKnownHostsFile=/dev/null", "-o", "StrictHostKeyChecking=no"),
            *("-o", "LogLevel=ERROR", "-o", "ConnectTimeout=60"),
            *("-o", "ServerAliveInterval=15", "-o", "ControlMaster=auto"),
            *("-o", f"ControlPath={self.directory}/ssh", "-o", "ControlPersist=600"),
            *("-o", "StreamLocalBindUnlink=yes"),
            *options,
            "127.0.0.1",
        )

    def master_socket(self):
        """Return a socket of this side that leads to the machine's master daemon.

        Raises:
            LabError: nobody can log in to the machine.
        """
        route = f"{self._luxi}:/run/ganeti/socket/ganeti-query"
        argv = self.ssh("-O", "forward", "-L", route)
        if subprocess.run(argv, capture_output=True, check=False).returncode:
            # There is no connection yet, or its machine was switched off.
            check(*self.ssh(), "true")
            check(*argv)
        return self._luxi

    def fail_disk(self, disk, *, reads=True, writes=True):
        """Let a disk return errors from now on; flushes alone succeed.

        QEMU flushes a disk when it is mended.

        Raises:
            LabError: QEMU refuses.
        """
        kinds = (["read"] if reads else []) + (["write"] if writes else [])
        bad = {
            "driver": "blkdebug",
            "node-name": f"disk{disk}-bad",
            "image": f"disk{disk}-file",
            "inject-error": [
                {"event": "none", "iotype": kind, "once": False, "errno": 5}
                for kind in kinds
            ],
        }
        self._reopen(disk, f"disk{disk}-file")
        with contextlib.suppress(LabError):
            self.control("blockdev-del", {"node-name": bad["node-name"]})
        self.control("blockdev-add", bad)
        self._reopen(disk, bad["node-name"])

    def mend_disk(self, disk):
        """Undo `fail_disk`."""
        self._reopen(disk, f"disk{disk}-file")
        with contextlib.suppress(LabError):
            self.control("blockdev-del", {"node-name": f"disk{disk}-bad"})

    def _reopen(self, disk, below):
        options = {"driver": "raw", "node-name": f"disk{disk}", "file": below}
        self.control("blockdev-reopen", {"options": [options]})

    def control(self, command, arguments=None):
        """Return the answer of QEMU's control socket.

        Raises:
            LabError: QEMU refuses, or the machine is off.
        """
        return asyncio.run(self._execute(command, arguments))

    async def _execute(self, command, arguments):
        client = QMPClient(self.name)
        try:
            await client.connect(str(self._control))
            return await client.execute(command, arguments)
        except ExecuteError as err:
            raise LabError(f"{self.name}: {command}: {err}") from err
        except (OSError, QMPError) as err:
            raise LabError(
                f"{self.name}: no control of QEMU; is it off? {err}"
            ) from err
        finally:
            with contextlib.suppress(Exception):
                await client.disconnect()

    def remove(self):
        """Power off and delete all files."""
        self.power_off()
        subprocess.run(self.ssh("-O", "exit"), capture_output=True, check=False)
        pathlib.Path(self._luxi).unlink(missing_ok=True)
        shutil.rmtree(self.directory, ignore_errors=True)
