"""``oob-ssh``: an out-of-band helper that types commands on a controller over SSH.

For controllers with a command line of their own, and for machines that are guests or
sockets of another host. The host key is pinned: an unknown machine gets no password.
"""

import shlex
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants.protocols import oob
from ganeti.base.process import RunResult
from ganeti.base.text import patterns
from ganeti.tools.oob import oob_common

#: Setting -> default; None if each node needs one.
KEYS: Final[dict[str, str | None]] = {
    "address": None,
    "user": None,
    "host-key": None,
    "key-file": "",
    "password": "",
    "port": "22",
    "on": None,
    "off": None,
    "cycle": "",
    "status": None,
    "is-on": None,
    "is-off": None,
}
_FORMS: Final = {
    "address": r"[0-9A-Za-z:][0-9A-Za-z.:%-]*",
    "user": r"[^-\s][^\s]*",
    "host-key": r"(?:ssh-|ecdsa-)[0-9a-z-]+ [0-9A-Za-z+/]+=*",
    "key-file": r"|/[^\x00]+",
    "port": r"[1-9][0-9]{0,4}",
}
_COMMANDS: Final = {
    oob.OOB_POWER_ON: "on",
    oob.OOB_POWER_OFF: "off",
    oob.OOB_POWER_CYCLE: "cycle",
}
#: Characters of an output that are searched for the state.
_SEARCHED: Final = 4096
_CONTROLLER: Final = "Controller"
#: Types a command within some seconds; returns its result.
Type = Callable[[Sequence[str], float], RunResult]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the helper."""

    def act(command: str, settings: oob_common.Settings) -> Any:
        return Controller(settings, connect, time.monotonic, time.sleep).execute(
            command
        )

    about = "Control the power of a node with commands over SSH."
    return oob_common.main("oob-ssh", about, KEYS, act, argv)


def connect(settings: oob_common.Settings) -> Type:
    """Log in on the controller; return a function that types commands there.

    Raises:
        SshError: the controller is not reachable, is another one, or refuses.
    """
    # Importing it takes longer than the checks of the settings.
    from ganeti.protocols.ssh import client

    def refuse(_host: str, kind: str, fingerprint: str) -> bool:
        raise errors.SshError(
            f"controller {address}: wanted the key of the setting host-key, found"
            f" {kind} {fingerprint}; if the controller has a new one, correct it"
        )

    address = settings["address"]
    key_file, password = settings["key-file"], settings["password"]
    identity = client.Identity(
        user=settings["user"],
        key_files=(key_file,) if key_file else (),
        pinned=(settings["host-key"],),
        ask_host_key=refuse,
        ask_password=(lambda _account: password) if password else None,
    )
    connection = client.Client(address, int(settings["port"]), identity)

    def type_in(words: Sequence[str], timeout_s: float) -> RunResult:
        return connection.run(words, timeout_s=timeout_s)

    return type_in


class Controller(oob_common.Controller):
    """The controller of one machine.

    Args:
        settings: see `KEYS`.
        connect: logs in.
        now: returns seconds since any moment.
        sleep: waits for some seconds.

    Raises:
        ConfigurationError: a setting has not its form.
    """

    def __init__(
        self,
        settings: oob_common.Settings,
        connect: Callable[[oob_common.Settings], Type],
        now: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        oob_common.check_forms(settings, _FORMS)
        if not (settings["key-file"] or settings["password"]):
            raise errors.ConfigurationError("wanted the setting key-file or password")
        self._words = {
            name: _words(name, settings[name])
            for name in ("status", *_COMMANDS.values())
            if settings[name]
        }
        self._patterns = {
            is_on: _pattern(name, settings[name])
            for is_on, name in ((True, "is-on"), (False, "is-off"))
        }
        super().__init__(f"controller {settings['address']}", now, sleep)
        self._settings = settings
        self._connect = connect
        self._type: Type | None = None

    def is_on(self) -> bool:
        """Return whether the machine has power."""
        output = self._run("status")[:_SEARCHED].rstrip()
        states = [
            is_on for is_on, form in self._patterns.items() if form.search(output)
        ]
        if len(states) != 1:
            raise self.problem(
                f"wanted either is-on or is-off in the answer to status, found"
                f" {'both' if states else 'none'} in {self._shown(output)!r}"
            )
        return states[0]

    def order(self, command: str) -> None:
        """Order power-on, power-off or power-cycle."""
        name = _COMMANDS[command]
        if name in self._words:
            self._run(name)
        else:
            self.switch(oob.OOB_POWER_OFF)
            self.switch(oob.OOB_POWER_ON)

    def health(self) -> list[list[str]]:
        """Return one row: the controller answers, and knows the state."""
        self.is_on()
        return [[_CONTROLLER, oob.OOB_STATUS_OK]]

    def _run(self, name: str) -> str:
        """Type the command of a setting; return its output."""
        try:
            if self._type is None:
                self._type = self._connect(self._settings)
            result = self._type(self._words[name], self.left_s())
        except errors.SshError as err:
            raise errors.OpExecError(self._shown(str(err))) from err
        if result.timed_out:
            raise self.problem(f"{name}: does not answer in time")
        if result.failed:
            text = result.stderr.strip() or result.stdout.strip()
            line = text.splitlines()[-1] if text else result.reason
            raise self.problem(f"{name}: {self._shown(line)}")
        return result.stdout

    def _shown(self, text: str) -> str:
        return oob_common.one_line(text, [self._settings["password"]])


def _words(name: str, text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as err:
        raise errors.ConfigurationError(f"invalid {name}: {err}") from err


def _pattern(name: str, text: str) -> patterns.Pattern:
    try:
        return patterns.compile_(text, ignore_case=True)
    except errors.ParseError as err:
        raise errors.ConfigurationError(f"invalid {name}: {err}") from err
