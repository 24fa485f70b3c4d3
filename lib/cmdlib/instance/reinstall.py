"""OP_INSTANCE_REINSTALL: install the OS again."""

from typing import Any, ClassVar

from ganeti import opcodes
from ganeti.cmdlib import cloud_init, typed_params
from ganeti.cmdlib.instance import checks, common, disks
from ganeti.constants import ecodes
from ganeti.constants.instance import CREATION_INSTALLING, CREATION_INTERRUPTED
from ganeti.objects import params
from ganeti.rpc import encode


class InstanceReinstall(common.InstanceUnit[opcodes.InstanceReinstall]):
    """Unit that runs the OS's create script on the disks of a stopped instance."""

    NEEDS_EXISTING: ClassVar[str] = "there is no operating system to install again"
    HOOKS_PATH: ClassVar[str | None] = "instance-reinstall"

    def check_arguments(self) -> None:
        """Check the parameters alone."""
        what = f"instance {self.op.instance_name}"
        typed_params.check_os_image(self.op.osparams, what)
        for given in (
            self.op.osparams,
            self.op.osparams_private,
            self.op.osparams_secret,
        ):
            cloud_init.refuse_unstored(given, what)

    def check_prereq(self) -> None:
        """Check state, disks and OS."""
        instance, op = self.instance, self.op
        self.require_online_primary()
        self.require_stopped("be reinstalled", offline_is_fine=False)
        if not instance.disks:
            raise self.prereq(
                f"instance {instance.name}: has no disks to install on",
                ecodes.ECODE_INVAL,
            )
        self.os = op.os_type or instance.os
        if not self.os:
            raise self.prereq(f"instance {instance.name}: no operating system given")
        checks.os_not_blacklisted(self.ctx.snapshot, self.os, instance.name)
        future = instance.replace(os=self.os)
        self.os_params: dict[str, Any] = (
            params.fill_osparams(self.ctx.snapshot, future)
            | params.fill_osparams_private(self.ctx.snapshot, future)
            | (op.osparams or {})
            | (op.osparams_private or {})
            | (op.osparams_secret or {})
        )
        checks.validate_os(
            self.ctx,
            [instance.primary_node],
            self.os,
            self.os_params,
            force_variant=op.force_variant,
            is_install=True,
        )

    def execute(self) -> None:
        """Install with the disks assembled."""
        if self.op.os_type is not None:
            self.ctx.log.message(f"Changing OS to '{self.os}'...")
            common.set_instance(self.ctx, self.uuid, os=self.os)
        disks.assemble(self.ctx, self.instance)
        try:
            self.ctx.log.message("Running the instance OS create scripts...")
            wire = encode.private_instance(
                self.ctx.snapshot,
                self.instance,
                osparams=self.op.osparams,
                osparams_private=self.op.osparams_private,
                osparams_secret=self.op.osparams_secret,
            )
            # Nobody starts it on disks that a script still writes to.
            before = self._mark(CREATION_INSTALLING)
            result = self.ctx.rpc.call_one(
                "instance_os_add",
                self.instance.primary_node,
                wire,
                True,
                self.op.debug_level or 0,
            )
            # A script that failed has ended; one whose answer was lost may still run.
            after = CREATION_INTERRUPTED if result.is_lost else before
            self._mark(after if result.failed else "")
            result.unwrap(f"instance {self.instance.name}: could not be reinstalled")
        finally:
            disks.shutdown(self.ctx, self.instance)

    def _mark(self, creation: str) -> str:
        """Record the progress of the installation; return the former one."""
        before = self.instance.creation
        common.set_instance(self.ctx, self.uuid, creation=creation)
        return before
