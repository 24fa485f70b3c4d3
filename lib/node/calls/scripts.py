"""Procedures that run administrators' scripts: hooks, allocators, commands.

Every script gets an environment of its own; the daemon's environment is not passed on.
"""

import logging
import os
import re
import tempfile
import threading
from collections.abc import Mapping
from typing import Any, Final

from ganeti.base import errors, process
from ganeti.base.constants.protocols import hooks
from ganeti.base.filesystem import allowed_commands, files
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
            program = allowed_commands.find(
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
