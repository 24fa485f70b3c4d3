"""``oob-vcluster``: an out-of-band helper for the nodes of a virtual cluster.

It is the power switch of ``vcluster power`` in the form of the other helpers: settings
in a file of root's, one line for a failure, and a machine is switched only once.
"""

import json
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from ganeti.base import errors, pathutils
from ganeti.base.constants.protocols import oob
from ganeti.base.filesystem import trusted_files
from ganeti.base.process import SystemRunner
from ganeti.devel.vcluster import agent, nodes
from ganeti.devel.vcluster import layout as layout_module
from ganeti.devel.vcluster.nodes import NodeControl
from ganeti.tools.oob import oob_common

_DIRECTORY: Final = "directory"
_NODE: Final = "node"
#: Characters of an odd answer that an error shows.
_SHOWN: Final = 200
#: Setting -> default; None if each node needs one.
KEYS: Final[dict[str, str | None]] = {_DIRECTORY: None, _NODE: ""}
_FORMS: Final = {_DIRECTORY: r"/[^\x00]+", _NODE: r"[0-9A-Za-z][0-9A-Za-z.-]*"}
#: Returns the output of an action of `power.ACTIONS` for a node.
Ask = Callable[[str, str], str]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the helper."""

    def act(command: str, settings: oob_common.Settings) -> Any:
        return Controller(settings, connect, time.monotonic, time.sleep).execute(
            command
        )

    about = "Control the power of a node of a virtual cluster."
    return oob_common.main("oob-vcluster", about, KEYS, act, argv, node_key=_NODE)


def connect(directory: str) -> Ask:
    """Return the power switch of the virtual cluster in a directory.

    Raises:
        ConfigurationError: others than root may change the cluster's file, which names
            programs that root would run.
        OpPrereqError: there is no virtual cluster.
    """
    is_virtual = pathutils.from_environ(os.environ).is_virtual
    state = os.path.join(directory, layout_module.STATE_FILE)
    if layout_module.Layout.exists(directory) and (
        cause := trusted_files.file_problem(state, is_virtual=is_virtual)
    ):
        raise errors.ConfigurationError(f"directory {directory}: {cause}")
    layout = layout_module.Layout.load(directory)

    def ask_agent(action: str, node: str) -> str:
        answer = agent.ask(layout, action, layout.node(node).name)
        if answer.get("code") != 0:
            raise errors.OpExecError(str(answer.get("stderr")))
        return str(answer.get("stdout"))

    def ask_here(action: str, node: str) -> str:
        return nodes.power_act(
            layout, NodeControl(layout, SystemRunner()), action, node
        )

    return ask_agent if layout.isolated else ask_here


class Controller(oob_common.Controller):
    """The power switch of one virtual node.

    Args:
        settings: see `KEYS`.
        connect: returns the power switch of the cluster in a directory.
        now: returns seconds since any moment.
        sleep: waits for some seconds.

    Raises:
        ConfigurationError: a setting has not its form.
        OpPrereqError: there is no virtual cluster.
    """

    def __init__(
        self,
        settings: oob_common.Settings,
        connect: Callable[[str], Ask],
        now: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        oob_common.check_forms(settings, _FORMS)
        super().__init__(f"virtual node {settings[_NODE]}", now, sleep)
        self._node = settings[_NODE]
        self._ask = connect(settings[_DIRECTORY])

    def is_on(self) -> bool:
        """Return whether the node has power."""
        value = self._value(oob.OOB_POWER_STATUS)
        key = oob.OOB_POWER_STATUS_POWERED
        is_on = value.get(key) if isinstance(value, dict) else None
        if not isinstance(is_on, bool):
            raise self.problem(f"wanted its power state, found {value!r}"[:_SHOWN])
        return is_on

    def order(self, command: str) -> None:
        """Order power-on, power-off or power-cycle."""
        self._run(command)

    def health(self) -> list[list[str]]:
        """Return one row: whether the node has power."""
        rows: list[list[str]] = self._value(oob.OOB_HEALTH)
        return rows

    def _value(self, command: str) -> Any:
        text = self._run(command)
        try:
            return json.loads(text)
        except ValueError as err:
            raise self.problem(f"wanted JSON, found {text!r}"[:_SHOWN]) from err

    def _run(self, command: str) -> str:
        self.left_s()
        try:
            return self._ask(nodes.POWER_ACTIONS[command], self._node)
        except (errors.GenericError, OSError) as err:
            text = err.args[0] if isinstance(err, errors.GenericError) else err
            raise self.problem(oob_common.one_line(str(text))) from err
