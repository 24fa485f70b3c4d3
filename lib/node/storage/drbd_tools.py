"""DRBD's tools on this node: ``drbdsetup`` and ``drbdmeta``, and what they report.

No configuration files are used. ``drbdsetup`` takes the shared secret of a connection
only as an argument, so other processes of the node can see it for the moment of that
call; it is in no log and no message.
"""

import secrets
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.base.process import SAFE_PATH, Runner
from ganeti.node.storage import drbd_state

PROC: Final = "/proc/drbd"
_HELPER: Final = "/sys/module/drbd/parameters/usermode_helper"
_ENVIRONMENT: Final = {"PATH": SAFE_PATH, "LC_ALL": "C"}
_TIMEOUT_S: Final = 50.0
_MAX_OUTPUT: Final = drbd_state.MAX_TEXT
#: First numbers of the versions that are known; 9 stands for all of them.
_WANTED: Final = ((8, 4), (9,))
#: Number of a device that does not exist: the tool refuses active ones, also those
#: that are without disk while their metadata is made. It opens the metadata for
#: itself alone, so metadata in use is refused in any case.
_NO_MINOR: Final = "999999"


def read_proc() -> str:
    """Return the text of ``/proc/drbd``.

    Raises:
        StorageError: the module is not loaded, or is neither DRBD 8.4 nor 9.
    """
    try:
        text = files.text_of(PROC, files.MAX_READ)
    except OSError as err:
        raise errors.StorageError(
            f"DRBD's kernel module is not loaded ({PROC}: {err.strerror}); an"
            " administrator can load it with modprobe drbd usermode_helper=/bin/true"
        ) from err
    version = drbd_state.parse_version(text)
    if version is None or not any(version[: len(w)] == w for w in _WANTED):
        present = ".".join(map(str, version)) if version else "an unknown one"
        raise errors.StorageError(f"DRBD: wanted version 8.4 or 9, found {present}")
    return text


def version() -> str:
    """Return the version of the kernel module.

    Raises:
        StorageError: see `read_proc`.
    """
    numbers = drbd_state.parse_version(read_proc()) or ()
    return ".".join(map(str, numbers))


def usermode_helper() -> str:
    """Return the program that the kernel module calls.

    Raises:
        StorageError: the module is not loaded.
    """
    try:
        return files.text_of(_HELPER, files.MAX_PROC).partition("\n")[0].strip()
    except OSError as err:
        raise errors.StorageError(
            f"DRBD's kernel module is not loaded ({_HELPER}: {err.strerror})"
        ) from err


def printed(process: Runner, argv: Sequence[str]) -> str:
    """Return what a command of ``drbdsetup`` prints.

    Raises:
        StorageError: DRBD's tools are not installed or failed.
    """
    result = _run(process, ["drbdsetup", *argv])
    if result.failed:
        raise errors.StorageError(f"drbdsetup {argv[0]}: {_messages(result)}")
    return str(result.stdout)


def generations(process: Runner, argv: Sequence[str]) -> tuple[str, ...]:
    """Return the generation identifiers that a command prints, none if unknown.

    Raises:
        StorageError: DRBD's tools are not installed.
    """
    result = _run(process, ["drbdsetup", *argv])
    return () if result.failed else drbd_state.parse_generations(result.stdout)


def setup(process: Runner, *argv: str, secret: str = "") -> str | None:
    """Run a command of ``drbdsetup``; return why it failed, None if it did not.

    Args:
        process: runs the tool.
        argv: command and arguments.
        secret: a word of ``argv`` that is kept out of the result.

    Raises:
        StorageError: DRBD's tools are not installed.
    """
    return _failure(_run(process, ["drbdsetup", *argv]), f"drbdsetup {argv[0]}", secret)


def create_metadata(
    process: Runner, device: str, layout: str, options: Sequence[str]
) -> str | None:
    """Write empty metadata to a device; return why it failed, None if it did not.

    Args:
        process: runs the tool.
        device: the path.
        layout: word for the layout of the metadata.
        options: what follows the command.

    Raises:
        StorageError: DRBD's tools are not installed.
    """
    argv = ["drbdmeta", "--force", _NO_MINOR, layout, device, "0", "create-md"]
    argv += options
    return _failure(_run(process, argv), "drbdmeta create-md", "")


def set_generation(
    process: Runner, device: str, layout: str, generation: str
) -> str | None:
    """Mark the data beside metadata as complete, with an identifier of its own.

    Return why it failed, None if it did not.

    Raises:
        StorageError: DRBD's tools are not installed.
    """
    # No earlier generations; consistent, up to date.
    argv = ["drbdmeta", "--force", _NO_MINOR, layout, device, "0", "set-gi"]
    argv.append(f"{generation}:0:0:0:1:1")
    return _failure(_run(process, argv), "drbdmeta set-gi", "")


def new_generation() -> str:
    """Return an identifier for data that no other node has; its last bit is a role."""
    return f"{secrets.randbits(63) << 1:016X}"


def apply_log(process: Runner, device: str, layout: str) -> str | None:
    """Apply the activity log of metadata, which a disk needs before it is attached.

    Return why it failed, None if it did not; unchanged metadata stays as it is.

    Raises:
        StorageError: DRBD's tools are not installed.
    """
    argv = ["drbdmeta", "--force", _NO_MINOR, layout, device, "0", "apply-al"]
    return _failure(_run(process, argv), "drbdmeta apply-al", "")


def _run(process: Runner, argv: Sequence[str]) -> Any:
    try:
        return process.run_bounded(
            list(argv), env=_ENVIRONMENT, timeout_s=_TIMEOUT_S, max_output=_MAX_OUTPUT
        )
    except errors.CommandError as err:
        raise errors.StorageError(
            f"cannot use DRBD: {argv[0]} cannot be run; its tools are in the package"
            " drbd-utils"
        ) from err


def _failure(result: Any, what: str, secret: str) -> str | None:
    if not result.failed:
        return None
    text = _messages(result)
    return f"{what}: {text.replace(secret, '***') if secret else text}"


def _messages(result: Any) -> str:
    lines = [line.strip() for line in result.stderr.splitlines() if line.strip()]
    return f"{result.reason}: {'; '.join(lines[-6:]) or 'no output'}"


def disk_options(params: Mapping[str, Any]) -> list[str]:
    """Return the options of a disk for its parameters."""
    barriers = params.get("disk-barriers") or "n"
    out = ["--on-io-error=detach"]
    for letter, option in (
        ("b", "disk-barrier"),
        ("f", "disk-flushes"),
        ("d", "disk-drain"),
    ):
        out.append(f"--{option}={'no' if letter in barriers else 'yes'}")
    out.append(f"--md-flushes={'no' if params.get('meta-barriers') else 'yes'}")
    return out


def sync_options(params: Mapping[str, Any]) -> list[str]:
    """Return the options of a synchronisation for the parameters of a disk."""
    if params.get("dynamic-resync"):
        names = ("c-plan-ahead", "c-fill-target", "c-delay-target")
        return [
            f"--{name}={params[name]}"
            for name in (*names, "c-max-rate", "c-min-rate")
            if params.get(name) is not None
        ]
    rate = params.get("resync-rate")
    return ["--c-plan-ahead=0", *([f"--resync-rate={rate}"] if rate else [])]


def net_options(params: Mapping[str, Any]) -> list[str]:
    """Return the options of a connection for its parameters, without a secret.

    Split brains are solved alone if one node has changed nothing.

    Raises:
        StorageError: custom options cannot be split into words.
    """
    return [
        f"--protocol={params.get('protocol') or 'C'}",
        "--after-sb-0pri=discard-zero-changes",
        "--after-sb-1pri=consensus",
        *custom_options(params, "net-custom"),
    ]


def custom_options(params: Mapping[str, Any], name: str) -> list[str]:
    """Return the options that an administrator wrote, as words.

    Raises:
        StorageError: they cannot be split.
    """
    text = str(params.get(name) or "")
    try:
        return shlex.split(text)
    except ValueError as err:
        raise errors.StorageError(
            f"disk parameter {name}: cannot be split into words: {err}"
        ) from err
