"""Common code of out-of-band helpers: their command line, and their file of secrets.

The node daemon of the master calls ``HELPER COMMAND NODE``. On success a helper prints
JSON, or nothing, and ends with 0; else it prints one line on standard error and ends
with 1. See "Out-of-band power control" in doc/admin.rst.
"""

import argparse
import configparser
import json
import os
import stat
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ganeti import errors, pathutils
from ganeti.constants import exitcodes, oob, versions
from ganeti.utils import arguments

#: Section with values for all nodes.
ALL_NODES: Final = "*"
#: Largest file of secrets, in bytes: 1,000 nodes have 150 KiB.
_MAX_BYTES: Final = 4 << 20

Settings = Mapping[str, str]
#: Executes a command (see ``constants.oob``) on a node's controller; returns the value
#: to print. Raises GenericError.
Act = Callable[[str, Settings], Any]


def main(
    name: str, about: str, keys: Mapping[str, str | None], act: Act, argv: Sequence[str]
) -> int:
    """Run a helper; return its exit code.

    Args:
        name: of the helper; its settings are in ``NAME.conf``.
        about: one line for ``--help``.
        keys: setting -> default; None if each node needs one.
        act: executes a command.
        argv: arguments of the helper.
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
        value = act(options.command, settings(path, sections, options.node, keys))
    except errors.GenericError as err:
        print(f"{name}: {err}", file=sys.stderr)
        return exitcodes.EXIT_FAILURE
    if value is not None:
        print(json.dumps(value))
    return exitcodes.EXIT_SUCCESS


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
) -> dict[str, str]:
    """Return the settings of a node: its own, else those of all nodes, else defaults.

    Raises:
        ConfigurationError: a setting is missing or unknown.
    """
    own = sections.get(node, {})
    given = {**sections.get(ALL_NODES, {}), **own}
    if unknown := sorted(set(given) - set(keys)):
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
