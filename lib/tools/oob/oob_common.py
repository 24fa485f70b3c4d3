"""Common code of out-of-band helpers: command line, file of secrets, power switch.

The node daemon of the master calls ``HELPER COMMAND NODE``. On success a helper prints
JSON, or nothing, and ends with 0; else it prints one line on standard error and ends
with 1. See "Out-of-band power control" in doc/admin.rst.
"""

import abc
import argparse
import configparser
import json
import os
import re
import signal
import stat
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors, pathutils
from ganeti.base.constants import exitcodes, versions
from ganeti.base.constants.protocols import oob
from ganeti.base.text import arguments

#: Section with values for all nodes.
ALL_NODES: Final = "*"
#: Largest file of secrets, in bytes: 1,000 nodes have 150 KiB.
_MAX_BYTES: Final = 4 << 20
#: Seconds for all answers of a power status, fewer than the 9 of ``gnt-node power
#: status``; and of the other commands, fewer than the 60 of a helper.
STATUS_S: Final = 8.0
WORK_S: Final = 55.0
#: Seconds after these until whatever a helper waits for is given up.
_CLOSE_S: Final = 0.5
#: Seconds until a machine must have the new power state, and between two looks.
_SWITCH_S: Final = 30.0
_LOOK_S: Final = 1.0
#: Characters of a controller's message that an error shows.
_SHOWN_CHARS: Final = 200

Settings = Mapping[str, str]
#: Executes a command (see ``constants.protocols.oob``) on a node's controller; returns
#: the value to print. Raises GenericError.
Act = Callable[[str, Settings], Any]


def main(
    name: str,
    about: str,
    keys: Mapping[str, str | None],
    act: Act,
    argv: Sequence[str] | None,
    *,
    is_open: bool = False,
    node_key: str = "",
) -> int:
    """Run a helper; return its exit code.

    Args:
        name: of the helper; its settings are in ``NAME.conf``.
        about: one line for ``--help``.
        keys: setting -> default; None if each node needs one.
        act: executes a command.
        argv: arguments of the helper; None for those of this process.
        is_open: further settings are allowed.
        node_key: setting whose default is the node's name.
    """
    parser = argparse.ArgumentParser(
        prog=name, description=about, formatter_class=arguments.Formatter
    )
    version = f"{name} (ganeti) {versions.RELEASE_VERSION}"
    parser.add_argument("--version", action="version", version=version)
    parser.add_argument("command", choices=oob.OOB_COMMANDS, metavar="COMMAND")
    parser.add_argument("node", metavar="NODE")
    options = parser.parse_args(argv)
    try:
        paths = pathutils.from_environ(os.environ)
        path = f"{paths.conf_dir}/{name}.conf"
        sections = read(path, is_virtual=paths.is_virtual)
        if node_key:
            keys = {**keys, node_key: options.node}
        given = settings(path, sections, options.node, keys, is_open=is_open)
        value = _in_time(options.command, lambda: act(options.command, given))
    except errors.GenericError as err:
        print(f"{name}: {err}", file=sys.stderr)
        return exitcodes.EXIT_FAILURE
    if value is not None:
        print(json.dumps(value))
    return exitcodes.EXIT_SUCCESS


def _in_time(command: str, work: Callable[[], Any]) -> Any:
    """Return the result of work that must end, whatever it waits for.

    Raises:
        OpExecError: it did not end in time.
    """

    def end(_number: int, _frame: object) -> None:
        raise errors.OpExecError("the controller does not answer in time")

    is_status = command == oob.OOB_POWER_STATUS
    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, (STATUS_S if is_status else WORK_S) + _CLOSE_S)
    try:
        return work()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def read(path: str, *, is_virtual: bool) -> dict[str, dict[str, str]]:
    """Return the sections of a file of secrets.

    Raises:
        ConfigurationError: the file is missing, readable for others than root, or has
            wrong lines. The text has no line of the file, which may be a secret.
    """
    try:
        with open(path, encoding="utf-8", opener=_open_plain) as stream:
            info = os.fstat(stream.fileno())
            owner = os.geteuid() if is_virtual else 0
            if not stat.S_ISREG(info.st_mode):
                raise errors.ConfigurationError(f"{path}: wanted a regular file")
            if info.st_uid != owner or stat.S_IMODE(info.st_mode) & 0o077:
                raise errors.ConfigurationError(
                    f"{path}: wanted mode 0600 and owner root, found mode"
                    f" {stat.S_IMODE(info.st_mode):04o} and owner {info.st_uid}"
                )
            text = stream.read(_MAX_BYTES + 1)
    except OSError as err:
        raise errors.ConfigurationError(f"{path}: {err.strerror}") from err
    except UnicodeDecodeError as err:
        raise errors.ConfigurationError(f"{path}: is not UTF-8 text") from err
    if len(text) > _MAX_BYTES:
        raise errors.ConfigurationError(f"{path}: has more than {_MAX_BYTES} bytes")
    parser = configparser.RawConfigParser(
        default_section="", delimiters=("=",), comment_prefixes=("#",)
    )
    try:
        parser.read_string(text)
    except configparser.Error as err:
        number = getattr(err, "lineno", None) or _first_number(err)
        # The cause is left out, too: its text has the line.
        raise errors.ConfigurationError(
            f"{path}: line {number} is not [NODE], a repeated one, or not KEY = VALUE"
        ) from None
    return {name: dict(parser.items(name)) for name in parser.sections()}


def _open_plain(path: str, flags: int) -> int:
    """Open a file without waiting for the other end of a pipe."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)


def _first_number(err: configparser.Error) -> int:
    places: Sequence[tuple[int, str]] = getattr(err, "errors", None) or [(0, "")]
    return places[0][0]


def settings(
    path: str,
    sections: Mapping[str, Settings],
    node: str,
    keys: Mapping[str, str | None],
    *,
    is_open: bool = False,
) -> dict[str, str]:
    """Return the settings of a node: its own, else those of all nodes, else defaults.

    Raises:
        ConfigurationError: a setting is missing or unknown.
    """
    own = sections.get(node, {})
    given = {**sections.get(ALL_NODES, {}), **own}
    unknown = [] if is_open else sorted(set(given) - set(keys))
    if unknown:
        raise errors.ConfigurationError(
            f"{path}: node {node}: unknown setting {unknown[0]!r}, wanted one of"
            f" {', '.join(sorted(keys))}"
        )
    full = {**keys, **given}
    missing = sorted(name for name, value in full.items() if value is None)
    if missing:
        raise errors.ConfigurationError(
            f"{path}: node {node}: missing setting {missing[0]!r} in section [{node}]"
            f" or [{ALL_NODES}]"
        )
    return {name: value for name, value in full.items() if value is not None}


def check_forms(settings: Settings, forms: Mapping[str, str]) -> None:
    """Check settings against regular expressions, by name.

    Raises:
        ConfigurationError: a setting has not its form.
    """
    for name, form in forms.items():
        if not re.fullmatch(form, settings[name]):
            raise errors.ConfigurationError(f"invalid {name} {settings[name]!r}")


def one_line(text: str, secrets: Iterable[str] = ()) -> str:
    """Return a controller's message as one short line without secrets."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, "***")
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line[:_SHOWN_CHARS]


class Controller(abc.ABC):
    """The management controller of one machine.

    Args:
        name: for messages.
        now: returns seconds since any moment.
        sleep: waits for some seconds.
    """

    def __init__(
        self, name: str, now: Callable[[], float], sleep: Callable[[float], None]
    ) -> None:
        self.name = name
        self.now = now
        self._sleep = sleep
        self._end_s = 0.0

    @abc.abstractmethod
    def is_on(self) -> bool:
        """Return whether the machine has power."""

    @abc.abstractmethod
    def order(self, command: str) -> None:
        """Order power-on, power-off or power-cycle."""

    @abc.abstractmethod
    def health(self) -> list[list[str]]:
        """Return name and health of each part."""

    def problem(self, text: str) -> errors.OpExecError:
        """Return an error about this controller."""
        return errors.OpExecError(f"{self.name}: {text}")

    def left_s(self) -> float:
        """Return the seconds that the command may still take.

        Raises:
            OpExecError: there are none.
        """
        left = self._end_s - self.now()
        if left <= 0:
            raise self.problem("does not answer in time")
        return left

    def execute(self, command: str) -> Any:
        """Execute a command of ``constants.protocols.oob``; return the value to print.

        Raises:
            GenericError: the controller does not answer, or refuses.
        """
        is_status = command == oob.OOB_POWER_STATUS
        self._end_s = self.now() + (STATUS_S if is_status else WORK_S)
        if is_status:
            return {oob.OOB_POWER_STATUS_POWERED: self.is_on()}
        if command == oob.OOB_HEALTH:
            return self.health()
        if command == oob.OOB_POWER_CYCLE:
            if not self.is_on():
                # Some controllers would switch it on, and the record would be wrong.
                raise self.problem("the machine is off already")
            self.order(command)
        else:
            self.switch(command)
        return None

    def switch(self, command: str) -> None:
        """Switch the machine on or off, and wait until it has the new state."""
        is_wanted = command == oob.OOB_POWER_ON
        if self.is_on() == is_wanted:
            return
        self.order(command)
        end = self.now() + _SWITCH_S
        while self.is_on() != is_wanted:
            if self.now() >= end:
                raise self.problem(
                    f"accepted to {command.replace('-', ' ')}, but the machine did not"
                    f" follow within {_SWITCH_S:.0f} s"
                )
            self._sleep(_LOOK_S)
