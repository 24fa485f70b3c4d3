"""Operations of guests of Xen, by its program ``xl``.

A guest is a domain of the name of its instance. Xen keeps what it runs with, so the
configuration file is needed only at its start.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.model.objects.filled import DiskX, InstanceX
from ganeti.node.hypervisor.base import (
    Arrival,
    AttachedDisk,
    GuestState,
    Hypervisor,
    InstanceInfo,
    MigrationStatus,
)
from ganeti.node.hypervisor.xen import checks, config, listing, migration, nics, xl
from ganeti.node.hypervisor.xen.files import DIRECTORY, Files

#: Network script of NICs without one of their own.
VIF_SCRIPT: Final = "vif-ganeti"
#: A guest has this long to reboot: number of looks, seconds between them.
_REBOOT_LOOKS: Final = 600
_REBOOT_LOOK_S: Final = 1.0
_LONGEST_PASSWORD: Final = 4096
_LARGEST_PASSWORDS: Final = 64 * 1024


class _XenHypervisor(Hypervisor):
    """Operations that both kinds of guests have."""

    def _files(self, name: str) -> Files:
        return Files(self._effects.paths, name)

    def _domains(self) -> list[listing.Domain]:
        return listing.domains(xl.check(self._effects, "Xen", "list"))

    def _domain(self, name: str) -> listing.Domain | None:
        xl.domain(name)
        rows = listing.guests(self._domains())
        return next((row for row in rows if row.name == name), None)

    # Start and end
    def require_startable(self, name: str, *, uuid: str | None = None) -> None:
        """Refuse a guest that has left, or that waits here for the word of its source.

        It may run on the other node. The domain of a guest that has left ends with the
        migration. After a job that was interrupted, only the result of the migration
        shows where the guest is.
        """
        del uuid
        if self._has_left(name):
            raise self._departed(name)
        row = self._domain(name)
        self._require_no_copy(name, row and self._arrival(row))

    def _arrival(self, row: listing.Domain) -> Arrival | None:
        """Return the state of a guest that waits for the word of its source."""
        return migration.arrival(self._files(row.name)) if row.is_paused else None

    def _has_left(self, name: str) -> bool:
        guest = self._files(name)
        return migration.has_result(guest) and (
            migration.status(guest).status == "completed"
        )

    def start(
        self, instance: InstanceX, disks: Sequence[AttachedDisk], *, paused: bool
    ) -> None:
        """Start a guest; with ``paused`` its processors wait for the console."""
        name = instance.name
        if self._domain(name) is not None:
            raise errors.HypervisorError(f"instance {name}: already running")
        self._require_capable(name)
        self.check_syntax(instance.hvparams)
        guest = self._files(name)
        guest.write_config(self._configuration(instance, disks))
        nics.write(self._effects.paths, instance)
        options = ("-p",) if paused else ()
        result = xl.run(
            *(self._effects, "create", *options, guest.config), timeout_s=xl.CHANGE_S
        )
        if not result.failed:
            return
        if self._domain(name) is not None:
            xl.run(self._effects, "destroy", name, timeout_s=xl.CHANGE_S)
        kept = guest.keep_failed_config()
        nics.remove(self._effects.paths, name)
        raise errors.HypervisorError(
            f"instance {name}: cannot start: xl create {result.reason}:"
            f" {xl.reason(result)}; its configuration is in {kept}"
        )

    def _require_capable(self, name: str) -> None:
        """Refuse a guest that this machine cannot run: xl's words do not say why.

        Raises:
            HypervisorError: names the guest and what the machine lacks.
        """

    def _configuration(self, instance: InstanceX, disks: Sequence[AttachedDisk]) -> str:
        script = f"{self._effects.paths.tools_dir}/{VIF_SCRIPT}"
        password = self._password(instance)
        return config.build(instance, disks, script=script, vnc_password=password)

    def _password(self, instance: InstanceX) -> str | None:
        """Return the password of the display; paravirtual guests have none."""
        del instance
        return None

    def stop(
        self,
        name: str,
        *,
        hvparams: Mapping[str, Any],
        force: bool,
        retry: bool = False,
        timeout_s: float | None = None,
    ) -> None:
        """Ask a guest to shut down, or destroy its domain."""
        del hvparams, retry, timeout_s
        row = self._domain(name)
        if row is None:
            raise errors.HypervisorError(f"instance {name}: not running")
        what = f"instance {name}"
        if row.is_paused or row.is_suspended:
            row = self._keep(name)
            if row is None:
                return
        if force or row.has_ended:
            result = xl.run(self._effects, "destroy", name, timeout_s=xl.CHANGE_S)
            if result.failed and self._domain(name) is not None:
                raise errors.HypervisorError(
                    f"{what}: xl destroy {result.reason}: {xl.reason(result)}"
                )
            return
        # Its system could not hear the request while it waits.
        self._let_go_on(name)
        # Without a driver for requests of Xen, a guest hears of it by ACPI.
        xl.check(self._effects, what, "shutdown", "-F", name)

    def _keep(self, name: str) -> listing.Domain | None:
        """End a migration of a guest that waits on this node; it stays, if it is here.

        A migration that goes on would let the guest go on at the target. Its copy there
        is older from now on, so this node does not give it up any more.
        """
        guest = self._files(name)
        migration.stop(self._effects, guest)
        row = self._domain(name)
        if row is not None:
            migration.forget(guest)
        return row

    def cleanup(self, name: str) -> None:
        """Remove the files of a guest that does not run any more."""
        row = self._domain(name)
        if row is not None and self._arrival(row) is not None:
            migration.stop(self._effects, self._files(name))
            # It may have been let go on just before.
            row = self._domain(name)
        if row is not None and not (row.has_ended or self._arrival(row)):
            raise errors.HypervisorError(
                f"instance {name}: cannot clean up, the instance is running"
            )
        if row is not None:
            xl.run(self._effects, "destroy", name, timeout_s=xl.CHANGE_S)
        self._files(name).remove_config()
        nics.remove(self._effects.paths, name)
        migration.forget(self._files(name))

    def reboot(self, instance: InstanceX) -> None:
        """Ask a guest to reboot, and wait until it does."""
        name = instance.name
        before = self._domain(name)
        if before is None:
            raise errors.HypervisorError(f"instance {name}: not running")
        if instance.hvparams.get("reboot_behavior") == "exit":
            raise errors.HypervisorError(
                f"instance {name}: would stay down, as parameter reboot_behavior is"
                " exit; reboot it with type hard"
            )
        xl.check(self._effects, f"instance {name}", "reboot", "-F", name)
        for _look in range(_REBOOT_LOOKS):
            row = self._domain(name)
            if row is not None and _has_rebooted(before, row):
                return
            self._effects.sleep(_REBOOT_LOOK_S)
        raise errors.HypervisorError(
            f"instance {name}: did not reboot within"
            f" {_REBOOT_LOOKS * _REBOOT_LOOK_S:g} seconds; reboot it with type hard"
        )

    # Query
    def list_names(self, hvparams: Mapping[str, Any] | None = None) -> list[str]:
        """Return the names of all guests on this node, sorted.

        One that arrives is among them, as with other hypervisors: so the clean-up after
        a migration sees that it has not ended.
        """
        del hvparams
        rows = self._domains()
        return sorted(
            {row.name for row in listing.guests(rows)} | set(listing.arriving(rows))
        )

    def info(
        self, name: str, hvparams: Mapping[str, Any] | None = None
    ) -> InstanceInfo | None:
        """Return one guest, None if it is not on this node."""
        del hvparams
        row = self._domain(name)
        return None if row is None else self._info(row)

    def _info(self, row: listing.Domain) -> InstanceInfo:
        """Return a guest; one that waits for the word of its source does not run."""
        if self._arrival(row) is not None:
            return row.info._replace(state=GuestState.SHUTDOWN)
        return row.info

    def all_infos(
        self, hvparams: Mapping[str, Any] | None = None
    ) -> list[InstanceInfo]:
        """Return all guests on this node, in the order of their names.

        One that its source has not given up is not among them, as it counts there.
        """
        del hvparams
        rows = listing.guests(self._domains())
        return [row.info for row in rows if self._arrival(row) is None]

    def node_info(self, hvparams: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return memory in MiB and processors, of the whole machine as Xen has it."""
        del hvparams
        values = listing.info(xl.check(self._effects, "Xen", "info"))
        return listing.node_info(values, self._domains())

    def verify(self, hvparams: Mapping[str, Any] | None = None) -> str | None:
        """Return the reason why guests cannot run on this node, or None."""
        del hvparams
        try:
            return checks.problem(self._effects, self.name)
        except errors.HypervisorError as err:
            return str(err)

    def validate(self, hvparams: Mapping[str, Any]) -> None:
        """Check parameters against this node."""
        super().validate(hvparams)
        self.check_syntax(hvparams)
        checks.check_files(self.name, hvparams)

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
        what = f"instance {name}"
        xl.check(self._effects, what, "mem-set", name, f"{memory_mib}m")

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
        if self._domain(name) is not None:
            raise errors.HypervisorError(f"instance {name}: already running here")
        self._require_capable(name)
        self.check_syntax(instance.hvparams)
        guest = self._files(name)
        guest.write_config(self._configuration(instance, disks))
        try:
            nics.write(self._effects.paths, instance)
            migration.listen(self._effects, guest, instance.hvparams, target)
        except (errors.GenericError, OSError) as err:
            guest.remove_config()
            nics.remove(self._effects.paths, name)
            migration.forget(guest)
            if isinstance(err, OSError):
                raise errors.HypervisorError(f"instance {name}: {err}") from err
            raise

    def migrate(
        self, instance: InstanceX, target: str, *, cluster_name: str, live: bool
    ) -> None:
        """Start sending a guest in the background."""
        del cluster_name
        self.require_running(instance)
        if live:
            self._require_live(instance.name)
        guest = self._files(instance.name)
        migration.send(self._effects, guest, instance.hvparams, target, live=live)

    def _require_live(self, name: str) -> None:
        """Refuse a guest whose memory Xen cannot watch while it runs.

        Raises:
            HypervisorError: names the capability and the other way.
        """

    def migration_status(self, instance: InstanceX) -> MigrationStatus:
        """Return the state of sending a guest; xl reports no progress."""
        return migration.status(self._files(instance.name))

    def finalize_source(
        self, instance: InstanceX, *, success: bool, live: bool
    ) -> None:
        """Remove what is left of a guest that has gone, or end its sending.

        Raises:
            HypervisorError: the guest has left, though the migration should have
                failed: it must never run on both nodes.
        """
        del live
        name = instance.name
        migration.stop(self._effects, self._files(name))
        if success:
            # Until the guest is gone here, a clean-up needs the result.
            self._destroy(name, (name, f"{name}{listing.DEPARTING}"))
            migration.forget(self._files(name))
            self.cleanup(name)
            return
        # The program does not end between its decision and its result.
        row = self._domain(name)
        if row is None or (row.has_ended and self._has_left(name)):
            place = (
                "has left for the target node"
                if self._has_left(name)
                else "does not run here any more; it may have left for the target node"
            )
            raise errors.HypervisorError(f"instance {name}: {place}")
        migration.forget(self._files(name))
        self._let_go_on(name)

    def _let_go_on(self, name: str) -> None:
        """Resume a guest that waits since a migration without an end.

        Raises:
            HypervisorError: it still waits.
        """
        row = self._domain(name)
        if row is not None and row.is_suspended:
            migration.resume(self._effects, self._files(name))
        elif row is not None and row.is_paused:
            result = xl.run(self._effects, "unpause", name)
            # The program of the migration may have done so in between.
            if result.failed and (row := self._domain(name)) and row.is_paused:
                raise errors.HypervisorError(
                    f"instance {name}: xl unpause {result.reason}: {xl.reason(result)}"
                )

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
            migration.wait(self._effects, self._files(name))
            row = self._domain(name)
            if row is None or row.has_ended:
                raise errors.HypervisorError(
                    f"instance {name}: has not arrived; see {self._files(name).log}"
                )
            self._let_go_on(name)
            migration.forget(self._files(name))
            return
        migration.stop(self._effects, self._files(name))
        row = self._domain(name)
        if row is not None and not (row.has_ended or self._arrival(row)):
            # Its source has given it up before it got its name here, or went on.
            raise errors.HypervisorError(
                f"instance {name}: has arrived and runs on this node, so it is not"
                " destroyed"
            )
        self._destroy(name, (name, f"{name}{listing.INCOMING}"))
        self.cleanup(name)

    def _destroy(self, name: str, unwanted: Sequence[str]) -> None:
        """Destroy domains of a guest that are on this node and should not be."""
        for row in self._domains():
            if row.number and row.name in unwanted:
                xl.check(
                    self._effects, f"instance {name}", "destroy", str(row.number),
                    timeout_s=xl.CHANGE_S,
                )  # fmt: skip


def _has_rebooted(before: listing.Domain, after: listing.Domain) -> bool:
    """Return whether a guest runs as a new domain, whose making has been completed."""
    is_new = after.number != before.number or after.time_s < before.time_s
    return is_new and after.memory_mib > 0 and not after.is_paused


class XenPvmHypervisor(_XenHypervisor):
    """Paravirtual guests, which need no support by the processor."""

    name: ClassVar[str] = "xen-pvm"

    def _require_live(self, name: str) -> None:
        values = listing.info(xl.check(self._effects, "Xen", "info"))
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
        values = listing.info(xl.check(self._effects, f"instance {name}", "info"))
        if problem := checks.full_virtualisation_problem(values):
            raise errors.HypervisorError(f"instance {name}: {problem}")

    def _password(self, instance: InstanceX) -> str | None:
        """Return the first line of the password file.

        Raises:
            HypervisorError: it cannot be read, or is empty.
        """
        hvp = instance.hvparams
        if not hvp.get("vnc_bind_address"):
            return None
        path = self._effects.paths.at(hvp["vnc_password_file"])
        try:
            text = files.read_file(path, max_size=_LARGEST_PASSWORDS).decode()
        except (OSError, UnicodeError, errors.GenericError) as err:
            reason = getattr(err, "strerror", None) or "not a text"
            raise errors.HypervisorError(
                f"instance {instance.name}: parameter vnc_password_file: {path}:"
                f" {reason}"
            ) from err
        password = text.partition("\n")[0][:_LONGEST_PASSWORD]
        if not password or not password.isprintable():
            raise errors.HypervisorError(
                f"instance {instance.name}: parameter vnc_password_file: wanted a"
                f" password in the first line of {path}, found none"
            )
        return password
