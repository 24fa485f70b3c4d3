"""Procedures that run out-of-band helpers: programs that switch machines.

A helper runs as root on the master. So it must be a program that only root can change;
what it prints is data, limited in size, and checked against the form of its command.
"""

from typing import Any, Final

from ganeti import errors, serializer
from ganeti.backend.registry import LocalNode, procedure
from ganeti.constants import hooks, oob
from ganeti.process import Limits, RunResult
from ganeti.utils import trusted_files

#: Most bytes that a helper may print; a health report of 500 items has 20 KiB.
_MAX_OUTPUT: Final = 64 << 10
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
        command: see ``constants.oob``.
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
    trusted = [(program, name) for program, name in helpers if not known[program]]
    results = iter(
        node.process.run_many(
            [(program, command, name) for program, name in trusted],
            limits=Limits(timeout, _MAX_OUTPUT, oob.OOB_AT_ONCE, pause),
            env=_environment(node),
        )
    )
    return [
        (False, f"OOB program is not run: {known[program]}")
        if known[program]
        else _answer(command, next(results))
        for program, _ in helpers
    ]


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
