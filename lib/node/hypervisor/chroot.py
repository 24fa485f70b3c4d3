"""Driver for chroot: programs of an instance in its own root directory on the node.

The first disk is mounted on ``chroot-hypervisor/NAME`` below the run directory, and a
script in it starts and stops the programs. They share the network, the processors, the
memory and the process numbers of the node, and root inside is root of the node: this
keeps file systems apart, not users. Specified in the hypervisor document, section 6.
"""

import os
import re
import shutil
import stat
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors, process
from ganeti.base.filesystem import files
from ganeti.model.objects.filled import InstanceX
from ganeti.node.hypervisor.base import (
    AttachedDisk,
    GuestState,
    Hypervisor,
    InstanceInfo,
    NodeEffects,
    check_instance_name,
    run_bounded,
)

#: Seconds for a script, and for the programs that list and end processes.
_SCRIPT_S: Final = 300.0
#: Bytes of the log of a guest's script; of more output the last are kept.
_MAX_LOG: Final = 16 * 1024 * 1024
_TIMEOUT_S: Final = 60.0
_MAX_OUTPUT: Final = 1 << 24
#: Seconds that the kernel has to remove killed processes.
_KILL_WAIT_S: Final = 2.0
_PROGRAMS: Final = ("mount", "umount", "chroot", "fuser")
_OUTPUT_LENGTH: Final = 300


class ChrootHypervisor(Hypervisor):
    """Programs in root directories of their own."""

    name = "chroot"
    has_migration = False

    @property
    def _base(self) -> str:
        """Directory of the mount points, as the kernel names it: /var/run is a link."""
        return os.path.realpath(f"{self._effects.paths.run_dir}/chroot-hypervisor")

    def _root(self, name: str) -> str:
        return f"{self._base}/{check_instance_name(name)}"

    def _run(self, *argv: str, timeout_s: float = _TIMEOUT_S) -> process.RunResult:
        try:
            return self._effects.process.run(argv, timeout_s=timeout_s)
        except errors.CommandError as err:
            raise errors.HypervisorError(f"hypervisor chroot: {err}") from err

    # Start and end
    def start(
        self, instance: InstanceX, disks: Sequence[AttachedDisk], *, paused: bool
    ) -> None:
        """Mount the first disk and run the script in it with ``start``."""
        del paused
        name, root = instance.name, self._root(instance.name)
        if not disks:
            raise errors.HypervisorError(
                f"instance {name}: hypervisor chroot needs a disk with a file system"
            )
        script = self._script(instance.hvparams)
        os.makedirs(root, mode=0o700, exist_ok=True)
        try:
            if not _is_mounted(root):
                self._mount(name, disks[0], root)
            if _users(self._effects, root):
                raise errors.HypervisorError(f"instance {name}: already running")
            self._run_script(name, root, script, "start")
        except errors.GenericError:
            if not self._is_live(name):
                self.cleanup(name)
            raise

    def _mount(self, name: str, attached: AttachedDisk, root: str) -> None:
        path = os.path.realpath(attached.path)
        options = ["ro"] if attached.disk.mode == "ro" else []
        if stat.S_ISREG(os.stat(path).st_mode):
            options.append("loop")
        words = ("-o", ",".join(options)) if options else ()
        result = self._run("mount", *words, "--", path, root)
        if result.failed:
            raise errors.HypervisorError(
                f"instance {name}: disk {attached.disk.uuid}: cannot be mounted on"
                f" {root}: {_shortened(result)}"
            )

    def _run_script(self, name: str, root: str, script: str, action: str) -> None:
        if not os.path.lexists(f"{root}{script}"):
            raise errors.HypervisorError(
                f"instance {name}: its first disk has no {script}, which parameter"
                " init_script names"
            )
        # Programs that the script starts may keep its outputs open.
        log = f"{self._effects.paths.log_dir}/chroot/{name}.log"
        os.makedirs(os.path.dirname(log), mode=0o750, exist_ok=True)
        with process.kept_short(log, _MAX_LOG):
            result = self._effects.process.run(
                ("chroot", root, script, action), timeout_s=_SCRIPT_S, output_file=log
            )
        if result.failed:
            raise errors.HypervisorError(
                f"instance {name}: {script} {action} in {root} {result.reason}; see"
                f" {log}"
            )

    def _script(self, hvparams: Mapping[str, Any]) -> str:
        self.check_syntax(hvparams)
        return str(hvparams["init_script"])

    def stop(
        self,
        name: str,
        *,
        hvparams: Mapping[str, Any],
        force: bool,
        retry: bool = False,
    ) -> None:
        """Run the script with ``stop`` at the first request, then end all programs."""
        root = self._root(name)
        if not self._is_live(name):
            return
        if not force and not retry:
            self._run_script(name, root, self._script(hvparams), "stop")
        if not self._is_live(name):
            return
        # Its exit code says only whether there was a process.
        self._run("fuser", "-k", "-KILL" if force else "-TERM", "-M", "-m", root)
        if force:
            self._effects.sleep(_KILL_WAIT_S)
            if self._is_live(name):
                raise errors.HypervisorError(
                    f"instance {name}: programs in {root} do not end; see"
                    f" 'fuser -v -m {root}' there"
                )

    def cleanup(self, name: str) -> None:
        """Unmount the file systems of an instance without programs, the inner first.

        Raises:
            HypervisorError: programs use them; names the file system.
        """
        root = self._root(name)
        if self._is_live(name):
            raise errors.HypervisorError(
                f"instance {name}: cannot clean up, programs in {root} are running"
            )
        for path in reversed(_mounts_below(root)):
            result = self._run("umount", "--", path)
            if result.failed:
                raise errors.HypervisorError(
                    f"instance {name}: cannot unmount {path}: {_shortened(result)}"
                )
        try:
            os.rmdir(root)
        except FileNotFoundError:
            return
        except OSError as err:
            raise errors.HypervisorError(
                f"instance {name}: cannot remove {root}: {err.strerror}"
            ) from err

    def reboot(self, instance: InstanceX) -> None:
        """Refuse: nothing in the directory can start its programs again."""
        raise errors.HypervisorError(
            f"instance {instance.name}: hypervisor chroot does not support this reboot;"
            " reboot it with type hard or full"
        )

    # Query
    def _is_live(self, name: str) -> bool:
        """Return whether a program uses the file system of an instance."""
        root = self._root(name)
        return _is_mounted(root) and _users(self._effects, root)

    def list_names(self) -> list[str]:
        """Return the names of instances with programs on this node, sorted."""
        try:
            names = sorted(os.listdir(self._base))
        except FileNotFoundError:
            return []
        return [name for name in names if self._is_live(name)]

    def info(self, name: str) -> InstanceInfo | None:
        """Return one instance without sizes, as it has none; None if it is not here."""
        return _described(name) if self._is_live(name) else None

    def all_infos(self) -> list[InstanceInfo]:
        """Return all instances on this node, in the order of their names."""
        return [_described(name) for name in self.list_names()]

    def verify(self, hvparams: Mapping[str, Any] | None = None) -> str | None:
        """Return the reason why instances cannot run on this node, or None."""
        del hvparams
        missing = [
            name for name in _PROGRAMS if not shutil.which(name, path=process.SAFE_PATH)
        ]
        if missing:
            return f"programs {', '.join(missing)} are not installed"
        try:
            os.makedirs(self._base, mode=0o700, exist_ok=True)
        except OSError as err:
            return f"directory {self._base}: {err.strerror}"
        return None

    def validate(self, hvparams: Mapping[str, Any]) -> None:
        """Check the path of the script; the disk that has it may not be active."""
        super().validate(hvparams)
        self._script(hvparams)


def _described(name: str) -> InstanceInfo:
    return InstanceInfo(name, "0", 0, 0, GuestState.RUNNING, 0.0)


def _users(effects: NodeEffects, root: str) -> bool:
    """Return whether a process uses the file system that is mounted there."""
    result = run_bounded(
        effects,
        ("fuser", "-M", "-m", root),
        timeout_s=_TIMEOUT_S,
        max_output=_MAX_OUTPUT,
        what="hypervisor chroot",
    )
    if result.code not in (0, 1):
        raise errors.HypervisorError(
            f"hypervisor chroot: fuser -m {root} {result.reason}"
        )
    return result.code == 0


def _is_mounted(root: str) -> bool:
    """Return whether a file system is mounted there.

    The kernel's table is asked, since a file system on a failed disk answers no other
    question, while its programs may go on.
    """
    return root in _mounts_below(root)


def _mounts_below(root: str, table: str = "/proc/self/mountinfo") -> list[str]:
    """Return the mount points at and below a directory, in the order of mounting."""
    text = files.read_file(table).decode(errors="surrogateescape")
    points = [_unescaped(line.split(" ")[4]) for line in text.split("\n") if line]
    return [path for path in points if path == root or path.startswith(f"{root}/")]


def _unescaped(text: str) -> str:
    r"""Return a path in which the kernel wrote a space as ``\040``, and so on."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def _shortened(result: process.RunResult) -> str:
    return (result.output.strip() or result.reason)[:_OUTPUT_LENGTH]
