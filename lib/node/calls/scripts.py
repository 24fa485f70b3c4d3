"""Procedures that run administrators' programs: hooks, allocators, commands, helpers.

Every program gets an environment of its own; the daemon's environment is not passed on.

Out-of-band helpers are programs that switch machines. A helper runs as root on the
master. So it must be a program that only root can change; what it prints is data,
limited in size, and checked against the form of its command. A master daemon can end
while helpers switch machines off, and so can this daemon: the helpers go on. Each holds
a lock of its machine. A question for the power state is only answered when no such
helper runs any more, so the answer stays true.
"""

import contextlib
import logging
import os
import re
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors, process
from ganeti.base.constants.protocols import hooks, oob
from ganeti.base.filesystem import files, trusted_files
from ganeti.base.process import Limits, RunResult
from ganeti.model import serializer
from ganeti.node.calls.registry import LocalNode, procedure

_log = logging.getLogger(__name__)

_PLUGIN_NAME: Final = re.compile(hooks.EXT_PLUGIN_MASK)
#: Delay of a refusal, in seconds; it slows down callers that guess command names.
_REFUSAL_DELAY_S: Final = 10.0
_ALLOWED_LOCK_S: Final = 8.0
#: Limits of a restricted or repair command, in seconds and bytes: less time than the
#: master waits, and an output that fits into a job.
_COMMAND_S: Final = 3500.0
_COMMAND_OUTPUT: Final = 1 << 20
#: Time limit of an allocator, in seconds; shorter than the master's RPC timeout.
_ALLOCATOR_S: Final = 14 * 60.0
#: Limit of an allocator's output, in bytes; a plan for a large cluster is a few MiB.
_ALLOCATOR_OUTPUT: Final = 64 << 20
#: Bytes that are kept of each output of a hook: its result goes to the job's log.
_HOOK_OUTPUT: Final = 32 << 10
#: Characters of a failed program's output that an error shows.
_OUTPUT_CHARS: Final = 2000


def is_plugin_name(name: str) -> bool:
    """Return whether a file of this name may be run as a plug-in."""
    return _PLUGIN_NAME.fullmatch(name) is not None


def run_hooks(
    node: LocalNode, hook: str, phase: str, env: Mapping[str, str]
) -> list[tuple[str, int, str]]:
    """Run the scripts of one hook in the order of their names.

    Returns:
        For each file its path below the hooks directory, result code, and output
        without white space at its ends.

    Raises:
        HooksFailure: unknown phase, or invalid hook name.
    """
    if phase not in (hooks.HOOKS_PHASE_PRE, hooks.HOOKS_PHASE_POST):
        raise errors.HooksFailure(f"unknown hooks phase {phase!r}")
    if not is_plugin_name(hook):
        raise errors.HooksFailure(f"{hook!r} is not a valid hook name")
    directory = f"{hook}-{phase}.d"
    return run_parts(node, node.paths.hooks_dir, directory, env)


def run_parts(
    node: LocalNode, top: str, directory: str, env: Mapping[str, str]
) -> list[tuple[str, int, str]]:
    """Run the programs of a directory below ``top``; no results if it is missing."""
    try:
        names = sorted(os.listdir(f"{top}/{directory}"))
    except FileNotFoundError:
        return []
    except OSError as err:
        _log.warning("hooks in %s: %s", directory, err)
        return []
    fits = process.fitting(env, "GANETI_")
    return [
        (f"{directory}/{name}", *_run_part(node, f"{top}/{directory}/{name}", fits))
        for name in names
    ]


def _run_part(node: LocalNode, path: str, env: Mapping[str, str]) -> tuple[int, str]:
    if not (
        is_plugin_name(os.path.basename(path))
        and os.path.isfile(path)
        and os.access(path, os.X_OK)
    ):
        return hooks.HKR_SKIP, ""
    try:
        result = node.process.run_trimmed([path], env=env, max_output=_HOOK_OUTPUT)
    except errors.CommandError as err:
        return hooks.HKR_FAIL, str(err)
    output = result.output.strip()
    if result.failed:
        _log.warning("hook %s %s", path, result.reason)
        if result.signal is not None:
            # Nothing in its output says that it was killed.
            output = f"{output}\n({result.reason})".strip()
        return hooks.HKR_FAIL, output
    return hooks.HKR_SUCCESS, output


@procedure("hooks_runner")
def hooks_runner(
    node: LocalNode, hpath: str, phase: str, env: dict[str, str]
) -> list[tuple[str, int, str]]:
    """Run the scripts of a hook with the given environment."""
    return run_hooks(node, hpath, phase, env)


@procedure("iallocator_runner")
def iallocator_runner(
    node: LocalNode,
    name: str,
    idata: str,
    default_iallocator_params: dict[str, str | None] | None,
) -> str:
    """Run an allocator on a request and return what it printed.

    Raises:
        OpExecError: the allocator is missing, failed, exceeded its time limit or its
            output limit.
    """
    script = _find_allocator(node, name)
    options = [
        f"--{key}" if value is None else f"--{key}={value}"
        for key, value in sorted((default_iallocator_params or {}).items())
    ]
    with tempfile.NamedTemporaryFile("w", prefix="ganeti-iallocator.") as request:
        request.write(idata)
        request.flush()
        try:
            result = node.process.run_bounded(
                [script, request.name, *options],
                timeout_s=_ALLOCATOR_S,
                max_output=_ALLOCATOR_OUTPUT,
            )
        except errors.CommandError as err:
            raise errors.OpExecError(
                f"iallocator {name}: check the interpreter in its first line: {err}"
            ) from err
    if result.failed:
        # The reason is often at the end of a long output.
        output = result.output.strip()[-_OUTPUT_CHARS:]
        raise errors.OpExecError(f"iallocator {name} {result.reason}: {output}")
    return result.stdout


def _find_allocator(node: LocalNode, name: str) -> str:
    if not is_plugin_name(name):
        raise errors.OpExecError(f"{name!r} is not a valid iallocator name")
    obstacle = ""
    for directory in node.paths.iallocator_search_path:
        path = f"{directory}/{name}"
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
        if not obstacle and os.path.lexists(path):
            obstacle = f"{path} is {_other_than_program(path)}"
    places = ":".join(node.paths.iallocator_search_path)
    why = f"wanted a program, {obstacle}" if obstacle else f"not found in {places}"
    raise errors.OpExecError(f"iallocator {name}: {why}")


def _other_than_program(path: str) -> str:
    """Describe the obstacle at a path that should be a program."""
    if os.path.isdir(path):
        return "a directory"
    if os.path.isfile(path):
        return "not executable"
    return "a broken link" if os.path.islink(path) else "not a regular file"


@procedure("restricted_command")
def restricted_command(node: LocalNode, cmd: str) -> str:
    """Run a command that the administrator of this node has allowed.

    Raises:
        OpExecError: refused, after a delay and without a reason; or it failed.
    """
    return _run_allowed(node, "restricted-commands", cmd, None)


@procedure("repair_command")
def repair_command(node: LocalNode, cmd: str, inp: Any) -> str:
    """Run an allowed repair command; see `restricted_command`.

    Args:
        node: this node.
        cmd: name of the command.
        inp: text for its standard input; other values are passed as JSON.
    """
    text = inp if isinstance(inp, str) else serializer.dump(inp).decode()
    return _run_allowed(node, "node-repair-commands", cmd, text)


def _run_allowed(node: LocalNode, kind: str, cmd: str, stdin: str | None) -> str:
    """Run a program of one of the directories of allowed commands."""
    try:
        lock = f"{node.paths.lock_dir}/ganeti-{kind}.lock"
        with files.locked(lock, timeout_s=_ALLOWED_LOCK_S):
            program = trusted_files.find_command(
                f"{node.paths.conf_dir}/{kind}",
                cmd,
                is_name=is_plugin_name,
                is_virtual=node.paths.is_virtual,
            )
    except (errors.GenericError, OSError) as err:
        _log.error("%s: %r: %s", kind, cmd, err)
        node.clock.wait(threading.Event(), _REFUSAL_DELAY_S)
        raise errors.OpExecError(f"executing command {cmd!r} failed") from err
    result = node.process.run_bounded(
        [program],
        env={},
        stdin=stdin,
        timeout_s=_COMMAND_S,
        max_output=_COMMAND_OUTPUT,
    )
    if result.failed:
        raise errors.OpExecError(
            f"command {cmd!r} {result.reason}: {result.output.strip()[-_OUTPUT_CHARS:]}"
        )
    return result.output


#: Most bytes that a helper may print; a health report of 500 items has 20 KiB.
_MAX_OOB_OUTPUT: Final = 64 << 10
_NODE_NAME: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]*")
#: Seconds beyond its time limit until a helper has ended.
_OOB_END_S: Final = 5.0
#: Characters of a helper's error output that an error shows.
_OOB_ERROR_CHARS: Final = 1000


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
        busy = _still_switching(node, names, timeout + _OOB_END_S)
    trusted = [
        (program, command, name)
        for program, name in helpers
        if not (known[program] or name in busy)
    ]
    with contextlib.ExitStack() as stack:
        held: Sequence[int] = ()
        if command == oob.OOB_POWER_OFF:
            locks = [files.locked(_oob_lock(node, name), shared=True) for name in names]
            held = [stack.enter_context(lock) for lock in locks]
        limits = Limits(timeout, _MAX_OOB_OUTPUT, oob.OOB_AT_ONCE, pause, held=held)
        environment = _oob_environment(node)
        results = iter(node.process.run_many(trusted, limits=limits, env=environment))
    return [
        (False, f"OOB program is not run: {known[program]}")
        if known[program]
        else (False, f"an earlier helper still switches node {name} off")
        if name in busy
        else _oob_answer(command, next(results))
        for program, name in helpers
    ]


def _oob_lock(node: LocalNode, name: str) -> str:
    if not _NODE_NAME.fullmatch(name):
        raise errors.OpExecError(f"OOB: invalid name of a node {name!r}")
    return f"{node.paths.lock_dir}/oob-{name}.lock"


def _still_switching(node: LocalNode, names: Sequence[str], limit_s: float) -> set[str]:
    """Wait for helpers that switch machines off; return those that do not end."""
    end = time.monotonic() + limit_s
    busy = set()
    for name in names:
        path = _oob_lock(node, name)
        if not os.path.exists(path):
            continue
        try:
            with files.locked(path, timeout_s=max(0.0, end - time.monotonic())):
                pass
        except errors.LockError:
            busy.add(name)
    return busy


def _oob_answer(
    command: str, result: RunResult | errors.CommandError
) -> tuple[bool, Any]:
    if isinstance(result, errors.CommandError):
        return False, f"OOB program execution failed ({result})"
    if result.timed_out:
        return False, oob.OOB_TIMED_OUT
    if result.failed:
        text = result.stderr.strip() or result.stdout.strip() or result.reason
        if result.too_long:
            text = result.reason
        return False, f"OOB program execution failed ({text[-_OOB_ERROR_CHARS:]})"
    try:
        return True, serializer.load(result.stdout) if result.stdout.strip() else None
    except errors.ParseError as err:
        return False, f"OOB program {command}: {err}"


def _oob_environment(node: LocalNode) -> dict[str, str]:
    """Return a clean environment; a virtual node's has the variables of its cluster."""
    env = {"PATH": hooks.HOOKS_PATH, "LC_ALL": "C"}
    if node.paths.is_virtual:
        env["GANETI_ROOTDIR"] = node.paths.root
        env["GANETI_HOSTNAME"] = node.paths.hostname
    return env
