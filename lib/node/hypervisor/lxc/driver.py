"""Operations of containers, by LXC's programs.

A container has a directory ``lxc/instance/NAME`` below the run directory, with its
configuration and an empty directory for its root file system. The file system is
mounted only in the mount namespace of the container: when the container ends, by itself
or not, nothing of it is mounted or attached on the node.
"""

import contextlib
import os
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from ganeti.base import errors, process
from ganeti.base.filesystem import files
from ganeti.base.text import hv_syntax
from ganeti.model.objects.filled import DiskX, InstanceX
from ganeti.node.hypervisor.base import (
    AttachedDisk,
    GuestState,
    Hypervisor,
    InstanceInfo,
    check_instance_name,
    linux_node_info,
    run_bounded,
)
from ganeti.node.hypervisor.lxc import cgroups, config, root_disk

#: Seconds for the programs that answer immediately.
_TIMEOUT_S: Final = 60.0
_MAX_OUTPUT: Final = 1 << 20
#: Seconds that a container has to reboot.
_REBOOT_S: Final = 120
#: The oldest release with limits of cgroups version 2.
_OLDEST: Final = (4, 0)
_PROGRAMS: Final = ("lxc-start", "lxc-stop", "lxc-ls", "lxc-console")
#: Bytes of the log that are searched for the reason of a failure.
_LOG_BYTES: Final = 65536
_REASON_LENGTH: Final = 300
#: LXC's words for the failure of a hook; the only one is the mount.
_MOUNT_FAILED: Final = "Script exited with status"


class _Listed(NamedTuple):
    name: str
    pid: int


class LxcHypervisor(Hypervisor):
    """Containers of LXC."""

    name = "lxc"
    has_migration = False

    @property
    def _containers(self) -> str:
        return f"{self._effects.paths.run_dir}/lxc/instance"

    def _dir(self, name: str) -> str:
        return f"{self._containers}/{check_instance_name(name)}"

    def _log(self, name: str, suffix: str) -> str:
        return f"{self._effects.paths.log_dir}/lxc/{name}{suffix}"

    def _run(
        self, program: str, *words: str, timeout_s: float = _TIMEOUT_S
    ) -> process.RunResult:
        return run_bounded(
            self._effects,
            [program, "-P", self._containers, *words],
            timeout_s=timeout_s,
            max_output=_MAX_OUTPUT,
            what="hypervisor lxc",
        )

    # Start and end
    def start(
        self, instance: InstanceX, disks: Sequence[AttachedDisk], *, paused: bool
    ) -> None:
        """Start a container; it cannot be paused."""
        del paused
        name = instance.name
        if self._listed(name):
            raise errors.HypervisorError(f"instance {name}: already running")
        if not disks:
            raise errors.HypervisorError(
                f"instance {name}: hypervisor lxc needs a disk with a root file system"
            )
        self.check_syntax(instance.hvparams)
        cgroups.mount_if_missing(self._effects)
        extra = hv_syntax.words(instance.hvparams.get("extra_cgroups"))
        if (reason := cgroups.problem(extra)) is not None:
            raise errors.HypervisorError(f"instance {name}: {reason}")
        self._remove_files(name)
        try:
            self._write_config(instance, disks[0])
            self._launch(instance)
        except errors.GenericError:
            self._end_failed(name)
            raise

    def _write_config(self, instance: InstanceX, disk: AttachedDisk) -> None:
        root = f"{self._dir(instance.name)}/rootfs"
        try:
            mount = root_disk.mount_command(self._effects, disk, root)
        except errors.GenericError as err:
            raise errors.HypervisorError(f"instance {instance.name}: {err}") from err
        console_log = self._log(instance.name, ".console.log")
        text = config.build(instance, root=root, mount=mount, console_log=console_log)
        os.makedirs(f"{self._effects.paths.log_dir}/lxc", mode=0o750, exist_ok=True)
        os.makedirs(root, mode=0o750, exist_ok=True)
        with open(f"{self._dir(instance.name)}/config", "w", encoding="utf-8") as out:
            out.write(text)

    def _launch(self, instance: InstanceX) -> None:
        name, log = instance.name, self._log(instance.name, ".log")
        known = os.path.getsize(log) if os.path.exists(log) else 0
        limit = float(instance.hvparams.get("startup_timeout") or _TIMEOUT_S)
        # LXC's program returns when the container runs, or has failed to.
        result = self._run(
            *("lxc-start", "-d", "-n", name, "-o", log, "-l", "WARN"),
            timeout_s=limit,
        )
        if result.timed_out:
            raise errors.HypervisorError(
                f"instance {name}: not running after {limit:g} seconds; see {log}"
            )
        if result.failed:
            reason = _reason(log, known) or f"lxc-start {result.reason}"
            if reason.startswith(_MOUNT_FAILED):
                reason = "the root file system cannot be mounted from its first disk"
            raise errors.HypervisorError(
                f"instance {name}: cannot start: {reason}; see {log}"
            )
        if not self._listed(name):
            raise errors.HypervisorError(
                f"instance {name}: its first program ended immediately; see"
                f" {self._log(name, '.console.log')}"
            )

    def _end_failed(self, name: str) -> None:
        """Leave nothing of a start that failed."""
        with contextlib.suppress(errors.HypervisorError):
            if self._listed(name):
                self._run("lxc-stop", "--kill", "-n", name)
            self._remove_files(name)

    def stop(
        self,
        name: str,
        *,
        hvparams: Mapping[str, Any],
        force: bool,
        retry: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Ask the first program of a container to end, or kill all its programs."""
        del hvparams, retry, timeout_s
        if not self._listed(name):
            return
        how = ("--kill",) if force else ("--nokill", "--nowait")
        result = self._run("lxc-stop", *how, "-n", name)
        if result.failed and self._listed(name):
            raise errors.HypervisorError(
                f"instance {name}: lxc-stop {result.reason}: {result.output.strip()}"
            )

    def cleanup(self, name: str) -> None:
        """Remove the files of a container that does not run any more."""
        if os.path.isdir(self._dir(name)) and self._listed(name):
            raise errors.HypervisorError(
                f"instance {name}: cannot clean up, the instance is running"
            )
        self._remove_files(name)

    def _remove_files(self, name: str) -> None:
        directory = self._dir(name)
        try:
            entries = list(os.scandir(directory))
        except FileNotFoundError:
            return
        try:
            for entry in entries:
                # Directories are empty: anything else is not removed but reported.
                if entry.is_dir(follow_symlinks=False):
                    os.rmdir(entry.path)
                else:
                    os.unlink(entry.path)
            os.rmdir(directory)
        except OSError as err:
            raise errors.HypervisorError(
                f"instance {name}: cannot remove {err.filename}: {err.strerror}"
            ) from err

    def reboot(self, instance: InstanceX) -> None:
        """Ask the first program of a container to reboot."""
        name = instance.name
        self.require_running(instance)
        dropped = hv_syntax.words(instance.hvparams.get("drop_capabilities"))
        if "sys_boot" in dropped:
            raise errors.HypervisorError(
                f"instance {name}: cannot reboot by itself, as parameter"
                " drop_capabilities takes sys_boot away; reboot it with type hard"
            )
        result = self._run(
            *("lxc-stop", "--reboot", "--timeout", str(_REBOOT_S), "-n", name),
            timeout_s=_REBOOT_S + _TIMEOUT_S,
        )
        if result.failed or not self._listed(name):
            raise errors.HypervisorError(
                f"instance {name}: did not reboot within {_REBOOT_S} seconds:"
                f" {result.output.strip()}"
            )

    # Query
    def _listed(self, name: str | None = None) -> list[_Listed]:
        """Return the running containers in the order of their names, or one of them."""
        if name is not None and not os.path.isdir(self._dir(name)):
            return []
        if not os.path.isdir(self._containers):
            return []
        result = self._run("lxc-ls", "--active", "-f", "-F", "NAME,STATE,PID")
        if result.failed:
            raise errors.HypervisorError(
                f"hypervisor lxc: lxc-ls {result.reason}: {result.output.strip()}"
            )
        rows = parse_list(result.stdout)
        return [row for row in rows if name is None or row.name == name]

    def list_names(self, hvparams: Mapping[str, Any] | None = None) -> list[str]:
        """Return the names of all running containers on this node, sorted."""
        del hvparams
        return [row.name for row in self._listed()]

    def info(
        self, name: str, hvparams: Mapping[str, Any] | None = None
    ) -> InstanceInfo | None:
        """Return one container, None if it does not run on this node."""
        del hvparams
        rows = self._listed(name)
        return self._describe(rows[0]) if rows else None

    def all_infos(
        self, hvparams: Mapping[str, Any] | None = None
    ) -> list[InstanceInfo]:
        """Return all containers on this node, in the order of their names."""
        del hvparams
        infos = (self._describe(row) for row in self._listed())
        return [info for info in infos if info is not None]

    @staticmethod
    def _describe(row: _Listed) -> InstanceInfo | None:
        group = cgroups.of_process(row.pid)
        if group is None:
            return None
        memory, vcpus = group.memory_mib(), group.vcpus()
        return InstanceInfo(
            row.name,
            str(row.pid),
            linux_node_info()["memory_total"] if memory is None else memory,
            (os.cpu_count() or 1) if vcpus is None else vcpus,
            GuestState.RUNNING,
            group.time_s(),
        )

    def node_info(self, hvparams: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return memory and processors; guests' memory does not count as the node's."""
        info = super().node_info(hvparams)
        groups = (cgroups.of_process(row.pid) for row in self._listed())
        used = sum(group.used_mib() for group in groups if group is not None)
        info["memory_dom0"] = max(0, info["memory_dom0"] - used)
        return info

    def verify(self, hvparams: Mapping[str, Any] | None = None) -> str | None:
        """Return the reason why containers cannot run on this node, or None."""
        del hvparams
        missing = [
            name for name in _PROGRAMS if not shutil.which(name, path=process.SAFE_PATH)
        ]
        if missing:
            return f"programs {', '.join(missing)} of LXC are not installed"
        text = self._effects.process.run(["lxc-start", "--version"]).stdout.strip()
        if _numbers(text) < _OLDEST:
            return f"LXC: wanted release 4.0 or newer, found {text[:40]!r}"
        return cgroups.problem()

    def validate(self, hvparams: Mapping[str, Any]) -> None:
        """Check parameters against this node."""
        super().validate(hvparams)
        self.check_syntax(hvparams)
        extra = hv_syntax.words(hvparams.get("extra_cgroups"))
        if extra and (reason := cgroups.problem(extra)) is not None:
            raise errors.HypervisorError(
                f"hypervisor lxc: parameter extra_cgroups: {reason}"
            )

    # Change
    def balloon(self, instance: InstanceX, memory_mib: int) -> None:
        """Change the limit of a running container's memory."""
        rows = self._listed(instance.name)
        group = cgroups.of_process(rows[0].pid) if rows else None
        if group is None:
            raise errors.HypervisorError(f"instance {instance.name}: not running")
        group.set_memory(memory_mib)

    def resize_disk(self, instance: InstanceX, disk: DiskX, size_bytes: int) -> None:
        """Check that the container runs.

        The kernel shows the new size of a device by itself. The file system on it is
        the guest's, which can grow it at any time.
        """
        del disk, size_bytes
        self.require_running(instance)


def parse_list(text: str) -> list[_Listed]:
    """Return the containers that LXC's list shows as running, sorted."""
    rows = []
    for line in text.splitlines()[1:]:
        words = line.split()
        if len(words) == 3 and words[1] != "STOPPED" and words[2].isdecimal():
            rows.append(_Listed(words[0], int(words[2])))
    return sorted(rows)


def _numbers(text: str) -> tuple[int, ...]:
    parts = text.split(".")[:2]
    return tuple(int(part) for part in parts) if all(map(str.isdigit, parts)) else ()


def _reason(log: str, offset: int) -> str | None:
    """Return the first error that LXC has logged since a place in its log."""
    try:
        end = files.read_end(log, _LOG_BYTES, start=offset)
        lines = end.decode(errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        _head, is_error, rest = line.partition(" ERROR ")
        if is_error:
            return rest.split(" - ", 2)[-1].strip()[:_REASON_LENGTH]
    return None
