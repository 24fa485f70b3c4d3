"""Common code of the tools that read a JSON message on standard input.

Exit code 0 on success, 1 with a message on standard error otherwise.
"""

import argparse
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from ganeti.base import errors, pathutils
from ganeti.base.constants import ecodes, versions
from ganeti.base.text import arguments
from ganeti.protocols.ssconf import MAX_SIZE, SimpleStore

_log = logging.getLogger(__name__)
#: Largest message: it has all ssconf values and a few keys.
MAX_MESSAGE_BYTES: Final = 2 * MAX_SIZE

#: Checks a value; raises ValueError with the expected form.
Check = Callable[[Any], None]
#: Applies a checked message to this node; with True as last argument nothing is
#: changed.
Act = Callable[[pathutils.Paths, Mapping[str, Any], bool], None]


def parser(name: str, description: str) -> argparse.ArgumentParser:
    """Return a parser of the options of all these tools."""
    result = argparse.ArgumentParser(
        prog=name, description=description, formatter_class=arguments.Formatter
    )
    result.add_argument("-d", "--debug", action="store_true", help="log everything")
    result.add_argument("-v", "--verbose", action="store_true", help="log each step")
    version = f"{name} (ganeti) {versions.RELEASE_VERSION}"
    result.add_argument("--version", action="version", version=version)
    return result


def run_with_message(
    name: str, description: str, known: Mapping[str, Check], act: Act
) -> int:
    """Run a tool that reads a message; return its exit code.

    Args:
        name: name of the tool.
        description: one line for ``--help``.
        known: key of the message -> check.
        act: the tool's function.
    """
    taken = parser(name, description)
    taken.add_argument("--dry-run", action="store_true", help="change nothing")
    options = taken.parse_args()
    start_log(name, options)
    return run(name, lambda: act(own_paths(), read_message(known), options.dry_run))


def start_log(name: str, options: argparse.Namespace) -> None:
    """Log to standard error."""
    level = logging.WARNING
    if options.verbose:
        level = logging.INFO
    if options.debug:
        level = logging.DEBUG
    logging.basicConfig(level=level, format=f"{name}: %(message)s", stream=sys.stderr)


def run(name: str, work: Callable[[], None]) -> int:
    """Run a tool's function and return its exit code."""
    try:
        work()
    except errors.GenericError as err:
        text = str(err.args[0]) if err.args else type(err).__name__
        sys.stderr.write(f"{name}: {text}\n")
        return 1
    except OSError as err:
        sys.stderr.write(f"{name}: {err}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write(f"\n{name}: interrupted\n")
        return 1
    return 0


def own_paths() -> pathutils.Paths:
    """Return the paths of this node according to the environment."""
    return pathutils.from_environ(os.environ)


def read_message(known: Mapping[str, Check]) -> dict[str, Any]:
    """Read the message on standard input.

    Args:
        known: key -> check; other keys are refused.

    Raises:
        ParseError: the message is not a JSON object, or a value is wrong.
    """
    raw = sys.stdin.buffer.read(MAX_MESSAGE_BYTES + 1)
    if len(raw) > MAX_MESSAGE_BYTES:
        raise errors.ParseError(f"input: larger than {MAX_MESSAGE_BYTES} bytes")
    try:
        data = json.loads(raw)
    except ValueError as err:
        raise errors.ParseError(f"input: no JSON: {err}") from err
    if not isinstance(data, dict):
        raise errors.ParseError("input: wanted an object, found something else")
    for key, value in data.items():
        if key not in known:
            raise errors.ParseError(f"input: key {key!r} is unknown")
        try:
            known[key](value)
        except ValueError as err:
            raise errors.ParseError(f"input: key {key!r}: wanted {err}") from err
    return data


def is_text(value: Any) -> None:
    """Raise ValueError unless the value is a non-empty string."""
    if not isinstance(value, str) or not value:
        raise ValueError("a text")


def is_bool(value: Any) -> None:
    """Raise ValueError unless the value is true or false."""
    if value is not True and value is not False:
        raise ValueError("true or false")


def is_positive(value: Any) -> None:
    """Raise ValueError unless the value is a positive integer."""
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError("a positive number")


def is_text_map(value: Any) -> None:
    """Raise ValueError unless the value is an object of strings."""
    if not isinstance(value, dict) or not all(
        isinstance(item, str) for item in value.values()
    ):
        raise ValueError("an object of texts")


def is_key_lists(value: Any) -> None:
    """Raise ValueError unless the value is {uuid: [public key]}."""
    if not isinstance(value, dict) or not all(
        isinstance(lines, list) and all(isinstance(line, str) for line in lines)
        for lines in value.values()
    ):
        raise ValueError("an object of lists of keys")


def is_key_triples(value: Any) -> None:
    """Raise ValueError unless the value is [[type, private key, public key], …]."""
    if not isinstance(value, list) or not all(
        isinstance(row, list)
        and len(row) == 3
        and all(isinstance(item, str) for item in row)
        for row in value
    ):
        raise ValueError("a list of [type, private key, public key]")


def check_cluster(paths: pathutils.Paths, message: Mapping[str, Any]) -> str:
    """Refuse a node of another cluster than the message's; return the cluster's name.

    Raises:
        OpPrereqError: the names or the certificates differ, or the name is missing.
        X509CertError: a certificate is damaged.
    """
    name = _check_cluster_name(paths, message)
    _check_certificate(paths, message)
    return name


def _check_cluster_name(paths: pathutils.Paths, message: Mapping[str, Any]) -> str:
    name = message.get("cluster_name")
    if not name:
        raise errors.OpPrereqError(
            "input: key 'cluster_name' is missing", ecodes.ECODE_INVAL
        )
    present = SimpleStore(paths).get_or("cluster_name", "")
    if present and present != name:
        raise errors.OpPrereqError(
            f"node {paths.hostname}: is in cluster {present}, cannot join {name}",
            ecodes.ECODE_STATE,
        )
    return str(name)


def _check_certificate(paths: pathutils.Paths, message: Mapping[str, Any]) -> None:
    pem = message.get("node_daemon_certificate")
    if not pem:
        return
    # Programs that start often use this module, and the library loads slowly.
    from cryptography import x509 as crypto_x509

    from ganeti.base.tls import x509

    try:
        given = crypto_x509.load_pem_x509_certificate(pem.encode())
    except ValueError as err:
        raise errors.X509CertError("input: node_daemon_certificate", str(err)) from err
    if not os.path.exists(paths.server_pem):
        return
    present = x509.load_certificates(paths.server_pem)
    if x509.digest(given) not in map(x509.digest, present):
        raise errors.OpPrereqError(
            f"node {paths.hostname}: {paths.server_pem} is the certificate of another"
            " cluster; run node-cleanup there if the node left that cluster",
            ecodes.ECODE_STATE,
        )
