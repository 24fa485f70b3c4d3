"""Interface of hypervisor drivers, and helpers that are common to Linux hosts.

A driver acts and reports; it decides nothing. It refuses unsupported operations with a
HypervisorError. Specified in the hypervisor tables.
"""

import abc
import dataclasses
import enum
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from ganeti.base import clock, errors, pathutils, process
from ganeti.base.constants.parameters import hvparams as params_table
from ganeti.base.filesystem import files
from ganeti.base.text import hv_syntax

if TYPE_CHECKING:
    # Programs that start often need this module, but no records.
    from ganeti.model.objects.filled import DiskX, InstanceX, NicX

MIB: Final = 1024 * 1024
#: Characters of a host name, see `ganeti.base.net.netutils`, and of a file name.
_LONGEST_NAME: Final = 255


class GuestState(enum.IntEnum):
    """Run state of a guest; the wire value of instance states."""

    RUNNING = 0
    SHUTDOWN = 1


class AttachedDisk(NamedTuple):
    """An active disk: its record, the path of its link, and a URI or None."""

    disk: "DiskX"
    path: str
    uri: str | None = None


class InstanceInfo(NamedTuple):
    """One guest as the hypervisor sees it.

    ``hv_id`` is the hypervisor's own name for it (a process id for kvm), ``time_s``
    its CPU time in seconds, ``stuck_s`` the time for which its processors have only
    spun since a live migration.
    """

    name: str
    hv_id: str
    memory_mib: int
    vcpus: int
    state: GuestState
    time_s: float
    stuck_s: float = 0.0


@dataclasses.dataclass(frozen=True)
class MigrationStatus:
    """Progress of a migration: status word and RAM bytes, None when unknown.

    ``error`` is the emulator's reason for a failure. With ``is_stopped`` the guest was
    stopped to be sent and has not run on its source since, whatever became of it there:
    a complete copy can go on.

    Memory that the guest writes during the migration is sent again: ``transferred_ram``
    may exceed ``total_ram``; ``remaining_ram`` is the current rest.
    """

    status: str
    transferred_ram: int | None = None
    total_ram: int | None = None
    postcopy_status: str | None = None
    remaining_ram: int | None = None
    error: str | None = None
    is_stopped: bool = False


class Arrival(enum.StrEnum):
    """A stopped guest on the target of a migration, until it is taken over there."""

    INCOMPLETE = "incomplete"
    #: Its source may have given it up, or may have let it go on there.
    COMPLETE = "complete"


class ConsolePlace(NamedTuple):
    """Where a guest's console is on its node: a unix socket, or a host and port.

    Both are for connections of this node only.
    """

    path: str = ""
    host: str = ""
    port: int = 0


def open_path(disk: "DiskX", path: str, flags: int) -> int:
    """Open a disk by its path, which nobody else can change."""
    del disk
    return os.open(path, flags | os.O_CLOEXEC)


@dataclasses.dataclass(frozen=True)
class NodeEffects:
    """Effect interfaces and paths that drivers use.

    Attributes:
        paths: of this node.
        process: starts programs.
        clock: the time.
        open_disk: returns a descriptor of a disk's content: for its record, its path,
            and ``os.O_RDONLY`` or ``os.O_RDWR``. Others may change what is at the path
            of a file on shared storage. Raises OSError or GenericError.
    """

    paths: pathutils.Paths
    process: process.Runner
    clock: clock.Clock
    open_disk: Callable[["DiskX", str, int], int] = open_path

    def sleep(self, seconds: float) -> None:
        """Wait for some seconds."""
        self.clock.wait(threading.Event(), seconds)


class Hypervisor(abc.ABC):
    """One hypervisor on this node."""

    name: ClassVar[str]
    #: Whether running guests can move to another node.
    has_migration: ClassVar[bool] = True

    def __init__(self, effects: NodeEffects) -> None:
        self._effects = effects

    @abc.abstractmethod
    def start(
        self, instance: "InstanceX", disks: Sequence[AttachedDisk], *, paused: bool
    ) -> None:
        """Start a guest; with ``paused`` its processors wait for the console.

        Raises:
            HypervisorError: the guest runs already, or cannot be started; nothing of
                the attempt remains.
        """

    @abc.abstractmethod
    def stop(
        self,
        name: str,
        *,
        hvparams: Mapping[str, Any],
        force: bool,
        retry: bool = False,
    ) -> None:
        """Ask a guest to shut down, or kill it if ``force`` is set.

        A request returns before the guest is down; ``retry`` marks a repeated request.

        Raises:
            HypervisorError: the guest does not run, or could not be killed.
        """

    @abc.abstractmethod
    def cleanup(self, name: str) -> None:
        """Remove the remains of a guest that does not run any more, if any."""

    @abc.abstractmethod
    def reboot(self, instance: "InstanceX") -> None:
        """Restart a running guest without touching its disks."""

    def set_disk_paths(  # noqa: B027
        self, instance: "InstanceX", disks: Sequence[AttachedDisk]
    ) -> None:
        """Have the next `reboot` of a running guest open its disks by these paths.

        Hypervisors that keep the devices themselves need no paths.
        """

    @abc.abstractmethod
    def list_names(self) -> list[str]:
        """Return the names of all guests on this node, sorted."""

    @abc.abstractmethod
    def info(self, name: str) -> InstanceInfo | None:
        """Return one guest, None if it is not on this node."""

    def all_infos(self) -> list[InstanceInfo]:
        """Return all guests on this node, in the order of their names."""
        infos = (self.info(name) for name in self.list_names())
        return [info for info in infos if info is not None]

    def node_info(self, hvparams: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return memory in MiB and processors of this node."""
        del hvparams
        return linux_node_info()

    def verify(self, hvparams: Mapping[str, Any] | None = None) -> str | None:
        """Return the problem that keeps this hypervisor from working, or None."""
        del hvparams
        return None

    def validate(self, hvparams: Mapping[str, Any]) -> None:
        """Check parameters against this node, such as the existence of files.

        Raises:
            HypervisorError: names the parameter, the wanted and the found value.
        """
        check_names(self.name, hvparams)

    def check_syntax(self, hvparams: Mapping[str, Any]) -> None:
        """Check the forms of parameters, whatever the node has.

        Raises:
            HypervisorError: names the parameter, wanted and found.
        """
        try:
            hv_syntax.check(self.name, hvparams)
        except errors.ParseError as err:
            raise errors.HypervisorError(str(err)) from err

    def ancillary_files(self) -> tuple[list[str], list[str]]:
        """Return the files to distribute to all nodes, and the optional ones."""
        return [], []

    def reset_host(self) -> None:  # noqa: B027
        """Reset the machine by the hypervisor, after the attempt by the kernel."""

    def require_startable(  # noqa: B027
        self, name: str, *, uuid: str | None = None
    ) -> None:
        """Raise HypervisorError if a guest may run elsewhere after a migration.

        Args:
            name: of the instance.
            uuid: of the instance; None for any instance of this name.
        """

    def require_own(self, name: str, uuid: str) -> None:  # noqa: B027
        """Raise HypervisorError if the guest that runs is known to be of another one.

        This node may have been away when an instance of this name was removed.

        Args:
            name: of the instance.
            uuid: of the instance.
        """

    def _departed(self, name: str) -> errors.HypervisorError:
        return errors.HypervisorError(
            f"instance {name}: has left this node in a migration that was not finished;"
            f" run gnt-instance migrate --cleanup {name}, or, if it runs nowhere,"
            " gnt-instance shutdown and startup"
        )

    def _require_no_copy(self, name: str, arrival: Arrival | None) -> None:
        """Refuse a guest that waits here for the word of its source.

        Raises:
            HypervisorError: names the commands that end this.
        """
        if arrival is Arrival.COMPLETE:
            raise errors.HypervisorError(
                f"instance {name}: waits on this node since a migration that was not"
                f" finished; run gnt-instance migrate --cleanup {name}, or, if its"
                " source node has died since, gnt-instance shutdown and startup, which"
                " boots it again"
            )

    def require_running(self, instance: "InstanceX") -> None:
        """Raise HypervisorError unless the guest runs on this node."""
        if self.info(instance.name) is None:
            raise errors.HypervisorError(f"instance {instance.name}: not running")

    def migratable(self, instance: "InstanceX") -> None:
        """Raise HypervisorError unless the guest runs on this node and may migrate."""
        self.require_running(instance)
        if not self.has_migration:
            raise self._unsupported(instance.name, "migration")

    def migration_info(self, instance: "InstanceX") -> str:
        """Return the data that the target node needs, opaque to the master."""
        raise self._unsupported(instance.name, "migration")

    def accept(
        self,
        instance: "InstanceX",
        info: str,
        target: str,
        disks: Sequence[AttachedDisk],
    ) -> None:
        """Prepare to receive a guest on the address ``target``.

        It waits when it has arrived: its source decides whether it goes on here.
        """
        del info, target, disks
        raise self._unsupported(instance.name, "migration")

    def migrate(self, instance: "InstanceX", target: str, *, live: bool) -> None:
        """Start sending a guest; `migration_status` returns the progress."""
        del target, live
        raise self._unsupported(instance.name, "migration")

    def migration_status(self, instance: "InstanceX") -> MigrationStatus:
        """Return the progress of sending a guest.

        The answer that it is completed is the decision of the source, which has given
        the guest up, and does not change it any more. With ``postcopy_status`` it has
        done so before the target has all memory.
        """
        raise self._unsupported(instance.name, "migration")

    def finalize_source(self, instance: "InstanceX", *, success: bool) -> None:
        """Clean up after a guest that goes on elsewhere, or let it go on here.

        Raises:
            HypervisorError: the guest has left, or may have left, though the migration
                should have failed.
        """
        del success
        raise self._unsupported(instance.name, "migration")

    def finalize_destination(
        self, instance: "InstanceX", info: str, *, success: bool
    ) -> None:
        """Let a guest go on that has arrived, or remove what has arrived of it.

        The former is only asked when the source has given the guest up, and may be
        asked again; it waits until the guest has arrived. A guest that was paused at
        its source stays so.

        Raises:
            HypervisorError: the guest has not arrived or does not run; or it has gone
                on here, though the migration should have failed.
        """
        del success, info
        raise self._unsupported(instance.name, "migration")

    def balloon(self, instance: "InstanceX", memory_mib: int) -> None:
        """Change a running guest's memory."""
        del memory_mib
        raise self._unsupported(instance.name, "memory ballooning")

    def resize_disk(
        self, instance: "InstanceX", disk: "DiskX", size_bytes: int
    ) -> None:
        """Make the new size of a disk visible to a running guest."""
        del disk, size_bytes
        raise self._unsupported(instance.name, "online disk resize")

    def hotplug_check(self, instance: "InstanceX") -> None:
        """Raise HotplugError unless devices of this running guest can be changed."""
        raise errors.HotplugError(
            f"instance {instance.name}: hypervisor {self.name} does not support hotplug"
        )

    def hot_add(
        self, instance: "InstanceX", device: "DiskX | NicX", extra: Any, seq: int
    ) -> None:
        """Add a device to a running guest; for a disk, ``extra`` is ``[path, uri]``."""
        del device, extra, seq
        self.hotplug_check(instance)

    def hot_remove(self, instance: "InstanceX", device: "DiskX | NicX") -> None:
        """Remove a device from a running guest."""
        del device
        self.hotplug_check(instance)

    def hot_modify(self, instance: "InstanceX", device: "NicX", seq: int) -> None:
        """Replace a NIC of a running guest by a NIC with new settings."""
        del device, seq
        self.hotplug_check(instance)

    def guest_addresses(self, name: str) -> list[tuple[str, str, list[str]]]:
        """Return interface, MAC and addresses, as the agent in a guest reports them.

        Raises:
            HypervisorError: there is no agent, or it does not answer.
        """
        raise self._unsupported(name, "guest agents")

    def console_place(self, name: str, kind: str) -> ConsolePlace:
        """Return where the console of a running guest is; the kind serial or vnc.

        Raises:
            HypervisorError: it does not run, or has no such console.
        """
        raise self._unsupported(name, f"{kind} consoles through a relay")

    def firmware_state(self, name: str) -> tuple[str, str]:
        """Return copies of a guest's UEFI variables and TPM, empty without any."""
        del name
        return "", ""

    def lost_parts(self, name: str) -> list[str]:
        """Return which files and processes of its node a running guest lacks.

        ``control`` is a socket, ``firmware`` and ``tpm`` are files, ``tpm-process`` and
        ``shares`` processes; ``stuck`` is one that lacks progress.
        """
        del name
        return []

    def freeze(self, name: str, limit_s: float) -> None:
        """Freeze the file systems of a guest for at most some seconds."""
        del limit_s
        raise self._unsupported(name, "guest agents")

    def thaw(self, name: str) -> bool:
        """Thaw the file systems of a guest; return whether they were frozen until now.

        Raises:
            HypervisorError: they are still frozen.
        """
        raise self._unsupported(name, "guest agents")

    def _unsupported(self, instance: str, what: str) -> errors.HypervisorError:
        return errors.HypervisorError(
            f"instance {instance}: hypervisor {self.name} does not support {what}"
        )


def run_bounded(
    effects: NodeEffects,
    argv: Sequence[str],
    *,
    timeout_s: float,
    max_output: int,
    what: str,
) -> process.RunResult:
    """Run a program of a hypervisor; the caller checks the result.

    Args:
        effects: effect interfaces of this node.
        argv: the program and its arguments.
        timeout_s: time limit, in seconds.
        max_output: size limit of the output, in bytes.
        what: beginning of the error.

    Raises:
        HypervisorError: it is not installed, or broke a limit.
    """
    try:
        return effects.process.run_bounded(
            argv, timeout_s=timeout_s, max_output=max_output
        )
    except errors.CommandError as err:
        raise errors.HypervisorError(f"{what}: {err}") from err


def check_names(hypervisor: str, hvparams: Mapping[str, Any]) -> None:
    """Refuse unknown parameters and missing required ones.

    Raises:
        HypervisorError: names the parameter.
    """
    table = params_table.HYPERVISOR[hypervisor]
    for name in hvparams:
        if name not in table:
            raise errors.HypervisorError(
                f"parameter {name}: not supported by hypervisor {hypervisor}"
            )
    for name, param in table.items():
        if param.required and hvparams.get(name) in ("", None):
            raise errors.HypervisorError(
                f"parameter {name}: required by hypervisor {hypervisor}, but missing"
            )


def linux_node_info(proc: str = "/proc") -> dict[str, Any]:
    """Return memory in MiB and processors, read from the proc file system.

    ``memory_dom0`` includes the memory of guests: the kernel does not count it apart.
    """
    memory = _meminfo(proc)
    total = memory["MemTotal"] // 1024
    free = sum(memory.get(key, 0) for key in ("MemFree", "Buffers", "Cached")) // 1024
    text = files.read_file(f"{proc}/cpuinfo").decode(errors="replace")
    sockets = set(re.findall(r"^physical id\s*:\s*(\d+)", text, re.MULTILINE))
    return {
        "memory_total": total,
        "memory_free": free,
        "memory_dom0": total - free,
        "memory_hv": 0,
        "cpu_total": len(re.findall(r"^processor\s*:", text, re.MULTILINE)) or 1,
        "cpu_nodes": 1,
        "cpu_sockets": len(sockets) or 1,
        "cpu_dom0": 1,
        "hv_version": os.uname().release,
    }


def _meminfo(proc: str) -> dict[str, int]:
    lines = files.read_file(f"{proc}/meminfo").decode("ascii").splitlines()
    rows = (line.split() for line in lines)
    return {row[0].rstrip(":"): int(row[1]) for row in rows if len(row) > 1}


def check_instance_name(name: str) -> str:
    """Return a name that is safe as a file name.

    Raises:
        HypervisorError: the name is not a host name, or too long.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise errors.HypervisorError(f"instance name {name!r}: not a host name")
    if len(name) > _LONGEST_NAME:
        raise errors.HypervisorError(
            f"instance name {name[:20]}...: wanted at most {_LONGEST_NAME} characters,"
            f" found {len(name)}"
        )
    return name


def vlans(text: str) -> tuple[str, list[str]]:
    """Return the untagged VLAN and the tagged ones of ``.N``, ``:A:B`` or ``.N:A:B``.

    The first is empty if there is none.
    """
    untagged, *tagged = text.split(":")
    return untagged.lstrip("."), tagged
