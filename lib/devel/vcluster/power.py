"""The power switch of virtual nodes, for ``vcluster`` and for the power agent."""

import json
from collections.abc import Mapping
from typing import Final

from ganeti.base.constants.protocols import oob
from ganeti.devel.vcluster.layout import Layout
from ganeti.devel.vcluster.nodes import NodeControl

_STATUS: Final = "status"
_HEALTH: Final = "health"
#: Command of an out-of-band helper -> action.
ACTIONS: Final[Mapping[str, str]] = {
    oob.OOB_POWER_ON: "on",
    oob.OOB_POWER_OFF: "off",
    oob.OOB_POWER_CYCLE: "cycle",
    oob.OOB_POWER_STATUS: _STATUS,
    oob.OOB_HEALTH: _HEALTH,
}


def act(layout: Layout, control: NodeControl, action: str, name: str) -> str:
    """Execute an action of `ACTIONS`; return the output of an out-of-band helper.

    Raises:
        GenericError: there is no such node, or its daemons do not start.
    """
    node = layout.node(name)
    if action == _STATUS:
        powered = {oob.OOB_POWER_STATUS_POWERED: control.is_powered(node)}
        return json.dumps(powered) + "\n"
    if action == _HEALTH:
        is_on = control.is_powered(node)
        state = oob.OOB_STATUS_OK if is_on else oob.OOB_STATUS_CRITICAL
        return json.dumps([["Power", state]]) + "\n"
    if action in ("off", "cycle"):
        control.power_off(node)
    if action in ("on", "cycle"):
        control.power_on(node)
    return ""
