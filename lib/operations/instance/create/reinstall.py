"""OP_INSTANCE_REINSTALL: install the OS again."""

from typing import Any, ClassVar, Final

from ganeti.base import errors
from ganeti.base.constants.instance import (
    CREATION_INSTALLING,
    CREATION_INTERRUPTED,
    OS_SCRIPT_RUNS,
)
from ganeti.base.constants.protocols.os import OS_IMAGE_PARAMETER
from ganeti.model import opcodes
from ganeti.model.objects import params
from ganeti.operations.instance import checks, common
from ganeti.operations.instance.create import helper_install, helper_machine
from ganeti.operations.instance.disks import node_disks
from ganeti.operations.parameters import cloud_init, typed_params

#: Fields of the record that a request may change.
_RECORDED: Final = ("os", "osparams", "osparams_private")


class InstanceReinstall(common.InstanceUnit[opcodes.InstanceReinstall]):
    """Unit that runs the OS's create script on the disks of a stopped instance."""

    NEEDS_EXISTING: ClassVar[str] = "there is no operating system to install again"
    HOOKS_PATH: ClassVar[str | None] = "instance-reinstall"
    #: Whether the node itself runs the create script of the OS.
    is_trusted: bool = True
    _may_run: bool = False
    #: Whether an earlier script may have been running at the beginning.
    _was_unfinished: bool = False
    #: Fields of the record from before the request was recorded.
    _former: dict[str, Any] | None = None

    def check_arguments(self) -> None:
        """Check the parameters alone."""
        what = f"instance {self.op.instance_name}"
        groups = self.op.osparams, self.op.osparams_private, self.op.osparams_secret
        typed_params.check_osparams(what, *groups)
        cloud_init.check(self.op.osparams, what)
        cloud_init.check(self.op.osparams_private, what)
        cloud_init.refuse_unstored(self.op.osparams_secret, what)

    def check_prereq(self) -> None:
        """Check state, disks and OS."""
        instance, op = self.instance, self.op
        self.require_online_primary()
        self.require_stopped("be reinstalled", offline_is_fine=False)
        if not instance.disks:
            raise self.prereq(f"instance {instance.name}: has no disks to install on")
        self.os = op.os_type or instance.os
        checks.os_not_blacklisted(self.ctx.snapshot, self.os, instance.name)
        public = {name: str(value) for name, value in (op.osparams or {}).items()}
        self.future = future = instance.replace(
            os=self.os,
            osparams=typed_params.merge(instance.osparams, public),
            osparams_private=typed_params.merge(
                instance.osparams_private, op.osparams_private or {}
            ),
        )
        cloud_init.check_instance(self.ctx.snapshot, future)
        self.os_params: dict[str, Any] = (
            params.fill_osparams(self.ctx.snapshot, future)
            | params.fill_osparams_private(self.ctx.snapshot, future)
            | (op.osparams_secret or {})
        )
        if not self.os and not self.os_params.get(OS_IMAGE_PARAMETER):
            raise self.prereq(f"instance {instance.name}: no operating system given")
        self.is_trusted = checks.validate_os(
            self.ctx,
            [instance.primary_node],
            self.os,
            self.os_params,
            force_variant=op.force_variant,
            is_install=True,
        )
        if not self.is_trusted:
            helper_install.check(self.ctx, instance.name, self.os, instance.hypervisor)
            helper_machine.require_memory(self.ctx, instance)

    def execute(self) -> None:
        """Install with the disks assembled."""
        if self.op.os_type is not None:
            self.ctx.log.message(f"Changing OS to '{self.os}'...")
        wanted, present = self.future, self.instance
        changed = [
            name
            for name in _RECORDED
            if getattr(wanted, name) != getattr(present, name)
        ]
        if changed:
            self._former = {name: getattr(present, name) for name in changed}
            new = {name: getattr(wanted, name) for name in changed}
            # Before the installation, which reads OS and parameters from the record.
            common.set_instance(self.ctx, self.uuid, **new)
        node_disks.assemble(self.ctx, self.instance)
        try:
            self.ctx.log.message("Running the instance OS create scripts...")
            # Nobody starts it on disks that a script still writes to.
            self._was_unfinished = self.instance.is_unfinished
            before = self._mark(CREATION_INSTALLING)
            self._install(helper_install.Progress(self.uuid, before))
        finally:
            self._shut_down()

    def resume(self) -> None:
        """Continue the installation by a helper machine."""
        left = helper_install.Progress.from_resumption(self.ctx.resumption)
        if left is None:
            super().resume()
            return
        # Only an installation by a helper machine stores a state to continue from.
        self.is_trusted = False
        try:
            self._mark(CREATION_INSTALLING)
            self._install(left, is_continued=True)
        finally:
            self._shut_down()

    def _install(
        self, progress: helper_install.Progress, *, is_continued: bool = False
    ) -> None:
        """Install; record the end of that, and raise if it failed."""
        try:
            outcome = self._run_installer(progress, is_continued=is_continued)
        except BaseException:
            self._mark(CREATION_INTERRUPTED)
            raise
        # A script that failed has ended; one whose answer was lost may still run.
        self._may_run = outcome.may_run or (
            outcome.error is not None and self._was_unfinished
        )
        after = CREATION_INTERRUPTED if outcome.may_run else progress.former
        self._mark(after if outcome.error is not None else "")
        self._restore(outcome.error)
        outcome.check()

    def _restore(self, error: errors.GenericError | None) -> None:
        """Undo the record if an earlier script runs: no other one began."""
        if self._former is not None and OS_SCRIPT_RUNS in str(error):
            common.set_instance(self.ctx, self.uuid, **self._former)

    def _run_installer(
        self, progress: helper_install.Progress, *, is_continued: bool
    ) -> helper_install.Outcome:
        ctx, op, instance = self.ctx, self.op, self.instance
        request = helper_install.Request(
            osparams_secret=op.osparams_secret,
            reinstall=True,
            debug=op.debug_level or 0,
            reason=op.reason,
        )
        if self.is_trusted:
            what = f"instance {instance.name}: could not be reinstalled"
            return helper_install.on_node(ctx, instance, request, what)
        return helper_install.Installation(
            ctx, instance, request, progress, is_continued=is_continued
        ).run()

    def _shut_down(self) -> None:
        """Shut the disks down, unless something may still write to them."""
        if not self._may_run:
            node_disks.shutdown(self.ctx, self.instance)

    def _mark(self, creation: str) -> str:
        """Record the progress of the installation; return the former one."""
        before = self.instance.creation
        common.set_instance(self.ctx, self.uuid, creation=creation)
        return before
