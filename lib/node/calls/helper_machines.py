"""Procedures for helper machines: guests that work on the disks of stopped instances.

A helper machine boots from a disk of its own, a copy of an image of the cluster; the
disks of the instance follow. It has the name of the instance: whatever looks after
guests sees it, and the instance cannot start beside it. A file marks that the guest of
this name is a helper machine; only such a guest is ended here.

One that installs an OS has two more disks after its own: the archive of the OS, and one
for its result; see ``doc/os-interface.rst``.
"""

import contextlib
import io
import os
import re
import shlex
import stat
import tarfile
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final

from ganeti.base import errors, pathutils
from ganeti.base.filesystem import files
from ganeti.base.pathutils import HOSTNAME_ENV, ROOTDIR_ENV
from ganeti.base.process import SAFE_PATH
from ganeti.base.text import control_chars
from ganeti.model.objects.filled import DiskX, InstanceX
from ganeti.node.calls import guest_files, instances, os_definitions, os_scripts
from ganeti.node.calls.registry import LocalNode, procedure
from ganeti.node.hypervisor.base import AttachedDisk, check_instance_name

# The node procedure ``os_export``: an OS definition and its environment in an archive.
#
# Programs that run the scripts of an untrusted OS elsewhere, as in a guest, need both.
# The archive can have secret parameters: it is in memory, below the run directory, and
# root's alone. Each instance has one, which the next export replaces.

#: Names of variables.
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
#: Largest definition, in bytes: the run directory is in memory.
_MAX_BYTES: Final = 64 * 1024 * 1024
#: Members of the archive: directory of the definition, and its environment.
_DIRECTORY: Final = "os"
_ENVIRONMENT: Final = "environment"
#: Variables that only programs on this node can use.
_OF_THE_NODE: Final = frozenset(
    {"GANETI_TOOLS_DIR", pathutils.ROOTDIR_ENV, pathutils.HOSTNAME_ENV}
)


def place_archive(paths: pathutils.Paths, name: str) -> str:
    """Return the path of the archive of an instance."""
    return f"{paths.run_dir}/os-export/{check_instance_name(name)}.tar"


@procedure("os_export")
def os_export(
    node: LocalNode, instance: InstanceX, override_env: dict[str, Any]
) -> str:
    """Write the archive of an instance's OS; return its path.

    It has the files of the definition below ``os/``, and ``environment``: assignments
    for a shell, those of the scripts with the overrides. An override of null removes a
    variable; those that only programs on this node can use are left out.

    Raises:
        OpExecError: this node does not have the OS, its definition is too large, or a
            variable has no valid name.
    """
    definition = os_definitions.find(node.paths, instance.os)
    env = os_definitions.instance_environment(node, instance, definition)
    removed = {name for name, value in override_env.items() if value is None}
    env |= {name: str(value) for name, value in override_env.items()}
    env = {k: v for k, v in env.items() if k not in removed | _OF_THE_NODE}
    for name, value in env.items():
        # That of an OS parameter, too: as part of an assignment it could be a command.
        if not _VARIABLE.fullmatch(name) or "\0" in value:
            raise errors.OpExecError(
                f"instance {instance.name}: {name[:100]!r} is not the name of a"
                " variable with a text as value"
            )
    path = place_archive(node.paths, instance.name)
    files.make_dir(os.path.dirname(path), 0o700)
    files.write_file(path, _archive(definition, env), mode=0o600)
    return path


def _archive(definition: os_definitions.OsDefinition, env: Mapping[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        left = _MAX_BYTES
        for name in sorted(os.listdir(definition.path)):
            content, mode = _content(definition, name, left)
            if content is not None:
                left -= len(content)
                _add(archive, f"{_DIRECTORY}/{name}", content, mode)
        lines = [f"{name}={shlex.quote(value)}\n" for name, value in env.items()]
        _add(archive, _ENVIRONMENT, "".join(sorted(lines)).encode(), 0o600)
    return buffer.getvalue()


def _content(
    definition: os_definitions.OsDefinition, name: str, left: int
) -> tuple[bytes | None, int]:
    """Return content and mode of a file, None as content for others than files."""
    path = os.path.join(definition.path, name)
    # A pipe would wait for a writer.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        state = os.fstat(fd)
        if not stat.S_ISREG(state.st_mode):
            return None, 0
        with open(fd, "rb", closefd=False) as src:
            content = src.read(left + 1)
    finally:
        os.close(fd)
    if len(content) > left:
        raise errors.OpExecError(
            f"OS {definition.name}: wanted a definition of at most {_MAX_BYTES >> 20}"
            f" MiB, found more in {definition.path}"
        )
    return content, 0o755 if state.st_mode & stat.S_IXUSR else 0o644


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), mode
    archive.addfile(member, io.BytesIO(content))


# The result of an installation in a helper machine: bytes of an untrusted guest.
#
# The first line is `_STARTED` from the moment when the program of the image has begun,
# and `_ENDED` with the exit code of the script at the end; lines of its output follow.
# A zero byte ends the text. Documented in ``doc/os-interface.rst``.

#: Bytes at the beginning of the disk that are read.
MAX_RESULT_BYTES: Final = 64 * 1024
_STARTED: Final = b"ganeti-install-1 started"
_ENDED: Final = re.compile(rb"ganeti-install-1 exit (0|[1-9][0-9]{0,2})")
_MAX_CODE: Final = 255


def parsed_results(data: bytes) -> list[Any]:
    """Return ``[state, exit code or null, lines fit to be shown]``.

    The state is ``none`` for an empty disk, ``started``, ``ended``, or ``wrong`` for
    anything else, with the first line.
    """
    text = data[:MAX_RESULT_BYTES].partition(b"\0")[0]
    head, _, output = text.partition(b"\n")
    if not text:
        return ["none", None, []]
    if text.rstrip(b"\n") == _STARTED:
        return ["started", None, []]
    match = _ENDED.fullmatch(head)
    if match is None or int(match[1]) > _MAX_CODE:
        return ["wrong", None, os_scripts.last_lines(head)[:1]]
    lines = [line for line in os_scripts.last_lines(output) if line.strip()]
    return ["ended", int(match[1]), lines]


_MIB: Final = 1024 * 1024
#: Characters of the image program's output that an error shows.
_MAX_WORDS: Final = 1000
#: Parts of the uuids of its own disks, besides that of its instance.
_BOOT, _ARCHIVE, _RESULT = "helper machine", "helper archive", "helper result"
#: Hypervisors whose guests can have read-only disks: Xen refuses them for disks that a
#: guest may boot from. The archive is a copy that nobody else reads.
_READ_ONLY: Final = frozenset({"kvm"})


def _image(node: LocalNode, name: str) -> str:
    """Return the path of the boot disk of an instance's helper machine."""
    return f"{node.paths.data_dir}/helper-disks/{check_instance_name(name)}.raw"


def _result(node: LocalNode, name: str) -> str:
    """Return the path of the disk for the result of an installation."""
    return f"{node.paths.data_dir}/helper-disks/{check_instance_name(name)}.result"


@procedure("helper_image_add")
def helper_image_add(node: LocalNode, instance: InstanceX, image: str) -> int:
    """Make the boot disk of a helper machine; return its size in MiB.

    Raises:
        OpExecError: the image cannot be used on this node.
    """
    path = _image(node, instance.name)
    # The guest of this name is stopped before the helper machine starts.
    guest_files.unmark_helper(node.paths, instance.name)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    env = {"PATH": SAFE_PATH, "LC_ALL": "C", "HELPER_IMAGE": image, "HELPER_DISK": path}
    if node.paths.is_virtual:
        env |= {ROOTDIR_ENV: node.paths.root, HOSTNAME_ENV: node.paths.hostname}
    program = os.path.join(node.paths.tools_dir, "os-image")
    result = node.process.run([program, "helper"], env=env)
    if result.failed:
        lines = [line for line in result.output.splitlines() if line.strip()]
        words = control_chars.replace(lines[-1])[-_MAX_WORDS:] if lines else ""
        raise errors.OpExecError(
            f"instance {instance.name}: cannot make the boot disk of a helper machine:"
            f" {words or result.reason}"
        )
    return _size_mib(instance.name, path)


def _own_disk(
    instance: InstanceX, part: str, path: str, *, mode: str = "rw"
) -> AttachedDisk:
    """Return a disk of the helper machine itself.

    Raises:
        OpExecError: the file is missing, or the instance has no valid uuid.
    """
    size_mib = max(1, _size_mib(instance.name, path))
    return AttachedDisk(
        DiskX(
            uuid=_disk_uuid(instance, part),
            dev_type="file",
            logical_id=("loop", path),
            size=size_mib,
            serial_no=1,
            iv_name="disk/0",
            mode=mode,
        ),
        path,
    )


def _size_mib(name: str, path: str) -> int:
    """Return the size of a disk of the helper machine itself.

    Raises:
        OpExecError: it is missing.
    """
    try:
        return os.stat(path).st_size // _MIB
    except OSError as err:
        raise errors.OpExecError(
            f"instance {name}: wanted a disk of its helper machine at {path}, found"
            f" {err.strerror}"
        ) from err


def _disk_uuid(instance: InstanceX, part: str) -> str:
    """Return the uuid of a disk of an instance's helper machine."""
    try:
        return str(uuid.uuid5(uuid.UUID(instance.uuid), part))
    except ValueError:
        raise errors.OpExecError(
            f"instance {instance.name}: wanted a uuid, found {instance.uuid!r}"
        ) from None


def _own_disks(
    node: LocalNode, instance: InstanceX, *, installs: bool
) -> Iterator[AttachedDisk]:
    """Yield the disks that come before those of the instance; the result is emptied."""
    name = instance.name
    yield _own_disk(instance, _BOOT, _image(node, name))
    if installs:
        mode = "ro" if instance.hypervisor in _READ_ONLY else "rw"
        archive = place_archive(node.paths, name)
        yield _own_disk(instance, _ARCHIVE, archive, mode=mode)
        result = _result(node, name)
        files.remove_file(result)
        files.make_sparse(result, _MIB)
        yield _own_disk(instance, _RESULT, result)


@procedure("helper_start")
def helper_start(
    node: LocalNode,
    instance: InstanceX,
    installs: bool,
    reason: list[tuple[str, str, int]],
) -> None:
    """Start a helper machine on the disks of a stopped instance.

    Args:
        node: this node.
        instance: the instance, as the helper machine is to see it.
        installs: whether it gets the archive of an OS, and a disk for its result.
        reason: why, for the reason trail.

    Raises:
        HypervisorError: a guest of this name runs, the start failed, or the master has
            ended the helper machine before it was started.
        OpExecError: a disk of its own is missing, or the instance has no valid uuid.
    """
    name = instance.name
    driver = node.hypervisor(instance.hypervisor)
    if instances.is_running(driver, instance):
        raise errors.HypervisorError(
            f"instance {name}: runs; wanted it to be stopped for a helper machine"
        )
    driver.require_startable(name, uuid=instance.uuid)
    driver.cleanup(name)
    own = list(_own_disks(node, instance, installs=installs))
    with os_scripts.held_lock(node.paths, instance):
        guest_files.mark_helper(node.paths, name)
    try:
        disks = instances.attach_disks(node, instance)
        # Disks or the start may hang until the master does not wait any more.
        _require_mark(node, name)
        driver.start(instance, [*own, *disks], paused=False)
        if not guest_files.is_helper(node.paths, name):
            driver.stop(name, hvparams=instance.hvparams, force=True)
            driver.cleanup(name)
            _require_mark(node, name)
    except errors.GenericError:
        if not instances.is_running(driver, instance):
            guest_files.remove_links(node.paths, name, len(instance.disks_info))
        guest_files.unmark_helper(node.paths, name)
        raise
    guest_files.store_reason(node, name, "start", reason)


def _require_mark(node: LocalNode, name: str) -> None:
    """Refuse to go on with a helper machine that the master has ended."""
    if not guest_files.is_helper(node.paths, name):
        raise errors.HypervisorError(
            f"instance {name}: its helper machine was ended before its start"
        )


@procedure("helper_result")
def helper_result(node: LocalNode, instance_name: str) -> list[Any]:
    """Return what a helper machine has written as its result.

    Returns:
        ``[state, exit code or null, [line of output]]``, see `parsed_results`.
    """
    try:
        path = _result(node, instance_name)
        return parsed_results(files.read_start(path, MAX_RESULT_BYTES))
    except FileNotFoundError:
        return parsed_results(b"")


@procedure("helper_end")
def helper_end(node: LocalNode, instance: InstanceX) -> None:
    """End the helper machine of an instance, if it runs, and remove its own disks.

    A guest of this name that is no helper machine goes on.

    Raises:
        HypervisorError: it could not be ended.
    """
    name = instance.name
    if guest_files.is_helper(node.paths, name):
        driver = node.hypervisor(instance.hypervisor)
        if instances.is_running(driver, instance):
            driver.stop(name, hvparams=instance.hvparams, force=True)
            if instances.is_running(driver, instance):
                raise errors.HypervisorError(
                    f"instance {name}: its helper machine is still running"
                )
        driver.cleanup(name)
        guest_files.remove_links(node.paths, name, len(instance.disks_info))
        guest_files.unmark_helper(node.paths, name)
    path, archive = _image(node, name), place_archive(node.paths, name)
    for each in (archive, path, f"{path}.new", _result(node, name)):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(each)
