"""Creation of instances whose disks get a content that exists already."""

import abc
from typing import Any

from ganeti.base import errors
from ganeti.base.constants.instance import CREATION_INSTALLING
from ganeti.operations import allocation
from ganeti.operations.instance import common
from ganeti.operations.instance.create import create
from ganeti.protocols.rpc import encode


class _ScriptLostError(errors.OpExecError):
    """The answer of an OS script was lost; the script may still run."""


class FilledInstance(create.InstanceCreate):
    """Base of units that create an instance and copy a content to its disks.

    If that fails, the new instance is removed again.
    """

    #: Whether a restarted master daemon found the record made.
    is_continued: bool = False
    #: Whether programs of an interrupted copy may write to the disks.
    _may_be_written: bool = False

    def require_os(self) -> None:
        """Accept a request without OS: the disks are copied as they are."""

    @property
    def installs(self) -> bool:
        """Whether the disks get a content."""
        return bool(self.plan.disks)

    @property
    def runs_installer(self) -> bool:
        """Whether the create script of the OS runs: its import script does."""
        return False

    @property
    @abc.abstractmethod
    def old_name(self) -> str:
        """Name of the instance that the content is of."""

    @abc.abstractmethod
    def fill(self) -> None:
        """Copy the content, or continue with that.

        Whatever happens, no program of the copy is left at the end.
        """

    @abc.abstractmethod
    def end_copy(self) -> None:
        """End the programs of an interrupted copy; failures are logged."""

    def install_content(self) -> None:
        """Copy the content; remove the instance if that fails, or the job is killed."""
        # It may take hours, and concerns this instance and the content alone.
        allocation.release_nodes(self.ctx)
        self._may_be_written = False
        try:
            self.fill()
            self._rename()
        except _ScriptLostError as err:
            raise errors.OpExecError(*err.args) from err
        except BaseException:
            self.ctx.save_resumption(None)
            try:
                # Raises if a client asks to kill the job now.
                self.ctx.log.message("* removing the new instance again")
            finally:
                self.remove_again()
            raise
        self.ctx.save_resumption(None)
        self.change(creation="")

    def private_wire(self) -> dict[str, Any]:
        """Return the record that OS scripts get."""
        wire: dict[str, Any] = encode.private_instance(
            self.ctx.snapshot,
            self.instance,
            osparams_secret=self.op.osparams_secret,
        )
        return wire

    def _rename(self) -> None:
        """Have the OS adapt the content to the name of the instance.

        Raises:
            _ScriptLostError: the script may still run, so the instance must be neither
                started nor removed.
        """
        if not self.instance.os:
            return
        self.ctx.log.message("* running the instance OS rename script...")
        result = self.ctx.rpc.call_one(
            "instance_run_rename",
            self.instance.primary_node,
            self.private_wire(),
            self.old_name,
            self.op.debug_level or 0,
        )
        what = "the OS rename script failed"
        if result.is_lost:
            raise _ScriptLostError(result.describe(f"instance {self.name}: {what}"))
        if result.failed:
            # Raises if a client had the script killed.
            self.ctx.pause(0.0)
        common.warn_failed(self.ctx, result, what)

    # Continuing
    def take_over(self, uuid: str) -> None:
        """Take over an interrupted creation, with the lock of the instance alone."""
        super().take_over(uuid)
        self.is_continued = True
        self._may_be_written = True

    def resume(self) -> list[str] | str:
        """Continue where the master daemon ended."""
        if not self.is_continued:
            return super().resume()
        self.change(creation=CREATION_INSTALLING)
        try:
            self._announce_again()
            self.activate()
            return self.install_and_start()
        finally:
            self._end_left_copy()

    def _announce_again(self) -> None:
        """Log that it continues; remove the instance if the job is killed."""
        try:
            self.ctx.log.message(
                f"* the master daemon was restarted; the import of {self.name}"
                " continues"
            )
        except BaseException:
            self.remove_again()
            raise

    def remove_again(self) -> None:
        """Remove the new instance, after the programs that write to its disks."""
        self._end_left_copy()
        super().remove_again()

    def _end_left_copy(self) -> None:
        """End the copy of an interrupted run if this one has not continued it."""
        if self._may_be_written:
            self._may_be_written = False
            self.end_copy()
