"""The KVM driver: implements `ganeti.node.hypervisor.base` with QEMU.

No helper daemon detects a shutdown by the user. With ``user_shutdown`` the emulator of
a guest that shuts down waits, and the next query of the guest creates a marker file
and ends the emulator. A stop by the cluster first configures the emulator to end with
its guest.
"""

import contextlib
import itertools
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, TypedDict

from ganeti.base import errors
from ganeti.base.filesystem import files as file_utils
from ganeti.base.net import netutils
from ganeti.model.objects.filled import DiskX, InstanceX, NicX
from ganeti.node.hypervisor.base import (
    MIB,
    Arrival,
    AttachedDisk,
    ConsolePlace,
    GuestState,
    Hypervisor,
    InstanceInfo,
    MigrationStatus,
    NodeEffects,
    linux_node_info,
)
from ganeti.node.hypervisor.kvm import (
    agent,
    argv,
    checks,
    emulator,
    files,
    launch,
    runtime,
)
from ganeti.node.hypervisor.kvm.devices import (
    disks_and_nics,
    display,
    firmware,
    helper_processes,
    hotplug,
    shares,
    tpm,
)
from ganeti.node.hypervisor.kvm.files import Files
from ganeti.node.hypervisor.kvm.moving import (
    arriving,
    departure,
    layout,
    progress,
    sending,
)
from ganeti.node.hypervisor.kvm.qmp import Qmp, checked, run_state

#: Seconds that an emulator may take to end after ``quit``.
_QUIT_WAIT_S = 5.0
#: Kind of console -> the parameter with which a guest has it.
_CONSOLES: Final = {"serial": "serial_console", "vnc": "vnc_bind_address"}


class _Balloon(TypedDict):
    actual: int


class KvmHypervisor(Hypervisor):
    """Guests under QEMU, accelerated where the node supports it."""

    name: ClassVar[str] = "kvm"

    def _files(self, name: str) -> Files:
        return Files(self._effects.paths, name)

    def _alive(self, name: str) -> Files:
        """Return a running guest's files; raise HypervisorError if no guest runs."""
        guest = self._files(name)
        if guest.alive_pid() is None:
            raise errors.HypervisorError(f"instance {name}: not running")
        return guest

    # Start and end
    def start(
        self, instance: InstanceX, disks: Sequence[AttachedDisk], *, paused: bool
    ) -> None:
        """Start a guest."""
        guest = self._files(instance.name)
        if guest.alive_pid() is not None:
            raise errors.HypervisorError(f"instance {instance.name}: already running")
        launch.remove_remains(self._effects, guest)
        guest.make_directories()
        plan = _plan(self._effects, instance, disks, guest)
        # Before the start: the removal of the remains looks up the NICs there.
        runtime.save(guest, plan)
        try:
            launch.launch(self._effects, instance, plan, launch.Launch(paused=paused))
        except errors.GenericError:
            launch.remove_remains(self._effects, guest)
            raise

    def stop(
        self,
        name: str,
        *,
        hvparams: Mapping[str, Any],
        force: bool,
        retry: bool = False,
    ) -> None:
        """Press the guest's power button, or end its emulator if ``force`` is set."""
        del retry
        guest = self._alive(name)
        if force or not hvparams.get("acpi", True):
            files.end_process(self._effects, guest)
            return
        with Qmp(guest.control("qmp"), name) as qmp:
            word = run_state(qmp)
            # One that has left cannot answer its power button, and never goes on here.
            if word == "shutdown" or sending.has_departed(guest, word):
                qmp.execute("quit")
                return
            qmp.execute("set-action", {"shutdown": "poweroff"})
            qmp.execute("system_powerdown")

    def require_startable(self, name: str, *, uuid: str | None = None) -> None:
        """Refuse a guest that has left this node, or waits here for the master."""
        guest = self._files(name)
        if departure.is_gone(guest, uuid):
            raise self._departed(name)
        self._require_no_copy(name, _arrival(guest))

    def require_own(self, name: str, uuid: str) -> None:
        """Refuse the emulator of an earlier instance of this name."""
        _require_own(self._files(name), uuid)

    def cleanup(self, name: str) -> None:
        """Remove the remains of a guest that does not run any more."""
        guest = self._files(name)
        if guest.alive_pid() is not None and _arrival(guest) is None:
            raise errors.HypervisorError(
                f"instance {name}: cannot clean up, the instance is running"
            )
        launch.drop(self._effects, guest)

    def set_disk_paths(
        self, instance: InstanceX, disks: Sequence[AttachedDisk]
    ) -> None:
        """Note the links of the guest's disks, whose numbers may have changed.

        A disk that is not the instance's any more is left out.
        """
        hotplug.set_disk_paths(self._alive(instance.name), disks)

    def reboot(self, instance: InstanceX) -> None:
        """Start the guest again with the parameters of its last start."""
        guest = self._alive(instance.name)
        plan = runtime.load(guest)
        launch.drop(self._effects, guest)
        guest.make_directories()
        # `drop` has removed it.
        runtime.save(guest, plan)
        launch.launch(self._effects, instance, plan, launch.Launch())

    # Query
    def list_names(self) -> list[str]:
        """Return guests that run or have shut themselves down, sorted."""
        guests = map(self._files, files.known_names(self._effects.paths))
        return [
            guest.name
            for guest in guests
            # One that its user has shut down is among them, or it would be started
            # again.
            if guest.alive_pid() is not None or os.path.exists(guest.shutdown_marker)
        ]

    def info(self, name: str) -> InstanceInfo | None:
        """Return one guest, None if it is not on this node."""
        guest = self._files(name)
        pid = guest.alive_pid()
        if pid is None:
            if os.path.exists(guest.shutdown_marker):
                return InstanceInfo(name, "-1", 0, 0, GuestState.SHUTDOWN, 0.0)
            return None
        return _running_info(self._effects, guest, pid)

    def all_infos(self) -> list[InstanceInfo]:
        """Return all guests on this node, in the order of their names.

        One that waits for the word of its source is not among them, as it counts there.
        """
        return [
            info
            for info in super().all_infos()
            if info.state is GuestState.RUNNING
            or not os.path.exists(self._files(info.name).arrival_marker)
        ]

    def node_info(self, hvparams: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return memory and processors; guests' memory does not count as the node's."""
        info = super().node_info(hvparams)
        pids = (self._files(name).alive_pid() for name in self.list_names())
        guests = sum(_resident_mib(pid) for pid in pids if pid is not None)
        info["memory_dom0"] = max(0, info["memory_dom0"] - guests)
        binary = (hvparams or {}).get("kvm_path")
        if binary:
            info["hv_version"] = _emulator_version(self._effects, binary)
        return info

    def verify(self, hvparams: Mapping[str, Any] | None = None) -> str | None:
        """Return the reason why guests cannot run on this node, or None."""
        binary = (hvparams or {}).get("kvm_path") or "/usr/bin/kvm"
        return emulator.problem(self._effects, binary)

    def validate(self, hvparams: Mapping[str, Any]) -> None:
        """Check parameters against this node."""
        super().validate(hvparams)
        checks.check_combinations(hvparams)
        checks.check_files(hvparams)
        checks.check_emulator(self._effects, hvparams)

    # Change
    def balloon(self, instance: InstanceX, memory_mib: int) -> None:
        """Ask the guest to release memory or to use more."""
        guest = self._alive(instance.name)
        with Qmp(guest.control("qmp"), instance.name) as qmp:
            qmp.execute("balloon", {"value": memory_mib * MIB})

    def resize_disk(self, instance: InstanceX, disk: DiskX, size_bytes: int) -> None:
        """Make the new size of a disk visible to the guest.

        Raises:
            HypervisorError: the new size is smaller: the emulator would cut off the
                end of the disk.
        """
        hotplug.resize_disk(self._alive(instance.name), disk, size_bytes)

    def hotplug_check(self, instance: InstanceX) -> None:
        """Refuse unless the guest runs and all its devices have recorded addresses."""
        hotplug.check(self._alive(instance.name))

    def hot_add(
        self, instance: InstanceX, device: DiskX | NicX, extra: Any, seq: int
    ) -> None:
        """Add a device to a running guest."""
        guest = self._alive(instance.name)
        with hotplug.change_of(guest):
            if isinstance(device, DiskX):
                hotplug.add_disk(self._effects, guest, _attached(device, extra))
            else:
                hotplug.add_nic(self._effects, guest, instance, device, seq)

    def hot_remove(self, instance: InstanceX, device: DiskX | NicX) -> None:
        """Remove a device from a running guest."""
        guest = self._alive(instance.name)
        with hotplug.change_of(guest):
            if isinstance(device, DiskX):
                hotplug.remove_disk(guest, device)
            else:
                hotplug.remove_nic(self._effects, guest, device)

    def hot_modify(self, instance: InstanceX, device: NicX, seq: int) -> None:
        """Replace a NIC of a running guest."""
        guest = self._alive(instance.name)
        with hotplug.change_of(guest):
            hotplug.modify_nic(self._effects, guest, instance, device, seq)

    def guest_addresses(self, name: str) -> list[tuple[str, str, list[str]]]:
        """Return the addresses that the agent in a guest reports."""
        return agent.addresses(self._alive(name))

    def console_place(self, name: str, kind: str) -> ConsolePlace:
        """Return where the console is that the guest has had since its start."""
        guest = self._alive(name)
        if kind == "vnc":
            place = display.vnc_place(runtime.load(guest).argv)
        else:
            path = guest.control(kind)
            place = ConsolePlace(path=path) if os.path.exists(path) else None
        if place is None:
            raise errors.HypervisorError(
                f"instance {name}: was started without a {kind} console; set"
                f" {_CONSOLES[kind]} with gnt-instance modify and start it again"
            )
        return place

    def firmware_state(self, name: str) -> tuple[str, str]:
        """Return copies of UEFI variables and TPM of a guest, which need not run."""
        guest = self._files(name)
        return firmware.store(guest).packed(), tpm.state(guest).packed()

    def lost_parts(self, name: str) -> list[str]:
        """Return which files and processes a running guest lacks, see the base."""
        guest = self._files(name)
        if guest.alive_pid() is None:
            return []
        lost = _lost_files(guest)
        is_observed = os.path.exists(guest.progress_note)
        if is_observed and (info := self.info(name)) and info.stuck_s:
            lost.append("stuck")
        # They end with their guest.
        return lost if guest.alive_pid() is not None else []

    def freeze(self, name: str, limit_s: float) -> None:
        """Have a process of its own keep a guest's file systems frozen."""
        agent.freeze(self._effects, self._alive(name), limit_s)

    def thaw(self, name: str) -> bool:
        """End that process, or thaw the guest if it was killed."""
        return agent.thaw(self._effects, self._alive(name))

    # Migration
    def migratable(self, instance: InstanceX) -> None:
        """Refuse unless the guest runs here, and no earlier migration is unfinished."""
        super().migratable(instance)
        guest = self._alive(instance.name)
        _require_unshared(guest)
        sending.check_idle(guest)

    def migration_info(self, instance: InstanceX) -> str:
        """Return the runtime, in the form for other nodes, and the guest's state."""
        guest = self._alive(instance.name)
        plan = runtime.load(guest)
        state = layout.PAUSED if sending.is_paused(guest) else ""
        return runtime.export(guest, plan, state)

    def accept(
        self,
        instance: InstanceX,
        info: str,
        target: str,
        disks: Sequence[AttachedDisk],
    ) -> None:
        """Start an emulator that waits for the guest."""
        guest = self._files(instance.name)
        if guest.alive_pid() is not None:
            raise errors.HypervisorError(
                f"instance {instance.name}: already running here"
            )
        received = _received(self._effects, instance, info)
        plan = _plan_of(instance, received, disks, guest)
        arriving.accept(
            *(self._effects, guest, instance, plan, target),
            is_paused=received.is_paused,
        )

    def migrate(self, instance: InstanceX, target: str, *, live: bool) -> None:
        """Start sending a guest in the background.

        One that an interrupted job has left frozen is thawed first: nobody would do so
        at the target.
        """
        guest = self._alive(instance.name)
        agent.thaw(self._effects, guest)
        sending.begin(guest, instance.hvparams, target, live=live, uuid=instance.uuid)

    def migration_status(self, instance: InstanceX) -> MigrationStatus:
        """Return the progress of sending a guest."""
        guest = self._files(instance.name)
        return sending.status(
            self._effects, guest, instance.hvparams, uuid=instance.uuid
        )

    def finalize_source(self, instance: InstanceX, *, success: bool) -> None:
        """End the emulator that the guest has left, or continue the guest here."""
        guest = self._files(instance.name)
        sending.finalize_source(
            self._effects, guest, success=success, uuid=instance.uuid
        )

    def finalize_destination(
        self, instance: InstanceX, info: str, *, success: bool
    ) -> None:
        """Take over the guest that has arrived, or end the waiting emulator."""
        guest = self._files(instance.name)
        arriving.finalize_destination(
            self._effects, guest, instance, info, success=success
        )


def _plan(
    effects: NodeEffects,
    instance: InstanceX,
    disks: Sequence[AttachedDisk],
    guest: Files,
) -> runtime.Runtime:
    hvp = instance.hvparams
    checks.check_combinations(hvp)
    machine = hvp.get("machine_version") or emulator.default_machine(
        effects, hvp["kvm_path"]
    )
    emulator_facts = argv.EmulatorFacts(machine, _interface_addresses(hvp))
    places = disks_and_nics.DeviceSlots(
        disks_and_nics.seed_places(has_seed=bool(instance.cloud_init)),
        int(hvp.get("kvm_pci_reservations") or 0),
        q35=disks_and_nics.is_q35(machine),
    )
    disk_type = hvp.get("disk_type") or "paravirtual"
    nic_type = hvp.get("nic_type") or "paravirtual"
    return runtime.Runtime(
        argv=tuple(argv.build(instance, guest, emulator_facts)),
        nics=tuple(
            runtime.plugged_nic(nic, places.for_nic(nic, nic_type))
            for nic in instance.nics
        ),
        hvparams=dict(hvp),
        disks=tuple(
            (
                runtime.plugged_disk(disk, places.for_disk(disk, disk_type)),
                path,
                uri,
            )
            for disk, path, uri in disks
        ),
    )


def _received(effects: NodeEffects, record: InstanceX, info: str) -> layout.Layout:
    """Return the layout of another node's guest."""
    binary = record.hvparams["kvm_path"]
    return layout.read(
        record,
        info,
        machines=emulator.machines(effects, binary),
        memory_mib=linux_node_info()["memory_total"],
    )


def _plan_of(
    record: InstanceX,
    received: layout.Layout,
    disks: Sequence[AttachedDisk],
    guest: Files,
) -> runtime.Runtime:
    """Return the start of a guest that has the devices of another node's guest."""
    instance = received.instance(record)
    hvp = received.hvparams
    checks.check_combinations(hvp)
    facts = argv.EmulatorFacts(
        received.machine, _interface_addresses(hvp), received.has_defaults
    )
    return runtime.Runtime(
        argv=tuple(argv.build(instance, guest, facts)),
        nics=received.plugged_nics(record),
        hvparams=dict(hvp),
        disks=received.plugged_disks(disks),
    )


def _arrival(guest: Files) -> Arrival | None:
    """Return the state of a guest that waits for the word of its source."""
    if not os.path.exists(guest.arrival_marker) or guest.alive_pid() is None:
        return None
    try:
        with Qmp(guest.control("qmp"), guest.name) as qmp:
            return arriving.arrival(guest, run_state(qmp))
    except errors.HypervisorError:
        return None


def _note_user_shutdown(effects: NodeEffects, guest: Files, qmp: Qmp, pid: int) -> None:
    # Before the end: without the marker, a guest without an emulator is one that has
    # crashed.
    with open(guest.shutdown_marker, "w", encoding="ascii"):
        qmp.execute("quit")
    files.wait_gone(effects, pid, _QUIT_WAIT_S)


def _running_info(effects: NodeEffects, guest: Files, pid: int) -> InstanceInfo:
    """Return a guest whose emulator runs."""
    with contextlib.suppress(errors.HypervisorError):
        # A holder that was killed has left the guest frozen, and nothing else would
        # thaw it.
        agent.thaw_abandoned(guest)
    memory, vcpus = _configured_size(files.command_line(pid))
    state, stuck_s = GuestState.RUNNING, 0.0
    with (
        contextlib.suppress(errors.HypervisorError),
        Qmp(guest.control("kvmd"), guest.name) as qmp,
    ):
        word = run_state(qmp)
        with contextlib.suppress(errors.HypervisorError):
            word = sending.end_cut(guest, qmp, word)
        arrival = arriving.arrival(guest, word)
        if word == "shutdown":
            _note_user_shutdown(effects, guest, qmp, pid)
            return InstanceInfo(guest.name, "-1", 0, 0, GuestState.SHUTDOWN, 0.0)
        if arrival is not None:
            # One that waits for the word of its source does not run.
            state = GuestState.SHUTDOWN
        memory = checked(qmp, "query-balloon", _Balloon)["actual"] // MIB
        stuck_s = progress.stuck_s(effects, guest, pid, qmp)
    used = files.cpu_time_s(pid)
    return InstanceInfo(guest.name, str(pid), memory, vcpus, state, used, stuck_s)


def _lost_files(guest: Files) -> list[str]:
    """Return which files and helper processes a running guest lacks."""
    # The start of the guest counts, not its present parameters.
    hvp = runtime.load(guest).hvparams
    wanted = {
        "firmware": hvp.get("firmware") == firmware.UEFI and firmware.store(guest),
        "tpm": hvp.get("tpm") and tpm.state(guest),
    }
    lost = [kind for kind, own in wanted.items() if own and own.read() is None]
    if files.has_lost_control(guest):
        lost.append("control")
    needs = helper_processes.lost_of(guest)
    if any(not each.directory for each in needs):
        lost.append("tpm-process")
    if any(each.directory for each in needs):
        lost.append("shares")
    return lost


def _attached(disk: DiskX, extra: Any) -> AttachedDisk:
    path, uri = (*extra, None)[:2]
    if uri and uri.startswith("/"):
        # Masters of earlier releases put the device before the link.
        path, uri = uri, None
    return AttachedDisk(disk, path, uri)


def _require_unshared(guest: Files) -> None:
    """Refuse to move a guest that shares directories of its node."""
    if directories := shares.wanted(runtime.load(guest).hvparams):
        raise errors.HypervisorError(
            f"instance {guest.name}: shares directories of its node"
            f" ({', '.join(directories.values())}), so it cannot migrate; use"
            " gnt-instance failover"
        )


def _require_own(guest: Files, uuid: str) -> None:
    pid = guest.alive_pid()
    actual = files.option_values(pid, "-uuid") if pid is not None else []
    if uuid and actual and uuid not in actual:
        raise errors.HypervisorError(
            f"instance {guest.name}: wanted no guest of another instance, found one"
            f" with the uuid {actual[0]} in process {pid} on this node; if nobody needs"
            f" it, end it with gnt-instance shutdown {guest.name}, then start this one"
        )


def _emulator_version(effects: NodeEffects, binary: str) -> list[int] | None:
    """Return the version, None without an emulator: that of the kernel is another."""
    try:
        return list(emulator.version(effects, binary))
    except errors.HypervisorError:
        return None


def _configured_size(args: Sequence[str]) -> tuple[int, int]:
    """Return memory in MiB and virtual processors from a command line."""
    memory, vcpus = 0, 1
    for word, value in itertools.pairwise(args):
        if word == "-m" and value.isdigit():
            memory = int(value)
        elif word == "-smp" and (count := value.partition(",")[0]).isdecimal():
            vcpus = int(count)
    return memory, vcpus


def _resident_mib(pid: int) -> int:
    try:
        text = file_utils.text_of(f"/proc/{pid}/statm", file_utils.MAX_PROC)
        pages = int(text.split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") // MIB


def _interface_addresses(hvp: Mapping[str, Any]) -> dict[str, str]:
    """Return the first address of the interface that a display is bound to."""
    name = display.bound_interface(hvp)
    if name is None:
        return {}
    families = {4: (socket.AF_INET,), 6: (socket.AF_INET6,)}.get(
        hvp.get("spice_ip_version") or 0, (socket.AF_INET, socket.AF_INET6)
    )
    try:
        index = socket.if_nametoindex(name)
    except OSError as err:
        raise errors.HypervisorError(
            f"display: this node has no interface {name}"
        ) from err
    with netutils.netlink_route() as ip:
        for family in families:
            for row in ip.get_addr(index=index, family=family):
                return {name: str(row.get_attr("IFA_ADDRESS"))}
    raise errors.HypervisorError(f"display: interface {name} has no address")
