"""OP_INSTANCE_RENAME: give an instance another name."""

import contextlib
import os.path
from collections.abc import Iterator
from typing import Any, ClassVar

import msgspec

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.constants import instance as constants
from ganeti.base.net import netutils
from ganeti.master import locking
from ganeti.model import objects, opcodes
from ganeti.operations.instance import common
from ganeti.operations.instance.create import request_parts
from ganeti.operations.instance.devices import firmware
from ganeti.operations.instance.disks import node_disks, volumes
from ganeti.protocols.rpc import calls, encode


class Interrupted(msgspec.Struct, frozen=True):
    """The state of a rename whose master daemon ended.

    Attributes:
        uuid: of the instance.
        old_name, new_name: its names.
        is_in_script: whether the script of the operating system has begun.
    """

    uuid: str
    old_name: str
    new_name: str
    is_in_script: bool = False


class InstanceRename(common.InstanceUnit[opcodes.InstanceRename]):
    """Unit that renames a stopped instance and its directories, and notifies its OS.

    A rename to the present name only runs the script of the OS.
    """

    HOOKS_PATH: ClassVar[str | None] = "instance-rename"
    NEEDS_EXISTING: ClassVar[str] = ""
    #: The rename that was interrupted.
    left: Interrupted | None = None
    #: Whether the script may still run, since the answer of the node was lost.
    _may_run: bool = False

    def check_arguments(self) -> None:
        """Resolve the new name."""
        if self.ctx.resumption is not None:
            self.left = msgspec.convert(self.ctx.resumption, Interrupted)
            self.new_name, self.old_name = self.left.new_name, self.left.old_name
            return
        if self.op.ip_check and not self.op.name_check:
            raise self.prereq("checking the address needs the name to be checked too")
        self.new_name = netutils.normalize_host_name(self.op.new_name)
        netutils.refuse_uuid(self.new_name, f"instance {self.new_name}")
        self.address = None
        if self.op.name_check:
            self.new_name, addresses = request_parts.resolve(self.ctx, self.new_name)
            self.address = addresses[0]

    def expand_names(self) -> None:
        """Lock the instance under both names."""
        if self.left is not None:
            self.uuid = self.left.uuid
            self.locks.names[locking.Level.INSTANCE] = [self.instance.name]
        else:
            super().expand_names()
        if self.new_name != self.instance.name:
            self.locks.add[locking.Level.INSTANCE] = [self.new_name]

    def check_prereq(self) -> None:
        """Check that it is stopped and the name is free."""
        self.old_name = self.instance.name
        if not self.instance.forthcoming:
            self.require_online_primary()
            self.require_stopped("be renamed")
        if self.new_name == self.old_name:
            return  # only the OS script runs
        if self.ctx.snapshot.uuid_of("instances", self.new_name) is not None:
            raise self.prereq(
                f"instance {self.new_name}: already exists", ecodes.ECODE_EXISTS
            )
        self.warn_of_short_name("instances", self.new_name, self.old_name)
        if self.op.ip_check and self.address and self.ctx.address_answers(self.address):
            raise self.prereq(
                f"instance {self.new_name}: its address {self.address} is in use, a"
                " machine answers there",
                ecodes.ECODE_NOTUNIQUE,
            )

    def hooks_env(self) -> dict[str, Any]:
        """Return the variables of the instance and the new name."""
        return super().hooks_env() | {"INSTANCE_NEW_NAME": self.op.new_name}

    def execute(self) -> str:
        """Rename directories and record, run the OS's rename script."""
        is_forthcoming = self.instance.forthcoming
        if self.new_name != self.old_name:
            if not is_forthcoming:
                # The node's files have the old name, and a guest can end by itself.
                firmware.require_saved(
                    self.ctx,
                    self.uuid,
                    self.instance.primary_node,
                    f"as {self.new_name} it would start with earlier ones",
                )
                # With the directory alone renamed, it could not start.
                self._save()
                self._move_directories(self.instance)
            with self.ctx.config.edit(self.ctx.owner) as edit:
                edit.rename_instance(self.uuid, self.new_name)
        if not is_forthcoming:
            self._notify()
        return self.new_name

    def resume(self) -> str:
        """Complete the rename.

        Raises:
            OpExecError: the script of the operating system was interrupted.
        """
        left, instance = self.left, self.instance
        if left is None:
            raise errors.ProgrammerError("a rename without a state was resumed")
        if left.is_in_script:
            raise errors.OpExecError(
                f"instance {instance.name}: has its new name; the master daemon was"
                " restarted while the rename script of its operating system ran: when"
                " the script has ended, run it again with gnt-instance rename"
                f" {instance.name} {instance.name}"
            )
        self.ctx.log.message("* the master daemon was restarted; the rename goes on")
        if instance.name != self.new_name:
            self._move_directories(instance)
            with self.ctx.config.edit(self.ctx.owner) as edit:
                edit.rename_instance(self.uuid, self.new_name)
        self._notify()
        return self.new_name

    def _save(self, *, is_in_script: bool = False) -> None:
        state = Interrupted(self.uuid, self.old_name, self.new_name, is_in_script)
        self.ctx.save_resumption(msgspec.to_builtins(state))

    def _notify(self) -> None:
        """Let volumes and operating system know the name."""
        if self.new_name != self.old_name:
            made = self.ctx.snapshot.instance_disks(self.instance)
            volumes.set_owner(self.ctx, self.instance, made)
        self._run_script()

    def _move_directories(self, instance: objects.Instance) -> None:
        directories = {
            os.path.dirname(disk.logical_id[1])
            for disk in self.ctx.snapshot.instance_disks(instance)
            if disk.dev_type in ("file", "sharedfile")
        }
        # A call before a restart of the master daemon may have been carried out.
        has_begun = self.left is not None
        for old in sorted(directories):
            new = os.path.join(os.path.dirname(old), self.new_name)
            self.ctx.log.message(f"* renaming directory {old} to {new}")
            # A directory that is renamed already is left alone.
            renamed = common.ask_again(
                self.ctx,
                instance.primary_node,
                calls.file_storage_dir_rename(old, new),
            )
            if renamed.failed:
                text = renamed.describe(
                    f"instance {instance.name}: cannot rename directory {old}"
                )
                # A busy node has not begun.
                is_refused = renamed.is_rejected and not (renamed.is_lost or has_begun)
                if not (renamed.is_answered or is_refused):
                    text += (
                        "; it may have its new name already, so the instance may not"
                        " start: when the node answers, complete this with gnt-instance"
                        f" rename {instance.name} {self.new_name}"
                    )
                raise errors.OpExecError(text)
            has_begun = True

    def _run_script(self) -> None:
        instance = self.instance
        was_unfinished = instance.is_unfinished
        if not instance.os:
            return
        try:
            node_disks.assemble(self.ctx, instance)
        except errors.OpExecError as err:
            self.ctx.log.warn(f"the OS rename script was not run: {err}")
            return
        try:
            with self._marked():
                # Two at the same time would write to the same disks.
                self._save(is_in_script=True)
                result = self.ctx.rpc.call_node(
                    instance.primary_node,
                    calls.instance_run_rename(
                        encode.private_instance(self.ctx.snapshot, self.instance),
                        self.old_name,
                        self.op.debug_level or 0,
                    ),
                )
                # The node refuses a second script as long as an earlier one runs.
                self._may_run = result.is_lost or (result.failed and was_unfinished)
                self.ctx.warn_failed(result, "the OS rename script failed")
        finally:
            if not self._may_run:
                node_disks.shutdown(self.ctx, self.instance)

    @contextlib.contextmanager
    def _marked(self) -> Iterator[None]:
        """Keep others from starting the instance while a script may write to its disks.

        An installation that did not finish has such a mark already, and keeps it.
        """
        if self.instance.creation == constants.CREATION_INTERRUPTED:
            yield
            return
        self._mark(constants.CREATION_RENAMING)
        try:
            yield
        except BaseException:
            self._mark(constants.CREATION_RENAME_CUT)
            raise
        self._mark(constants.CREATION_RENAME_CUT if self._may_run else "")

    def _mark(self, creation: str) -> None:
        common.set_instance(self.ctx, self.uuid, creation=creation)
