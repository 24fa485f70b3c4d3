"""Procedures that run out-of-band helpers: programs that switch machines.

A helper runs as root on the master. So it must be a program that only root can change;
what it prints is data, limited in size, and checked against the form of its command.

A master daemon can end while helpers switch machines off, and so can this daemon: the
helpers go on. Each holds a lock of its machine. A question for the power state is only
answered when no such helper runs any more, so the answer stays true.
"""

import contextlib
import os
import re
import time
from collections.abc import Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants.protocols import hooks, oob
from ganeti.base.filesystem import files, trusted_files
from ganeti.base.process import Limits, RunResult
from ganeti.model import serializer
from ganeti.node.calls.registry import LocalNode, procedure

#: Most bytes that a helper may print; a health report of 500 items has 20 KiB.
_MAX_OUTPUT: Final = 64 << 10
_NAME: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]*")
#: Seconds beyond its time limit until a helper has ended.
_END_S: Final = 5.0
#: Characters of a helper's error output that an error shows.
_ERROR_CHARS: Final = 1000


@procedure("run_oob")
def run_oob(
    node: LocalNode, oob_program: str, command: str, remote_node: str, timeout: float
) -> Any:
    """Run an out-of-band helper and return the JSON value it printed, or None.

    Raises:
        OpExecError: the helper may not be run, failed, exceeded its time limit, or
            printed something else than its command documents.
    """
    rows = run_oob_many(node, [(oob_program, remote_node)], command, timeout, 0.0)
    ((succeeded, value),) = rows
    if not succeeded:
        raise errors.OpExecError(value)
    return value


@procedure("run_oob_many")
def run_oob_many(
    node: LocalNode,
    helpers: list[tuple[str, str]],
    command: str,
    timeout: float,
    pause: float,
) -> list[tuple[bool, Any]]:
    """Run out-of-band helpers in parallel.

    Args:
        node: this node.
        helpers: program, and name of the node that it is asked to switch.
        command: see ``constants.protocols.oob``.
        timeout: of each helper, in seconds.
        pause: seconds between the starts of two helpers.

    Returns:
        For each helper true and the JSON value it printed, or false and the error.

    Raises:
        OpExecError: unknown command.
    """
    if command not in oob.OOB_COMMANDS:
        raise errors.OpExecError(f"unknown OOB command {command!r}")
    if not (timeout > 0 and pause >= 0):
        raise errors.OpExecError(f"OOB: invalid time limit {timeout} or pause {pause}")
    is_virtual = node.paths.is_virtual
    known = {
        program: trusted_files.program_problem(program, is_virtual=is_virtual)
        for program, _ in helpers
    }
    names = [name for program, name in helpers if not known[program]]
    busy = set[str]()
    if command == oob.OOB_POWER_STATUS:
        busy = _still_switching(node, names, timeout + _END_S)
    trusted = [
        (program, command, name)
        for program, name in helpers
        if not (known[program] or name in busy)
    ]
    with contextlib.ExitStack() as stack:
        held: Sequence[int] = ()
        if command == oob.OOB_POWER_OFF:
            locks = [files.locked(_lock(node, name), shared=True) for name in names]
            held = [stack.enter_context(lock) for lock in locks]
        limits = Limits(timeout, _MAX_OUTPUT, oob.OOB_AT_ONCE, pause, held=held)
        environment = _environment(node)
        results = iter(node.process.run_many(trusted, limits=limits, env=environment))
    return [
        (False, f"OOB program is not run: {known[program]}")
        if known[program]
        else (False, f"an earlier helper still switches node {name} off")
        if name in busy
        else _answer(command, next(results))
        for program, name in helpers
    ]


def _lock(node: LocalNode, name: str) -> str:
    if not _NAME.fullmatch(name):
        raise errors.OpExecError(f"OOB: invalid name of a node {name!r}")
    return f"{node.paths.lock_dir}/oob-{name}.lock"


def _still_switching(node: LocalNode, names: Sequence[str], limit_s: float) -> set[str]:
    """Wait for helpers that switch machines off; return those that do not end."""
    end = time.monotonic() + limit_s
    busy = set()
    for name in names:
        path = _lock(node, name)
        if not os.path.exists(path):
            continue
        try:
            with files.locked(path, timeout_s=max(0.0, end - time.monotonic())):
                pass
        except errors.LockError:
            busy.add(name)
    return busy


def _answer(command: str, result: RunResult | errors.CommandError) -> tuple[bool, Any]:
    if isinstance(result, errors.CommandError):
        return False, f"OOB program execution failed ({result})"
    if result.timed_out:
        return False, oob.OOB_TIMED_OUT
    if result.failed:
        text = result.stderr.strip() or result.stdout.strip() or result.reason
        if result.too_long:
            text = result.reason
        return False, f"OOB program execution failed ({text[-_ERROR_CHARS:]})"
    try:
        return True, serializer.load(result.stdout) if result.stdout.strip() else None
    except errors.ParseError as err:
        return False, f"OOB program {command}: {err}"


def _environment(node: LocalNode) -> dict[str, str]:
    """Return a clean environment; a virtual node's has the variables of its cluster."""
    env = {"PATH": hooks.HOOKS_PATH, "LC_ALL": "C"}
    if node.paths.is_virtual:
        env["GANETI_ROOTDIR"] = node.paths.root
        env["GANETI_HOSTNAME"] = node.paths.hostname
    return env
