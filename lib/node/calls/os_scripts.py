"""Procedures that use OS definitions and run their scripts.

At most one of these writes to the disks of a stopped instance: an OS script, or a
helper machine. A script inherits the lock, so it holds it although the node daemon ends
before it. When the daemon sees the script end, it releases the lock for all processes
that the script has left.
"""

import contextlib
import dataclasses
import fcntl
import os
import time
from collections.abc import Iterator
from typing import Any, Final

from ganeti.base import errors, process
from ganeti.base.constants.instance import OS_SCRIPT_RUNS
from ganeti.base.constants.protocols import os as os_constants
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths
from ganeti.base.text import control_chars
from ganeti.model.objects.filled import DiskX, InstanceX
from ganeti.node import storage
from ganeti.node.calls import os_definitions
from ganeti.node.calls.os_definitions import OsDefinition
from ganeti.node.calls.registry import LocalNode, procedure
from ganeti.node.hypervisor.base import check_instance_name


@contextlib.contextmanager
def held_lock(paths: Paths, instance: InstanceX) -> Iterator[int]:
    """Hold the lock of an instance during a block, which gets its file descriptor.

    Raises:
        OpExecError: a script still holds it, or it cannot be made.
    """
    directory = f"{paths.run_dir}/os-scripts"
    # Of the uuid: after a rename, too.
    path = f"{directory}/{check_instance_name(instance.uuid or instance.name)}"
    try:
        files.make_dir(directory, 0o755)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as err:
        raise errors.OpExecError(
            f"instance {instance.name}: no script of its operating system was run: its"
            f" lock {path} cannot be made on this node: {err.strerror}"
        ) from err
    try:
        if not _is_taken(fd, path):
            raise errors.OpExecError(
                f"instance {instance.name}: {OS_SCRIPT_RUNS}"
                " on this node and writes to its disks; wait for its end, or end its"
                f" processes, which fuser {path} names; then repeat the command"
            )
        try:
            yield fd
        finally:
            files.remove_file(path)
            fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        os.close(fd)


def _is_taken(fd: int, path: str) -> bool:
    """Take the lock; return false if another process has it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Its last holder may have removed it since it was opened.
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except (BlockingIOError, FileNotFoundError):
        return False


_IMAGE: Final = os_constants.OS_IMAGE_PARAMETER
#: The OS definition that writes an image itself, from other parameters.
_IMAGE_OS: Final = "image"
#: Number of last log lines of a failed script that the error shows.
_TAIL_LINES: Final = 20
#: Characters of each of these lines, of which some scripts write megabytes.
_LINE_CHARS: Final = 400
#: Bytes at the end of the log that are searched for these lines, and that are kept of
#: the output of a script without a log.
_TAIL_BYTES: Final = 16384
#: Bytes of the log of a script; of more output the last are kept.
_MAX_LOG: Final = 64 * 1024 * 1024


@dataclasses.dataclass(frozen=True)
class ScriptCommand:
    """A script that a transfer runs with its own input and output.

    Attributes:
        argv: the script.
        env: its environment.
        cwd: where it runs.
        fds: open files whose paths below ``/proc`` replace variables of that name.
    """

    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    fds: dict[str, int]


@procedure("os_diagnose")
def os_diagnose(node: LocalNode) -> list[list[Any]]:
    """Return all OS definitions of this node."""
    return os_definitions.diagnose(node.paths)


@procedure("os_validate")
def os_validate(
    node: LocalNode,
    required: bool,
    name: str,
    checks: list[str],
    params: dict[str, Any],
    force_variant: bool,
) -> bool:
    """Check OS parameters with the OS definition's verify script, and its installer.

    Returns:
        false when this node cannot do it by itself: the OS is missing and not required,
        or the check ``install`` is wanted and the installer is not trusted here.

    Raises:
        OpExecError: the OS, a parameter or the image of ``os-image`` is refused.
    """
    parameters = os_constants.OS_VALIDATE_PARAMETERS
    if unknown := set(checks) - {parameters, os_constants.OS_VALIDATE_INSTALL}:
        raise errors.OpExecError(
            f"OS {name}: unknown checks {', '.join(sorted(unknown))}"
        )
    wants_install = os_constants.OS_VALIDATE_INSTALL in checks
    if not name and params.get(_IMAGE):
        if wants_install:
            _validate_image(node, params)
        return True
    try:
        definition = os_definitions.find(node.paths, name)
    except errors.OpExecError:
        if required:
            raise
        return False
    variant = _variant(definition, name, force=force_variant)
    if params.get(_IMAGE) and not definition.knows(_IMAGE):
        if wants_install:
            _require_usable_beside_image(definition)
            _validate_image(node, {_IMAGE: params[_IMAGE]})
        params = {key: value for key, value in params.items() if key != _IMAGE}
    is_sufficient = definition.is_trusted or not wants_install
    if (
        os_constants.OS_SCRIPT_VERIFY not in definition.scripts
        or parameters not in checks
    ):
        return is_sufficient
    command = [*definition.command(os_constants.OS_SCRIPT_VERIFY), parameters]
    env = os_definitions.core_environment(node.paths, definition, variant, params, 0)
    _verify(node, f"OS {name}", definition, params, command, env)
    return is_sufficient


def _validate_image(node: LocalNode, params: dict[str, Any]) -> None:
    """Check the image of ``os-image``, and the parameters that belong to it."""
    definition = os_definitions.of_image(node.paths, os_constants.OS_SCRIPT_VERIFY)
    command = definition.command(os_constants.OS_SCRIPT_VERIFY)
    env = os_definitions.core_environment(node.paths, definition, "", params, 0)
    _verify(node, f"OS parameter {_IMAGE}", definition, params, command, env)


def _verify(
    node: LocalNode,
    what: str,
    definition: OsDefinition,
    params: dict[str, Any],
    command: list[str],
    env: dict[str, str],
) -> None:
    known = {row[0] for row in definition.parameters}
    if unknown := set(params) - known:
        raise errors.OpExecError(
            f"{what}: unknown parameters {', '.join(sorted(unknown))}"
        )
    result = node.process.run_trimmed(
        command,
        env=env,
        max_output=_TAIL_BYTES,
        cwd=definition.path,
    )
    if result.failed:
        lines = [line for line in result.output.splitlines() if line.strip()]
        output = " / ".join(map(_shortened, lines[-_TAIL_LINES:])) or "it wrote nothing"
        raise errors.OpExecError(f"{what}: verify script {result.reason}: {output}")


def _variant(definition: OsDefinition, full_name: str, *, force: bool) -> str:
    if force:
        return os_definitions.split_name(full_name)[1]
    return definition.check_variant(full_name)


def _require_trusted(definition: OsDefinition) -> None:
    if not definition.is_trusted:
        raise errors.OpExecError(
            f"OS {definition.name}: wanted a create script, found create_untrusted,"
            " which runs in a helper machine only; repeat the request"
        )


def _require_usable_beside_image(definition: OsDefinition) -> None:
    if definition.name == _IMAGE_OS:
        raise errors.OpExecError(
            f"OS {definition.name}: cannot be installed with the OS parameter {_IMAGE}:"
            " one image would be written over the other; give the parameter without an"
            " OS, or the OS with url or file"
        )
    if not definition.is_trusted:
        raise errors.OpExecError(
            f"OS {definition.name}: cannot be installed with the OS parameter {_IMAGE}:"
            " it has create_untrusted, which runs in a helper machine; give the"
            " parameter without an OS, or an OS with a create script"
        )


@procedure("instance_os_add")
def instance_os_add(
    node: LocalNode, instance_osp: InstanceX, reinstall: bool, debug: int
) -> None:
    """Install an instance's OS on its disks.

    The image that the OS parameter ``os-image`` names is written to the first disk,
    before the script of the OS runs, if there is one. An OS that declares this
    parameter uses it itself.
    """
    extra = {"INSTANCE_REINSTALL": "1"} if reinstall else {}
    action = "reinstall" if reinstall else "add"
    script = _Script(os_constants.OS_SCRIPT_CREATE, action, extra, debug)
    given = os_definitions.all_osparams(instance_osp)
    definition = None
    if instance_osp.os or not given.get(_IMAGE):
        definition = os_definitions.find(node.paths, instance_osp.os)
        _require_trusted(definition)
    if given.get(_IMAGE) and not (definition and definition.knows(_IMAGE)):
        if definition is not None:
            _require_usable_beside_image(definition)
        names = os_constants.OS_IMAGE_PARAMETERS if definition is None else (_IMAGE,)
        wanted = {name: given[name] for name in names if name in given}
        alone = instance_osp.replace(
            osparams=wanted, osparams_private={}, osparams_secret={}
        )
        image = os_definitions.of_image(node.paths, script.name)
        _run(node, alone, image, dataclasses.replace(script, action=f"{action}-image"))
    if definition is not None:
        _run(node, instance_osp, definition, script)


@procedure("instance_run_rename")
def instance_run_rename(
    node: LocalNode, instance: InstanceX, old_name: str, debug: int
) -> None:
    """Run an instance's rename script."""
    definition = os_definitions.find(node.paths, instance.os)
    extra = {"OLD_INSTANCE_NAME": old_name}
    _run(node, instance, definition, _Script("rename", "rename", extra, debug))


@dataclasses.dataclass(frozen=True)
class _Script:
    name: str
    action: str
    extra: dict[str, str]
    debug: int


def _run(
    node: LocalNode, instance: InstanceX, definition: OsDefinition, script: _Script
) -> None:
    env = os_definitions.instance_environment(
        node, instance, definition, debug=script.debug
    )
    with (
        held_lock(node.paths, instance) as lock,
        contextlib.ExitStack() as stack,
    ):
        held = os_definitions.held_disks(node, instance.disks_info, stack)
        for index, fd in held.items():
            env[f"DISK_{index}_PATH"] = f"/proc/{os.getpid()}/fd/{fd}"
        log = log_file(node, script.action, instance)
        with process.kept_short(log, _MAX_LOG):
            result = node.process.run(
                definition.command(script.name),
                env=env | script.extra,
                cwd=definition.path,
                output_file=log,
                pass_fds=[lock],
            )
    if result.failed:
        lines = [line for line in tail(log) if line.strip()]
        output = f"last lines of {log}: {' / '.join(lines)}"
        if not lines:
            output = f"it wrote nothing to {log}"
        raise errors.OpExecError(
            f"instance {instance.name}: OS {script.name} script {result.reason},"
            f" {output}"
        )


def log_file(
    node: LocalNode, action: str, instance: InstanceX, component: str | None = None
) -> str:
    """Create an empty log file for a script, unreadable by others; return its path."""
    directory = f"{node.paths.log_dir}/os"
    os.makedirs(directory, mode=0o750, exist_ok=True)
    stamp = time.strftime("%Y-%m-%d_%H_%M_%S", time.localtime(node.clock.time()))
    name = instance.os.replace("/", "_")
    parts = [action, name, check_instance_name(instance.name), component, stamp]
    path = f"{directory}/{'-'.join(part for part in parts if part)}.log"
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640))
    return path


def tail(path: str) -> list[str]:
    """Return the last lines of a log."""
    return last_lines(files.read_end(path, _TAIL_BYTES))


def last_lines(output: bytes) -> list[str]:
    """Return the last lines of an output, of bounded length and fit to be shown."""
    text = output[-_TAIL_BYTES:].decode(errors="replace")
    return [_shortened(line) for line in text.splitlines()[-_TAIL_LINES:]]


def _shortened(line: str) -> str:
    """Return a line without control characters; of a long one both ends."""
    if len(line) > _LINE_CHARS:
        half = _LINE_CHARS // 2
        line = f"{line[:half]} ... {line[-half:]}"
    return control_chars.replace(line)


def transfer_command(
    node: LocalNode,
    instance: InstanceX,
    mode: str,
    disk: tuple[DiskX, int],
    stack: contextlib.ExitStack,
) -> ScriptCommand:
    """Return the script that exports one disk to its output, or imports its input.

    Args:
        node: this node.
        instance: the instance's record.
        mode: ``export`` or ``import``.
        disk: the disk to read or write, which may be a snapshot of the instance's, and
            its index.
        stack: closes the disks that are files, which the command inherits.

    Raises:
        OpExecError: this node does not have the OS.
    """
    definition = os_definitions.find(node.paths, instance.os)
    env = os_definitions.instance_environment(node, instance, definition)
    prefix = mode.upper()
    content, index = disk
    device = storage.device(node.paths, content, node.process)
    path = device.path
    held = os_definitions.held_disks(node, instance.disks_info, stack)
    fds = {f"DISK_{number}_PATH": fd for number, fd in held.items()}
    for fd in os_definitions.held_disks(node, [content], stack).values():
        fds |= {f"{prefix}_DEVICE": fd, f"{prefix}_DISK_PATH": fd}
    env |= {
        f"{prefix}_DEVICE": path,
        f"{prefix}_DISK_PATH": path,
        f"{prefix}_INDEX": str(index),
    }
    if mode == os_constants.OS_SCRIPT_EXPORT:
        env["EXPORT_DISK_URI"] = device.uri(instance.hypervisor) or ""
    return ScriptCommand((definition.scripts[mode],), env, definition.path, fds)
