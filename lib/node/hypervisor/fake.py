"""Hypervisor that only records guests in files, for tests and virtual clusters.

There is one file per guest below the run directory, with three lines: id 0, memory in
MiB and virtual processors.
"""

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.model.objects.filled import DiskX, InstanceX
from ganeti.node.hypervisor.base import (
    AttachedDisk,
    GuestState,
    Hypervisor,
    InstanceInfo,
    MigrationStatus,
    check_instance_name,
    linux_node_info,
)


class FakeHypervisor(Hypervisor):
    """Driver whose guests are files."""

    name = "fake"

    @property
    def _dir(self) -> str:
        return f"{self._effects.paths.run_dir}/fake-hypervisor"

    def _file(self, name: str) -> str:
        return f"{self._dir}/{check_instance_name(name)}"

    def _write(self, name: str, memory_mib: int, vcpus: int, *, mode: str) -> None:
        os.makedirs(self._dir, mode=0o750, exist_ok=True)
        with open(self._file(name), mode, encoding="ascii") as out:
            out.write(f"0\n{memory_mib}\n{vcpus}\n")

    def start(
        self, instance: InstanceX, disks: Sequence[AttachedDisk], *, paused: bool
    ) -> None:
        """Record that a guest runs."""
        del disks, paused
        params = instance.beparams
        try:
            self._write(instance.name, params["maxmem"], params["vcpus"], mode="x")
        except FileExistsError:
            raise errors.HypervisorError(
                f"instance {instance.name}: already running"
            ) from None

    def stop(
        self,
        name: str,
        *,
        hvparams: Mapping[str, Any],
        force: bool,
        retry: bool = False,
    ) -> None:
        """Remove the record of a guest, immediately in all cases."""
        del hvparams, force, retry
        try:
            os.unlink(self._file(name))
        except FileNotFoundError:
            raise errors.HypervisorError(f"instance {name}: not running") from None

    def cleanup(self, name: str) -> None:
        """Remove the record of a guest."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._file(name))

    def reboot(self, instance: InstanceX) -> None:
        """Check that the guest runs; a file needs no reboot."""
        self.migratable(instance)

    def list_names(self) -> list[str]:
        """Return the names of all guests on this node, sorted."""
        try:
            return sorted(os.listdir(self._dir))
        except FileNotFoundError:
            return []

    def info(self, name: str) -> InstanceInfo | None:
        """Return one guest, None if it is not on this node."""
        try:
            text = files.text_of(self._file(name), files.MAX_PROC)
            hv_id, *numbers = text.split()
            memory, vcpus = map(int, numbers)
        except FileNotFoundError:
            return None
        except OSError as err:
            raise errors.HypervisorError(
                f"instance {name}: {self._file(name)}: {err.strerror}"
            ) from err
        except ValueError as err:
            raise errors.HypervisorError(
                f"instance {name}: {self._file(name)}: wanted three lines: {err}"
            ) from err
        return InstanceInfo(name, hv_id, memory, vcpus, GuestState.RUNNING, 0.0)

    def node_info(self, hvparams: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return this node's memory and processors, less the memory of its guests."""
        del hvparams
        info = linux_node_info()
        used = sum(guest.memory_mib for guest in self.all_infos())
        info["memory_free"] -= min(used, info["memory_free"])
        return info

    def verify(self, hvparams: Mapping[str, Any] | None = None) -> str | None:
        """Return the reason why the directory of guests cannot be used, or None."""
        del hvparams
        try:
            os.makedirs(self._dir, mode=0o750, exist_ok=True)
        except OSError as err:
            return f"directory {self._dir}: {err.strerror}"
        return None

    def balloon(self, instance: InstanceX, memory_mib: int) -> None:
        """Record the new memory size of a guest."""
        info = self.info(instance.name)
        if info is None:
            raise errors.HypervisorError(f"instance {instance.name}: not running")
        self._write(instance.name, memory_mib, info.vcpus, mode="w")

    def resize_disk(self, instance: InstanceX, disk: DiskX, size_bytes: int) -> None:
        """Check that the guest runs; it does not open its disks."""
        del disk, size_bytes
        self.migratable(instance)

    def migration_info(self, instance: InstanceX) -> str:
        """Return the guest's memory in MiB, which ballooning may have changed."""
        info = self.info(instance.name)
        if info is None:
            raise errors.HypervisorError(f"instance {instance.name}: not running")
        return str(info.memory_mib)

    def accept(
        self,
        instance: InstanceX,
        info: str,
        target: str,
        disks: Sequence[AttachedDisk],
    ) -> None:
        """Check that the guest does not run on this node already."""
        del info, target, disks
        if self.info(instance.name) is not None:
            raise errors.HypervisorError(f"instance {instance.name}: already running")

    def migrate(self, instance: InstanceX, target: str, *, live: bool) -> None:
        """Check that the guest runs here; finalizing the migration moves it."""
        del target, live
        self.migratable(instance)

    def migration_status(self, instance: InstanceX) -> MigrationStatus:
        """Return success, as nothing is transferred."""
        del instance
        return MigrationStatus("completed")

    def finalize_source(self, instance: InstanceX, *, success: bool) -> None:
        """Remove the record of a guest that has left."""
        if success:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._file(instance.name))

    def finalize_destination(
        self, instance: InstanceX, info: str, *, success: bool
    ) -> None:
        """Record a guest that has arrived, or remove its record."""
        if not success:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._file(instance.name))
            return
        memory = int(info) if info.isdigit() else instance.beparams["maxmem"]
        self._write(instance.name, memory, instance.beparams["vcpus"], mode="w")
