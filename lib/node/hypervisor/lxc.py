"""Driver for LXC: containers with their root file system on the instance's first disk.

A container has a directory ``lxc/instance/NAME`` below the run directory, with its
configuration and an empty directory for its root file system. The file system is
mounted only in the mount namespace of the container: when the container ends, by itself
or not, nothing of it is mounted or attached on the node.

LXC's own programs do the rest; its release 4 or newer and version 2 of cgroups are
needed. Specified in the hypervisor document, section 5.
"""

import contextlib
import os
import re
import shlex
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ganeti.base import errors, process
from ganeti.base.filesystem import files
from ganeti.base.text import hv_syntax
from ganeti.model.objects.filled import DiskX, InstanceX, NicX
from ganeti.node.hypervisor import lxc_cgroups
from ganeti.node.hypervisor.base import (
    MIB,
    AttachedDisk,
    GuestState,
    Hypervisor,
    InstanceInfo,
    NodeEffects,
    check_instance_name,
    linux_node_info,
    run_bounded,
    vlans,
)

# The command that mounts the root file system of a container from its first disk.
#
# The file system is on the whole disk, or on the first partition of a disk with a
# partition table. The content of the disk is the guest's: programs that are made to
# read it are run with limits, and only numbers are taken from their output.

_ROOT_DISK_TIMEOUT_S: Final = 30.0
_ROOT_DISK_MAX_OUTPUT: Final = 65536
#: Unit of partx, whatever the sectors of the disk are.
_SECTOR_BYTES: Final = 512
#: Exit code of blkid for a disk without a known content.
_NOTHING_THERE: Final = 2


def root_mount_command(
    effects: NodeEffects, attached: AttachedDisk, directory: str
) -> list[str]:
    """Return the command that mounts the root file system on a directory.

    A loop device that it makes for a file or a partition is released with the mount.

    Raises:
        HypervisorError: the disk has no file system; names the disk.
    """
    path = os.path.realpath(attached.path)
    options = ["ro"] if attached.disk.mode == "ro" else []
    partition = _first_partition(effects, attached, path)
    if partition is not None:
        start, size = partition
        options += ["loop", f"offset={start}", f"sizelimit={size}"]
    elif stat.S_ISREG(os.stat(path).st_mode):
        options.append("loop")
    words = ["-o", ",".join(options)] if options else []
    return ["/bin/mount", *words, "--", path, directory]


def _first_partition(
    effects: NodeEffects, attached: AttachedDisk, path: str
) -> tuple[int, int] | None:
    """Return start and size in bytes, None for a file system on the whole disk."""
    probe = ("blkid", "-p", "-o", "export", "-s", "TYPE", "-s", "PTTYPE", "--", path)
    result = effects.process.run_bounded(
        probe, timeout_s=_ROOT_DISK_TIMEOUT_S, max_output=_ROOT_DISK_MAX_OUTPUT
    )
    if result.code == _NOTHING_THERE:
        raise errors.HypervisorError(
            f"{_named(attached)}: wanted a file system for the container's root, found"
            " neither a file system nor a partition table"
        )
    if result.failed:
        raise errors.HypervisorError(
            f"{_named(attached)}: its content is unknown: blkid {result.reason}"
        )
    kinds = {line.partition("=")[0] for line in result.stdout.splitlines()}
    if "TYPE" in kinds or "PTTYPE" not in kinds:
        return None
    listed = effects.process.run_bounded(
        ("partx", "-s", "-g", "-b", "-n", "1", "-o", "START,SIZE", "--", path),
        timeout_s=_ROOT_DISK_TIMEOUT_S,
        max_output=_ROOT_DISK_MAX_OUTPUT,
    )
    numbers = re.fullmatch(r"\s*(\d{1,15})\s+(\d{1,18})\s*", listed.stdout, re.ASCII)
    if listed.failed or numbers is None:
        raise errors.HypervisorError(
            f"{_named(attached)}: wanted a partition for the container's root, found"
            f" none: partx {listed.reason}"
        )
    return int(numbers[1]) * _SECTOR_BYTES, int(numbers[2])


def _named(attached: AttachedDisk) -> str:
    return f"disk {attached.disk.uuid} ({attached.path})"


# The configuration file of a container, see lxc.container.conf(5).
#
# All values come from the configuration of the cluster; the directories and the mount
# command are those of this node. No value gets further lines into the file: such lines
# can name commands, which LXC runs as root.

#: Pseudo terminals of a container.
_PTYS: Final = 255
#: Bytes of console output until LXC begins a new file and drops the one before the old:
#: a guest must not fill the disk of the node. LXC wants a power of two.
_CONSOLE_LOG_BYTES: Final = 8 * MIB


def build_config(
    instance: InstanceX, *, root: str, mount: Sequence[str], console_log: str
) -> str:
    """Return the text of the configuration file.

    Args:
        instance: the container.
        root: empty directory on which its root file system is mounted.
        mount: command that mounts it; LXC runs it in the mount namespace of the
            container, so the mount ends with the container.
        console_log: file for the output of its console.

    Raises:
        HypervisorError: a parameter cannot be put into practice.
    """
    rows = [
        ("lxc.uts.name", instance.name),
        ("lxc.pty.max", _PTYS),
        ("lxc.tty.max", int(instance.hvparams["num_ttys"])),
        ("lxc.console.logfile", console_log),
        ("lxc.console.size", _CONSOLE_LOG_BYTES),
        ("lxc.console.rotate", 1),
        ("lxc.rootfs.path", f"dir:{root}"),
        # Without version 2, LXC appends three words to the command.
        ("lxc.hook.version", 1),
        ("lxc.hook.pre-mount", shlex.join(mount)),
        ("lxc.mount.auto", "proc:mixed sys:ro"),
        *_limits(instance),
        *_rights(instance.hvparams),
        *_nics(instance),
    ]
    lines = [f"{key} = {value}" for key, value in rows]
    lines += hv_syntax.words(instance.hvparams.get("extra_config"))
    for line in lines:
        if not line.isprintable():
            raise errors.HypervisorError(
                f"instance {instance.name}: wanted a setting of LXC in one line without"
                f" control characters, found {line!r}"
            )
    return "".join(f"{line}\n" for line in lines)


def processors(instance: InstanceX) -> frozenset[int] | None:
    """Return the processors that a container may use, None for all.

    Raises:
        HypervisorError: their number differs from that of virtual processors.
    """
    mask = instance.hvparams.get("cpu_mask") or "all"
    try:
        (wanted,) = hv_syntax.masks("lxc", mask, instance.beparams["vcpus"])
    except errors.ParseError as err:
        raise errors.HypervisorError(f"instance {instance.name}: {err}") from err
    return wanted


def _limits(instance: InstanceX) -> Iterator[tuple[str, Any]]:
    wanted = processors(instance)
    if wanted is not None:
        yield "lxc.cgroup2.cpuset.cpus", hv_syntax.format_processors(wanted)
    yield "lxc.cgroup2.memory.max", instance.beparams["maxmem"] * MIB
    if lxc_cgroups.limits_swap():
        # No swap space beyond the memory.
        yield "lxc.cgroup2.memory.swap.max", 0


def _rights(hvparams: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "lxc.cgroup2.devices.deny", "a"
    for device in hv_syntax.words(hvparams.get("devices")):
        yield "lxc.cgroup2.devices.allow", device
    for capability in hv_syntax.words(hvparams.get("drop_capabilities")):
        yield "lxc.cap.drop", capability


def _nics(instance: InstanceX) -> Iterator[tuple[str, Any]]:
    if not instance.nics:
        # Otherwise the container would use the network of the node.
        yield "lxc.net.0.type", "empty"
    for index, nic in enumerate(instance.nics):
        key = f"lxc.net.{index}"
        yield f"{key}.type", "veth"
        yield f"{key}.link", _bridge(instance, nic, index)
        yield f"{key}.hwaddr", nic.mac
        yield f"{key}.name", f"eth{index}"
        yield f"{key}.flags", "up"
        if vlan := nic.nicparams.get("vlan"):
            yield from _vlan_settings(key, str(vlan))


def _vlan_settings(key: str, vlan: str) -> Iterator[tuple[str, Any]]:
    """Yield the VLANs of a NIC; LXC refuses bridges that do not filter VLANs."""
    untagged, tagged = vlans(vlan)
    yield f"{key}.veth.vlan.id", untagged or "none"
    for number in tagged:
        yield f"{key}.veth.vlan.tagged.id", number


def _bridge(instance: InstanceX, nic: NicX, index: int) -> str:
    mode = nic.nicparams.get("mode")
    if mode != "bridged":
        raise errors.HypervisorError(
            f"instance {instance.name}: NIC {index} has mode {mode}; hypervisor lxc"
            " supports only bridged"
        )
    return str(nic.nicparams["link"])


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
        lxc_cgroups.mount_if_missing(self._effects)
        extra = hv_syntax.words(instance.hvparams.get("extra_cgroups"))
        if (reason := lxc_cgroups.problem(extra)) is not None:
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
            mount = root_mount_command(self._effects, disk, root)
        except errors.GenericError as err:
            raise errors.HypervisorError(f"instance {instance.name}: {err}") from err
        console_log = self._log(instance.name, ".console.log")
        text = build_config(instance, root=root, mount=mount, console_log=console_log)
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
    ) -> None:
        """Ask the first program of a container to end, or kill all its programs."""
        del hvparams, retry
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

    def list_names(self) -> list[str]:
        """Return the names of all running containers on this node, sorted."""
        return [row.name for row in self._listed()]

    def info(self, name: str) -> InstanceInfo | None:
        """Return one container, None if it does not run on this node."""
        rows = self._listed(name)
        return self._describe(rows[0]) if rows else None

    def all_infos(self) -> list[InstanceInfo]:
        """Return all containers on this node, in the order of their names."""
        infos = (self._describe(row) for row in self._listed())
        return [info for info in infos if info is not None]

    @staticmethod
    def _describe(row: _Listed) -> InstanceInfo | None:
        group = lxc_cgroups.of_process(row.pid)
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
        groups = (lxc_cgroups.of_process(row.pid) for row in self._listed())
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
        return lxc_cgroups.problem()

    def validate(self, hvparams: Mapping[str, Any]) -> None:
        """Check parameters against this node."""
        super().validate(hvparams)
        self.check_syntax(hvparams)
        extra = hv_syntax.words(hvparams.get("extra_cgroups"))
        if extra and (reason := lxc_cgroups.problem(extra)) is not None:
            raise errors.HypervisorError(
                f"hypervisor lxc: parameter extra_cgroups: {reason}"
            )

    # Change
    def balloon(self, instance: InstanceX, memory_mib: int) -> None:
        """Change the limit of a running container's memory."""
        rows = self._listed(instance.name)
        group = lxc_cgroups.of_process(rows[0].pid) if rows else None
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
