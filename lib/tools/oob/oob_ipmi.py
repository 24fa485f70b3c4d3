"""``oob-ipmi``: an out-of-band helper for management controllers with IPMI.

Calls ipmitool(1). The password is in its environment, which only root can read, never
in its arguments.
"""

import re
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants.protocols import oob
from ganeti.base.process import SAFE_PATH, Runner, RunResult, SystemRunner
from ganeti.tools.oob import oob_common

#: Setting -> default; None if each node needs one.
KEYS: Final[dict[str, str | None]] = {
    "address": None,
    "user": None,
    "password": None,
    "port": "623",
    "interface": "lanplus",
    "privilege": "ADMINISTRATOR",
    "cipher": "",
}
_FORMS: Final = {
    # No option begins with these characters.
    "address": r"[0-9A-Za-z:][0-9A-Za-z.:%-]*",
    "user": r"[^-\s][^\s]*",
    "port": r"[1-9][0-9]{0,4}",
    "interface": r"lan|lanplus",
    "privilege": r"USER|OPERATOR|ADMINISTRATOR",
    "cipher": r"|[0-9]{1,2}",
}
#: Longest password of IPMI 2.0, in bytes.
_MAX_PASSWORD: Final = 20
#: Seconds for one answer of a controller, fewer than the 9 of ``gnt-node power
#: status``.
_ANSWER_S: Final = 7.0
#: Seconds for the list of sensors, which controllers read one by one.
_SENSORS_S: Final = 50.0
_MAX_OUTPUT: Final = 256 << 10
_STATE: Final = re.compile(r"Chassis Power is (on|off)\s*", re.IGNORECASE)
#: State of a sensor in the output of ipmitool -> health; ``ns``, no reading, is left
#: out.
_HEALTH: Final = {
    "ok": oob.OOB_STATUS_OK,
    "nc": oob.OOB_STATUS_WARNING,
    "cr": oob.OOB_STATUS_CRITICAL,
    "nr": oob.OOB_STATUS_CRITICAL,
}
_NO_READING: Final = "ns"
#: Columns of a line: name, value, unit, state.
_COLUMNS: Final = 4


def main(argv: Sequence[str] | None = None) -> int:
    """Run the helper."""

    def act(command: str, settings: oob_common.Settings) -> Any:
        return Controller(settings, SystemRunner(), time.monotonic, time.sleep).execute(
            command
        )

    about = "Control the power of a node through IPMI."
    return oob_common.main("oob-ipmi", about, KEYS, act, argv)


class Controller(oob_common.Controller):
    """The management controller of one machine.

    Args:
        settings: see `KEYS`.
        process: runs ipmitool.
        now: returns seconds since any moment.
        sleep: waits for some seconds.

    Raises:
        ConfigurationError: a setting has not its form.
    """

    def __init__(
        self,
        settings: oob_common.Settings,
        process: Runner,
        now: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        oob_common.check_forms(settings, _FORMS)
        password = settings["password"]
        if not 0 < len(password.encode()) <= _MAX_PASSWORD or "\0" in password:
            raise errors.ConfigurationError("invalid password, wanted 1 to 20 bytes")
        super().__init__(f"controller {settings['address']}", now, sleep)
        self._settings = settings
        self._process = process

    def is_on(self) -> bool:
        """Return whether the machine has power."""
        text = self._ask(_ANSWER_S, "chassis", "power", "status")
        match = _STATE.fullmatch(text)
        if match is None:
            raise self.problem(f"unclear power state {text[:80]!r}")
        return match[1].lower() == "on"

    def order(self, command: str) -> None:
        """Order power-on, power-off or power-cycle."""
        self._ask(_ANSWER_S, "chassis", "power", command.removeprefix("power-"))

    def health(self) -> list[list[str]]:
        """Return name and health of each sensor that has a reading."""
        rows = []
        for line in self._ask(_SENSORS_S, "-c", "sdr", "list").splitlines():
            columns = line.rsplit(",", _COLUMNS - 1)
            if len(columns) != _COLUMNS:
                continue
            name, state = columns[0].strip(), columns[-1].strip().lower()
            if name and state != _NO_READING:
                health = _HEALTH.get(state, oob.OOB_STATUS_UNKNOWN)
                rows.append([name[: oob.OOB_ITEM_CHARS], health])
        return rows

    def _ask(self, timeout_s: float, *words: str) -> str:
        """Return the output of ipmitool."""
        values = self._settings
        cipher = ("-C", values["cipher"]) if values["cipher"] else ()
        argv = (
            *("ipmitool", "-I", values["interface"], "-H", values["address"]),
            *("-p", values["port"], "-U", values["user"], "-E"),
            *("-L", values["privilege"], *cipher, "-N", "1", "-R", "4"),
            *words,
        )
        env = {
            "PATH": SAFE_PATH,
            "LC_ALL": "C",
            "IPMI_PASSWORD": values["password"],
        }
        result = self._process.run_bounded(
            argv, timeout_s=timeout_s, max_output=_MAX_OUTPUT, env=env
        )
        if result.failed:
            raise self.problem(self._reason(result))
        return result.stdout

    def _reason(self, result: RunResult) -> str:
        """Return the last line that a failed ipmitool printed."""
        if result.timed_out:
            return "does not answer"
        lines = result.stderr.strip().splitlines() or [result.reason]
        return oob_common.one_line(lines[-1], [self._settings["password"]])
