"""``oob-fence``: an out-of-band helper that runs an agent of ``fence-agents``.

The agents control machines, power strips and hypervisors of many makers. Each reads its
options from its standard input, one ``NAME=VALUE`` per line, so no password is among
its arguments. See FenceAgentAPI.md of that project.
"""

import re
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants.protocols import oob
from ganeti.base.filesystem import trusted_files
from ganeti.base.process import Runner, SystemRunner
from ganeti.tools.oob import oob_common

_AGENT: Final = "agent"
#: Setting -> default; all others are options of the agent.
KEYS: Final[dict[str, str | None]] = {_AGENT: None}
#: Directory of the agents.
_DIRECTORY: Final = "/usr/sbin"
_AGENT_FORM: Final = r"(?:fence_)?([a-z0-9_]{1,60})"
_OPTION: Final = re.compile(r"[a-z][a-z0-9_-]{0,60}")
#: Options that this program sets.
_OWN: Final = ("action", "option")
#: Values of such options are no part of a message.
_SECRET: Final = re.compile(r"pass|secret|token|key|community|auth|user|login")
_MAX_OUTPUT: Final = 256 << 10
#: Exit codes of the action ``status``.
_ON: Final = 0
_OFF: Final = 2
_ACTIONS: Final = {
    oob.OOB_POWER_ON: "on",
    oob.OOB_POWER_OFF: "off",
    oob.OOB_POWER_CYCLE: "reboot",
}
#: The one row of a health report: the device answers.
_DEVICE: Final = "Fence device"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the helper."""

    def act(command: str, settings: oob_common.Settings) -> Any:
        return Controller(
            settings, SystemRunner(), time.monotonic, time.sleep, _problem
        ).execute(command)

    about = "Control the power of a node through an agent of fence-agents."
    return oob_common.main("oob-fence", about, KEYS, act, argv, is_open=True)


def _problem(program: str) -> str | None:
    return trusted_files.program_problem(program, is_virtual=False)


class Controller(oob_common.Controller):
    """The device that controls one machine.

    Args:
        settings: ``agent``, and options of the agent.
        process: runs the agent.
        now: returns seconds since any moment.
        sleep: waits for some seconds.
        problem: returns why a program must not be run as root, None if it may be.

    Raises:
        ConfigurationError: a setting has not its form, or the agent is not installed.
    """

    def __init__(
        self,
        settings: oob_common.Settings,
        process: Runner,
        now: Callable[[], float],
        sleep: Callable[[float], None],
        problem: Callable[[str], str | None],
    ) -> None:
        oob_common.check_forms({_AGENT: settings[_AGENT]}, {_AGENT: _AGENT_FORM})
        name = f"fence_{settings[_AGENT].removeprefix('fence_')}"
        self._program = f"{_DIRECTORY}/{name}"
        if cause := problem(self._program):
            raise errors.ConfigurationError(f"agent {name}: {cause}")
        self._options = {k: v for k, v in settings.items() if k != _AGENT}
        for key, value in self._options.items():
            if not _OPTION.fullmatch(key) or key in _OWN:
                raise errors.ConfigurationError(f"invalid option {key!r} of the agent")
            if not value.isprintable():
                raise errors.ConfigurationError(f"invalid value of the option {key}")
        super().__init__(f"agent {name}", now, sleep)
        self._process = process

    def is_on(self) -> bool:
        """Return whether the machine has power."""
        code, message = self._run("status")
        if code not in (_ON, _OFF):
            raise self.problem(message)
        return code == _ON

    def order(self, command: str) -> None:
        """Order power-on, power-off or power-cycle."""
        self._check(_ACTIONS[command])

    def health(self) -> list[list[str]]:
        """Return one row, as agents know whether their device answers and no more."""
        self._check("monitor")
        return [[_DEVICE, oob.OOB_STATUS_OK]]

    def _check(self, action: str) -> None:
        code, message = self._run(action)
        if code != 0:
            raise self.problem(f"{action}: {message}")

    def _run(self, action: str) -> tuple[int | None, str]:
        """Run the agent; return its exit code, and its last line."""
        options = {**self._options, "action": action}
        result = self._process.run_bounded(
            [self._program],
            timeout_s=self.left_s(),
            max_output=_MAX_OUTPUT,
            stdin="".join(f"{key}={value}\n" for key, value in options.items()),
        )
        if result.timed_out:
            raise self.problem(f"{action}: does not answer in time")
        lines = [line for line in result.stderr.splitlines() if line.strip()]
        text = lines[-1] if lines else result.reason
        secrets = [v for k, v in self._options.items() if _SECRET.search(k)]
        return result.code, oob_common.one_line(text, secrets)
