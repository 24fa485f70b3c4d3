"""Operations of guests of Xen, by its program ``xl``.

A guest is a domain of the name of its instance. Xen keeps what it runs with, so the
configuration file is needed only at its start.
"""

import glob
import os
import re
import shutil
import stat
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from ganeti.base import errors, pathutils, process
from ganeti.base.filesystem import files as file_utils
from ganeti.model.objects.filled import DiskX, InstanceX
from ganeti.node.hypervisor.base import (
    Arrival,
    AttachedDisk,
    GuestState,
    Hypervisor,
    InstanceInfo,
    MigrationStatus,
    NodeEffects,
)
from ganeti.node.hypervisor.xen import config, files, migration, xl
from ganeti.node.hypervisor.xen.files import DIRECTORY, Files

# Checks of parameters and of the node, before guests start.

_TYPE: Final = "/sys/hypervisor/type"
#: Parameters that name a file of the node.
_FILES: Final = (
    "kernel_path",
    "initrd_path",
    "cdrom_image_path",
    "device_model",
    "vif_script",
    "vnc_password_file",
)
_LOADER: Final = "bootloader_path"
#: Settings of Xen's service that stops and starts guests with the machine, and its
#: links where it is enabled. It restores what it has saved, also with RESTORE=false.
_SERVICE: Final = "etc/default/xendomains"
_SERVICE_LINKS: Final = (
    "etc/rc[2-5].d/S[0-9][0-9]xendomains",
    "etc/systemd/system/*.wants/xendomains.service",
)
_SAVE: Final = re.compile(r"^[ \t]*XENDOMAINS_SAVE=[\"']?([^\"'#\s]*)", re.MULTILINE)
_LONGEST_SETTINGS: Final = 1 << 16


def xen_problem(
    effects: NodeEffects, hypervisor: str, kind_file: str = _TYPE, root: str = "/"
) -> str | None:
    """Return the reason why guests cannot run on this node, or None.

    Raises:
        HypervisorError: xl fails.
    """
    if shutil.which(xl.PROGRAM, path=process.SAFE_PATH) is None:
        return "program xl of Xen is not installed (packages xen-utils, xen-hypervisor)"
    kind = _content(kind_file)
    if kind != "xen":
        return (
            "the kernel of this node does not run under Xen: choose the entry with Xen"
            f" at its next start (wanted xen in {kind_file}, found"
            f" {kind or 'no such file'})"
        )
    values = xl.info(xl.check(effects, "Xen", "info"))
    xl.node_info(values, xl.domains(xl.check(effects, "Xen", "list")))
    if hypervisor == config.HVM and (lack := full_virtualisation_problem(values)):
        return lack
    return _restoring_problem(root)


def full_virtualisation_problem(values: Mapping[str, str]) -> str | None:
    """Return the reason why guests of xen-hvm cannot run on this node, or None.

    Args:
        values: see `xl.info`.
    """
    capabilities = values.get("virt_caps", "")
    if "hvm" in capabilities.split():
        return None
    return (
        "Xen finds no hardware virtualisation, which xen-hvm needs: switch it on in"
        " the firmware (wanted hvm among virt_caps of xl info, found"
        f" {capabilities[:80]!r})"
    )


def _restoring_problem(root: str) -> str | None:
    """Return the reason why guests could run here and on another node, or None."""
    if not any(glob.glob(pattern, root_dir=root) for pattern in _SERVICE_LINKS):
        return None
    text = _content(os.path.join(root, _SERVICE), _LONGEST_SETTINGS)
    *_others, directory = ["", *_SAVE.findall(text)]
    if not directory:
        return None
    return (
        "the service xendomains saves guests when this node shuts down, and restores"
        " them at its next start, though they may run on another node by then: write"
        f" XENDOMAINS_SAVE= into /{_SERVICE} (wanted no directory there, found"
        f" {directory[:80]!r})"
    )


def _content(path: str, size: int = 80) -> str:
    try:
        return file_utils.text_of(path, size).strip()
    except OSError:
        return ""


def check_files(hypervisor: str, hvp: Mapping[str, Any]) -> None:
    """Refuse files that this node does not have.

    Raises:
        HypervisorError: names parameter and path.
    """
    wanted = list(_FILES)
    if hypervisor != config.HVM and hvp.get("use_bootloader"):
        # The loader finds kernel and initrd in the guest.
        wanted = [key for key in wanted if key not in {"kernel_path", "initrd_path"}]
        wanted.append(_LOADER)
    if hypervisor == config.HVM:
        wanted = [
            key for key in wanted if not config.is_chosen_by_xl(key, hvp.get(key))
        ]
    if not hvp.get("vnc_bind_address"):
        wanted.remove("vnc_password_file")
    for key in wanted:
        if (path := hvp.get(key)) and not _is_file(path):
            raise errors.HypervisorError(
                f"hypervisor {hypervisor}: parameter {key}: wanted a file on this node,"
                f" found none at {path}"
            )


def _is_file(path: str) -> bool:
    try:
        return path.startswith("/") and stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return False


#: Network script of NICs without one of their own.
VIF_SCRIPT: Final = "vif-ganeti"
#: A guest has this long to reboot: number of looks, seconds between them.
_REBOOT_LOOKS: Final = 600
_REBOOT_LOOK_S: Final = 1.0
_LONGEST_PASSWORD: Final = 4096
_LARGEST_PASSWORDS: Final = 64 * 1024


class _Domains:
    """The domains of this node's guests, as xl reports and changes them."""

    def __init__(self, effects: NodeEffects) -> None:
        self._effects = effects

    def files(self, name: str) -> Files:
        return Files(self._effects.paths, name)

    def all(self) -> list[xl.Domain]:
        return xl.domains(xl.check(self._effects, "Xen", "list"))

    def find(self, name: str) -> xl.Domain | None:
        xl.domain(name)
        rows = xl.guests(self.all())
        return next((row for row in rows if row.name == name), None)

    def required(self, name: str) -> xl.Domain:
        """Return the domain of a guest; raise HypervisorError if it does not run."""
        row = self.find(name)
        if row is None:
            raise errors.HypervisorError(f"instance {name}: not running")
        return row

    def arrival(self, row: xl.Domain) -> Arrival | None:
        """Return the state of a guest that waits for the word of its source."""
        return migration.arrival(self.files(row.name)) if row.is_paused else None

    def has_left(self, name: str) -> bool:
        guest = self.files(name)
        return migration.has_result(guest) and (
            migration.status(guest).status == "completed"
        )

    def info(self, row: xl.Domain) -> InstanceInfo:
        """Return a guest; one that waits for the word of its source does not run."""
        if self.arrival(row) is not None:
            return row.info._replace(state=GuestState.SHUTDOWN)
        return row.info

    def keep(self, name: str) -> xl.Domain | None:
        """End a migration of a guest that waits on this node; it stays, if it is here.

        A migration that goes on would let the guest go on at the target. Its copy there
        is older from now on, so this node does not give it up any more.
        """
        guest = self.files(name)
        # The program decides alone, so it ends before the domain is looked at.
        migration.stop(self._effects, guest)
        row = self.find(name)
        if row is not None:
            migration.forget(guest)
        return row

    def require_here(self, name: str) -> None:
        """Refuse a guest that has left, or may have left.

        Raises:
            HypervisorError: it must never run on both nodes.
        """
        row = self.find(name)
        if row is None or (row.has_ended and self.has_left(name)):
            place = (
                "has left for the target node"
                if self.has_left(name)
                else "does not run here any more; it may have left for the target node"
            )
            raise errors.HypervisorError(f"instance {name}: {place}")

    def let_go_on(self, name: str) -> None:
        """Resume a guest that waits since a migration without an end.

        Raises:
            HypervisorError: it still waits.
        """
        row = self.find(name)
        if row is not None and row.is_suspended:
            migration.resume(self._effects, self.files(name))
        elif row is not None and row.is_paused:
            result = xl.run(self._effects, "unpause", name)
            # The program of the migration may have done so in between.
            if result.failed and (row := self.find(name)) and row.is_paused:
                raise errors.HypervisorError(
                    f"instance {name}: xl unpause {result.reason}: {xl.reason(result)}"
                )

    def destroy(self, name: str, unwanted: Sequence[str]) -> None:
        """Destroy domains of a guest that are on this node and should not be."""
        for row in self.all():
            if row.number and row.name in unwanted:
                xl.check(
                    self._effects, f"instance {name}", "destroy", str(row.number),
                    timeout_s=xl.CHANGE_S,
                )  # fmt: skip


class _XenHypervisor(Hypervisor):
    """Operations that both kinds of guests have."""

    def __init__(self, effects: NodeEffects) -> None:
        super().__init__(effects)
        self._domains = _Domains(effects)

    # Start and end
    def require_startable(self, name: str, *, uuid: str | None = None) -> None:
        """Refuse a guest that has left, or that waits here for the word of its source.

        It may run on the other node. The domain of a guest that has left ends with the
        migration. After a job that was interrupted, only the result of the migration
        shows where the guest is.
        """
        del uuid
        if self._domains.has_left(name):
            raise self._departed(name)
        row = self._domains.find(name)
        self._require_no_copy(name, row and self._domains.arrival(row))

    def start(
        self, instance: InstanceX, disks: Sequence[AttachedDisk], *, paused: bool
    ) -> None:
        """Start a guest; with ``paused`` its processors wait for the console."""
        name = instance.name
        if self._domains.find(name) is not None:
            raise errors.HypervisorError(f"instance {name}: already running")
        self._require_capable(name)
        self.check_syntax(instance.hvparams)
        guest = self._domains.files(name)
        guest.write_config(_configuration(self._effects.paths, instance, disks))
        # Before the guest exists: the network script reads them while xl makes its
        # NICs.
        files.write_nics(self._effects.paths, instance)
        options = ("-p",) if paused else ()
        result = xl.run(
            *(self._effects, "create", *options, guest.config), timeout_s=xl.CHANGE_S
        )
        if not result.failed:
            return
        if self._domains.find(name) is not None:
            xl.run(self._effects, "destroy", name, timeout_s=xl.CHANGE_S)
        kept = guest.keep_failed_config()
        files.remove_nics(self._effects.paths, name)
        raise errors.HypervisorError(
            f"instance {name}: cannot start: xl create {result.reason}:"
            f" {xl.reason(result)}; its configuration is in {kept}"
        )

    def _require_capable(self, name: str) -> None:
        """Refuse a guest that this machine cannot run: xl's words do not say why.

        Raises:
            HypervisorError: names the guest and what the machine lacks.
        """

    def stop(
        self,
        name: str,
        *,
        hvparams: Mapping[str, Any],
        force: bool,
        retry: bool = False,
    ) -> None:
        """Ask a guest to shut down, or destroy its domain."""
        del hvparams, retry
        row = self._domains.required(name)
        if row.is_paused or row.is_suspended:
            kept = self._domains.keep(name)
            if kept is None:
                return
            row = kept
        if force or row.has_ended:
            result = xl.run(self._effects, "destroy", name, timeout_s=xl.CHANGE_S)
            if result.failed and self._domains.find(name) is not None:
                raise errors.HypervisorError(
                    f"instance {name}: xl destroy {result.reason}: {xl.reason(result)}"
                )
            return
        # Its system could not hear the request while it waits.
        self._domains.let_go_on(name)
        # Without a driver for requests of Xen, a guest hears of it by ACPI.
        xl.check(self._effects, f"instance {name}", "shutdown", "-F", name)

    def cleanup(self, name: str) -> None:
        """Remove the files of a guest that does not run any more."""
        row = self._domains.find(name)
        if row is not None and self._domains.arrival(row) is not None:
            migration.stop(self._effects, self._domains.files(name))
            # It may have been let go on just before.
            row = self._domains.find(name)
        if row is not None and not (row.has_ended or self._domains.arrival(row)):
            raise errors.HypervisorError(
                f"instance {name}: cannot clean up, the instance is running"
            )
        if row is not None:
            xl.run(self._effects, "destroy", name, timeout_s=xl.CHANGE_S)
        self._domains.files(name).remove_config()
        files.remove_nics(self._effects.paths, name)
        migration.forget(self._domains.files(name))

    def reboot(self, instance: InstanceX) -> None:
        """Ask a guest to reboot, and wait until it does."""
        name = instance.name
        before = self._domains.required(name)
        if instance.hvparams.get("reboot_behavior") == "exit":
            raise errors.HypervisorError(
                f"instance {name}: would stay down, as parameter reboot_behavior is"
                " exit; reboot it with type hard"
            )
        xl.check(self._effects, f"instance {name}", "reboot", "-F", name)
        for _look in range(_REBOOT_LOOKS):
            row = self._domains.find(name)
            if row is not None and _has_rebooted(before, row):
                return
            self._effects.sleep(_REBOOT_LOOK_S)
        raise errors.HypervisorError(
            f"instance {name}: did not reboot within"
            f" {_REBOOT_LOOKS * _REBOOT_LOOK_S:g} seconds; reboot it with type hard"
        )

    # Query
    def list_names(self) -> list[str]:
        """Return the names of all guests on this node, sorted.

        One that arrives is among them, as with other hypervisors: so the clean-up after
        a migration sees that it has not ended.
        """
        rows = self._domains.all()
        return sorted({row.name for row in xl.guests(rows)} | set(xl.arriving(rows)))

    def info(self, name: str) -> InstanceInfo | None:
        """Return one guest, None if it is not on this node."""
        row = self._domains.find(name)
        return None if row is None else self._domains.info(row)

    def all_infos(self) -> list[InstanceInfo]:
        """Return all guests on this node, in the order of their names.

        One that its source has not given up is not among them, as it counts there.
        """
        rows = xl.guests(self._domains.all())
        return [row.info for row in rows if self._domains.arrival(row) is None]

    def node_info(self, hvparams: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return memory in MiB and processors, of the whole machine as Xen has it."""
        del hvparams
        values = xl.info(xl.check(self._effects, "Xen", "info"))
        return xl.node_info(values, self._domains.all())

    def verify(self, hvparams: Mapping[str, Any] | None = None) -> str | None:
        """Return the reason why guests cannot run on this node, or None."""
        del hvparams
        try:
            return xen_problem(self._effects, self.name)
        except errors.HypervisorError as err:
            return str(err)

    def validate(self, hvparams: Mapping[str, Any]) -> None:
        """Check parameters against this node."""
        super().validate(hvparams)
        self.check_syntax(hvparams)
        check_files(self.name, hvparams)

    def ancillary_files(self) -> tuple[list[str], list[str]]:
        """Return the files to distribute; xl's settings may be missing."""
        path = self._effects.paths.at(f"{DIRECTORY}/xl.conf")
        return [path], [path]

    def reset_host(self) -> None:
        """Make Xen reset the machine."""
        if not self._effects.paths.is_virtual:
            xl.run(self._effects, "debug-key", "R")

    # Change
    def balloon(self, instance: InstanceX, memory_mib: int) -> None:
        """Change a running guest's memory."""
        name = xl.domain(instance.name)
        xl.check(self._effects, f"instance {name}", "mem-set", name, f"{memory_mib}m")

    def resize_disk(self, instance: InstanceX, disk: DiskX, size_bytes: int) -> None:
        """Check that the guest runs: Xen passes the new size on by itself."""
        del disk, size_bytes
        self.require_running(instance)

    # Migration
    def migration_info(self, instance: InstanceX) -> str:
        """Return nothing: the target makes its configuration of the record."""
        self.require_running(instance)
        return ""

    def accept(
        self,
        instance: InstanceX,
        info: str,
        target: str,
        disks: Sequence[AttachedDisk],
    ) -> None:
        """Wait for the guest on an address of this node, in the background."""
        del info
        name = instance.name
        if self._domains.find(name) is not None:
            raise errors.HypervisorError(f"instance {name}: already running here")
        self._require_capable(name)
        self.check_syntax(instance.hvparams)
        guest = self._domains.files(name)
        guest.write_config(_configuration(self._effects.paths, instance, disks))
        try:
            files.write_nics(self._effects.paths, instance)
            migration.listen(self._effects, guest, instance.hvparams, target)
        except (errors.GenericError, OSError) as err:
            guest.remove_config()
            files.remove_nics(self._effects.paths, name)
            migration.forget(guest)
            if isinstance(err, OSError):
                raise errors.HypervisorError(f"instance {name}: {err}") from err
            raise

    def migrate(self, instance: InstanceX, target: str, *, live: bool) -> None:
        """Start sending a guest in the background."""
        self.require_running(instance)
        if live:
            self._require_live(instance.name)
        guest = self._domains.files(instance.name)
        migration.send(self._effects, guest, instance.hvparams, target, live=live)

    def _require_live(self, name: str) -> None:
        """Refuse a guest whose memory Xen cannot watch while it runs.

        Raises:
            HypervisorError: names the capability and the other way.
        """

    def migration_status(self, instance: InstanceX) -> MigrationStatus:
        """Return the state of sending a guest; xl reports no progress."""
        return migration.status(self._domains.files(instance.name))

    def finalize_source(self, instance: InstanceX, *, success: bool) -> None:
        """Remove what is left of a guest that has gone, or end its sending.

        Raises:
            HypervisorError: the guest has left, though the migration should have
                failed: it must never run on both nodes.
        """
        name = instance.name
        migration.stop(self._effects, self._domains.files(name))
        if success:
            # Until the guest is gone here, a clean-up needs the result.
            self._domains.destroy(name, (name, f"{name}{xl.DEPARTING}"))
            migration.forget(self._domains.files(name))
            self.cleanup(name)
            return
        # The program does not end between its decision and its result.
        self._domains.require_here(name)
        migration.forget(self._domains.files(name))
        self._domains.let_go_on(name)

    def finalize_destination(
        self, instance: InstanceX, info: str, *, success: bool
    ) -> None:
        """Check that the guest has arrived, or remove what is left of it.

        Raises:
            HypervisorError: it has not arrived; or it runs here, though the migration
                should have failed.
        """
        del info
        name = instance.name
        if success:
            migration.wait(self._effects, self._domains.files(name))
            row = self._domains.find(name)
            if row is None or row.has_ended:
                raise errors.HypervisorError(
                    f"instance {name}: has not arrived; see"
                    f" {self._domains.files(name).log}"
                )
            self._domains.let_go_on(name)
            migration.forget(self._domains.files(name))
            return
        migration.stop(self._effects, self._domains.files(name))
        row = self._domains.find(name)
        if row is not None and not (row.has_ended or self._domains.arrival(row)):
            # Its source has given it up before it got its name here, or went on.
            raise errors.HypervisorError(
                f"instance {name}: has arrived and runs on this node, so it is not"
                " destroyed"
            )
        self._domains.destroy(name, (name, f"{name}{xl.INCOMING}"))
        self.cleanup(name)


def _configuration(
    paths: pathutils.Paths, instance: InstanceX, disks: Sequence[AttachedDisk]
) -> str:
    script = f"{paths.tools_dir}/{VIF_SCRIPT}"
    password = _display_password(paths, instance)
    return config.build(instance, disks, script=script, vnc_password=password)


def _display_password(paths: pathutils.Paths, instance: InstanceX) -> str | None:
    """Return the first line of the password file; paravirtual guests have none.

    Raises:
        HypervisorError: it cannot be read, or is empty.
    """
    hvp = instance.hvparams
    if not hvp.get("vnc_bind_address"):
        return None
    path = paths.at(hvp["vnc_password_file"])
    try:
        text = file_utils.read_file(path, max_size=_LARGEST_PASSWORDS).decode()
    except (OSError, UnicodeError, errors.GenericError) as err:
        reason = getattr(err, "strerror", None) or "not a text"
        raise errors.HypervisorError(
            f"instance {instance.name}: parameter vnc_password_file: {path}: {reason}"
        ) from err
    password = text.partition("\n")[0][:_LONGEST_PASSWORD]
    if not password or not password.isprintable():
        raise errors.HypervisorError(
            f"instance {instance.name}: parameter vnc_password_file: wanted a"
            f" password in the first line of {path}, found none"
        )
    return password


def _has_rebooted(before: xl.Domain, after: xl.Domain) -> bool:
    """Return whether a guest runs as a new domain, whose making has been completed."""
    # xl is still making a domain without memory, and holds its lock until the end: the
    # next command would wait for it.
    is_new = after.number != before.number or after.time_s < before.time_s
    return is_new and after.memory_mib > 0 and not after.is_paused


class XenPvmHypervisor(_XenHypervisor):
    """Paravirtual guests, which need no support by the processor."""

    name: ClassVar[str] = "xen-pvm"

    def _require_live(self, name: str) -> None:
        values = xl.info(xl.check(self._effects, "Xen", "info"))
        capabilities = values.get("virt_caps", "")
        if "shadow" not in capabilities.split():
            raise errors.HypervisorError(
                f"instance {name}: Xen on this node cannot migrate paravirtual guests"
                " live, as it was built without shadow page tables (wanted shadow among"
                f" virt_caps of xl info, found {capabilities[:80]!r}); use --non-live,"
                " or gnt-cluster modify -H xen-pvm:migration_mode=non-live"
            )


class XenHvmHypervisor(_XenHypervisor):
    """Guests with full virtualisation and an emulator for their devices."""

    name: ClassVar[str] = "xen-hvm"

    def _require_capable(self, name: str) -> None:
        values = xl.info(xl.check(self._effects, f"instance {name}", "info"))
        if problem := full_virtualisation_problem(values):
            raise errors.HypervisorError(f"instance {name}: {problem}")
