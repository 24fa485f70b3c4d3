"""OP_INSTANCE_CONSOLE: how to reach an instance's console."""

from typing import Any, ClassVar

import msgspec

from ganeti.base import errors
from ganeti.master import locking
from ganeti.model import opcodes
from ganeti.model.objects import consoles, params
from ganeti.operations.instance import common
from ganeti.protocols.ssh import account


class InstanceConsole(common.InstanceUnit[opcodes.InstanceConsole]):
    """Unit that describes the console of a guest that runs.

    The node only answers whether the guest runs: clients run the described command.
    """

    NEEDS_EXISTING: ClassVar[str] = "it has no console"
    HOOKS_TYPE: ClassVar[str | None] = None

    def expand_names(self) -> None:
        """Declare the instance's lock, shared."""
        super().expand_names()
        self.locks.shared.add(locking.Level.INSTANCE)

    def check_prereq(self) -> None:
        """Refuse if its primary node is offline."""
        self.require_online_primary()

    def execute(self) -> dict[str, Any]:
        """Return the console's kind and address."""
        instance, snapshot = self.instance, self.ctx.snapshot
        if not self.runtime_info():
            state = instance.admin_state
            raise errors.OpExecError(
                f"instance {instance.name}: is not running (marked {state}), so it has"
                " no console"
            )
        node = self.primary
        port = int(params.fill_ndparams(snapshot, node)["ssh_port"])
        host = account.console_host(self.ctx.paths, node.name, node.primary_ip, port)
        hvparams = params.fill_hvparams(snapshot, instance)
        described: dict[str, Any] = msgspec.to_builtins(
            consoles.describe(instance, hvparams, host)
        )
        return described
