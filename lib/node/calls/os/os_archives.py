"""The node procedure ``os_export``: an OS definition and its environment in an archive.

Programs that run the scripts of an untrusted OS elsewhere, as in a guest, need both.
The archive can have secret parameters: it is in memory, below the run directory, and
root's alone. Each instance has one, which the next export replaces.
"""

import io
import os
import re
import shlex
import stat
import tarfile
from collections.abc import Mapping
from typing import Any, Final

from ganeti.base import errors, pathutils
from ganeti.base.filesystem import files
from ganeti.model.objects.filled import InstanceX
from ganeti.node.calls.os import os_definitions, os_environment
from ganeti.node.calls.registry import LocalNode, procedure
from ganeti.node.hypervisor.base import check_instance_name

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


def place(paths: pathutils.Paths, name: str) -> str:
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
    env = os_environment.instance_environment(node, instance, definition)
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
    path = place(node.paths, instance.name)
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
