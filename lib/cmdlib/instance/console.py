"""OP_INSTANCE_CONSOLE: how to reach an instance's console."""

from typing import Any, ClassVar

import msgspec

from ganeti import errors, locking, objects, opcodes
from ganeti.cmdlib.instance import common
from ganeti.objects import params


class InstanceConsole(common.InstanceUnit[opcodes.InstanceConsole]):
    """Unit that asks the hypervisor on the primary node for the console."""

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
        request = {
            instance.name: {
                "instance": objects.to_dict(instance),
                "node": objects.to_dict(node),
                "group": objects.to_dict(snapshot.nodegroups[node.group]),
                "hvParams": params.fill_hvparams(snapshot, instance),
                "beParams": params.fill_beparams(snapshot, instance),
            }
        }
        payload = self.ctx.rpc.call_one(
            "instance_console_info", node.uuid, msgspec.to_builtins(request)
        ).unwrap(f"instance {instance.name}: cannot get its console")
        console = payload.get(instance.name)
        if not isinstance(console, dict):
            raise errors.OpExecError(
                f"instance {instance.name}: node {node.name} described no console"
            )
        return console
