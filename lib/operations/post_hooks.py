"""Post hooks that an operation runs itself, before their node leaves."""

from collections.abc import Sequence
from typing import Any

from ganeti.base.constants.protocols import hooks
from ganeti.master import hooksmaster
from ganeti.operations.base import LogicalUnit


def run_post(unit: LogicalUnit[Any], nodes: Sequence[str]) -> None:
    """Run the post hooks of a unit on some nodes; failures are warnings."""
    hook, phase = unit.HOOKS_PATH or "", hooks.HOOKS_PHASE_POST
    own = unit.hooks_env()
    common = hooksmaster.common(
        unit.ctx.snapshot,
        op_id=unit.op.op_id(),
        hook=hook,
        phase=phase,
        object_type=unit.HOOKS_TYPE,
    )
    env = hooksmaster.merge(
        common,
        {**hooksmaster.pre_variables(own), **hooksmaster.post_variables(own)},
    )
    results, silent = hooksmaster.run(unit.ctx.rpc, hook, phase, nodes, env)
    for line in hooksmaster.warnings(hook, results, silent):
        unit.ctx.log.warn(line)
