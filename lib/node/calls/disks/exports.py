"""Procedures of the exports that a node stores: list, read, complete and remove them.

An export is a directory below the export directory with the name of its instance: one
file per disk, and the description ``config.ini``, which is written last. While the
export is being made, ``.new`` follows the name. The one that it replaces is a hidden
directory with ``.old`` at its end for a moment. Only root of the node writes to the
export directory; a directory that is a symbolic link there is an export elsewhere.
"""

import contextlib
import os
import re
import shutil
import stat
from typing import Any, Final

import msgspec

from ganeti import _buildconf
from ganeti.base import errors
from ganeti.base.constants.protocols import export as constants
from ganeti.base.filesystem import files
from ganeti.model.objects import export_info as descriptions
from ganeti.model.objects.filled import DiskX, InstanceX
from ganeti.node.calls.registry import LocalNode, procedure
from ganeti.node.hypervisor.base import check_instance_name
from ganeti.node.storage import allowed

_NEW: Final = ".new"
_OLD: Final = ".old"
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,254}")
_DIR_MODE: Final = 0o750
_FILE_MODE: Final = 0o600
#: Of file systems, where the export directory is one.
_LOST_AND_FOUND: Final = "lost+found"
#: Seconds without a change after which an unfinished export is left over.
_UNUSED_S: Final = 3600
#: Most exports that a node lists.
_MAX_LISTED: Final = 10_000


def top(node: LocalNode) -> str:
    """Return the local path of the export directory."""
    return node.paths.at(_buildconf.EXPORT_DIR)


@procedure("export_list")
def export_list(node: LocalNode) -> list[str]:
    """Return the names of the complete exports of this node, sorted."""
    try:
        names = os.listdir(top(node))
    except FileNotFoundError:
        return []
    listed = sorted(filter(_NAME.fullmatch, names))[:_MAX_LISTED]
    return [name for name in listed if _is_complete(f"{top(node)}/{name}")]


def remains(node: LocalNode) -> dict[str, str]:
    """Return what is in the export directory beside complete exports, by name.

    ``unfinished`` is an export that nothing has written to for an hour, ``foreign``
    something that is no export.
    """
    try:
        names = sorted(os.listdir(top(node)))[:_MAX_LISTED]
    except (FileNotFoundError, NotADirectoryError):
        return {}
    left = {}
    for name in names:
        path = f"{top(node)}/{name}"
        if name == _LOST_AND_FOUND or _is_complete(path):
            continue
        if not (name.endswith(_NEW) or (name[:1] == "." and name.endswith(_OLD))):
            left[name] = "foreign"
        else:
            # An export that ends at this moment is no longer there.
            with contextlib.suppress(FileNotFoundError):
                if node.clock.time() - _last_change(path) > _UNUSED_S:
                    left[name] = "unfinished"
    return left


def _last_change(path: str) -> float:
    """Return when a directory or one of its files was written last."""
    changes = [os.lstat(path).st_mtime]
    if os.path.isdir(path):
        with os.scandir(path) as entries:
            changes += [each.stat(follow_symlinks=False).st_mtime for each in entries]
    return max(changes)


@procedure("export_info")
def export_info(node: LocalNode, path: str) -> str:
    """Return the description of an export, after a look at its files.

    Raises:
        OpExecError: there is no export, or a file is missing or has another length.
    """
    directory = _local(node, path)
    try:
        text = _description(directory)
    except FileNotFoundError as err:
        raise errors.OpExecError(
            f"export {path}: not found on this node, which has no"
            f" {constants.EXPORT_CONF_FILE} there"
        ) from err
    try:
        info = descriptions.parse(text)
    except errors.ParseError as err:
        raise errors.OpExecError(
            f"export {path}: {constants.EXPORT_CONF_FILE}: {err}"
        ) from err
    for disk in info.disks:
        size = os.stat(dump_file(node, f"{path}/{disk.dump}")).st_size
        if disk.dump_bytes not in (None, size):
            raise errors.OpExecError(
                f"export {path}: file {disk.dump}: wanted {disk.dump_bytes} bytes,"
                f" found {size}; the export is not complete, use another one"
            )
    return text


@procedure("export_remove")
def export_remove(node: LocalNode, export: str) -> None:
    """Remove an export, complete or not; one that does not exist is no failure.

    The removal of one that is being made gives the older one its place again.
    """
    if not _NAME.fullmatch(export):
        raise errors.OpExecError(f"export {export!r}: is not a name of an export")
    _remove(f"{top(node)}/{export}")
    _remove(_old(node, export))
    if export.endswith(_NEW):
        _put_back(node, export.removesuffix(_NEW))


@procedure("finalize_export")
def finalize_export(
    node: LocalNode, instance: InstanceX, snap_disks: list[Any]
) -> None:
    """Describe the files that were received, and put the export in its place.

    The instance has the name of its primary node in place of the uuid. An older export
    of the instance is replaced. A repeated call is no failure.

    Raises:
        OpExecError: a disk has no file.
    """
    name = check_instance_name(instance.name)
    final, unfinished = f"{top(node)}/{name}", f"{top(node)}/{name}{_NEW}"
    # Without disks no file is received: an older export shows no repeated call.
    if snap_disks and not os.path.isdir(unfinished) and _is_complete(final):
        _remove(_old(node, name))
        return
    _require_unfinished(unfinished, name)
    _put_back(node, name)
    _require_replaceable(final)
    os.makedirs(unfinished, _DIR_MODE, exist_ok=True)
    sizes = [
        _sizes(unfinished, index, disk, name) for index, disk in enumerate(snap_disks)
    ]
    known = {descriptions.dump_name(index) for index in range(len(sizes))}
    for left in set(os.listdir(unfinished)) - known:
        _remove(f"{unfinished}/{left}")
    text = descriptions.text_of(
        instance,
        sizes,
        source=instance.primary_node,
        timestamp=int(node.clock.time()),
    )
    _require_readable(text, name)
    files.write_file(
        f"{unfinished}/{constants.EXPORT_CONF_FILE}", text, mode=_FILE_MODE
    )
    files.sync_dir(unfinished)
    old = _old(node, name)
    _remove(old)
    if os.path.lexists(final):
        os.rename(final, old)
    os.rename(unfinished, final)
    files.sync_dir(top(node))
    _remove(old)


def _require_readable(text: str, name: str) -> None:
    """Refuse a description that no import would accept."""
    what = f"export of instance {name}: its description could not be read again"
    length = len(text.encode())
    if length > descriptions.MAX_LENGTH:
        raise errors.OpExecError(
            f"{what}: wanted at most {descriptions.MAX_LENGTH} bytes, found {length}"
        )
    try:
        descriptions.parse(text)
    except errors.ParseError as err:
        raise errors.OpExecError(f"{what}: {err}") from err


def _sizes(directory: str, index: int, given: Any, name: str) -> tuple[int, int]:
    """Return the size of a disk in MiB, and the bytes of its file."""
    dump = descriptions.dump_name(index)
    if not isinstance(given, dict):
        raise errors.OpExecError(
            f"export of instance {name}: wanted disk/{index}, found {given!r}"
        )
    disk = disk_record(given, f"export of instance {name}: disk/{index}")
    try:
        state = os.lstat(f"{directory}/{dump}")
    except FileNotFoundError as err:
        raise errors.OpExecError(
            f"export of instance {name}: disk/{index} was not received: no file {dump}"
        ) from err
    return disk.size, state.st_size


def disk_record(given: Any, what: str) -> DiskX:
    """Return the record of a disk for an argument of any JSON type.

    Raises:
        OpExecError: it is none; the text begins with ``what``.
    """
    try:
        return msgspec.convert(given, DiskX)
    except msgspec.ValidationError as err:
        raise errors.OpExecError(f"{what}: {err}") from err


def new_dump(node: LocalNode, instance: str, path: str) -> str:
    """Create an empty file for the content of a disk; return its local path.

    Args:
        node: this node.
        instance: its name.
        path: of the file, in the directory of the export that is being made.

    Raises:
        OpExecError: another path, or another export is in the way.
    """
    name = check_instance_name(instance)
    local = _local(node, path)
    directory = f"{top(node)}/{name}{_NEW}"
    wanted = re.compile(re.escape(directory) + r"/disk[0-9]{1,2}\.dump")
    if not wanted.fullmatch(local):
        raise errors.OpExecError(
            f"export of instance {name}: wanted a file diskN.dump in {name}{_NEW} of"
            f" the export directory, found {path}"
        )
    _require_unfinished(directory, name)
    _put_back(node, name)
    os.makedirs(directory, _DIR_MODE, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    os.close(os.open(local, flags, _FILE_MODE))
    return local


def dump_file(node: LocalNode, path: str) -> str:
    """Return the local path of a file of an export.

    Raises:
        OpExecError: it is not one, or not a regular file.
    """
    directory, _, name = path.rpartition("/")
    local = f"{_local(node, directory)}/{name}"
    try:
        state = os.lstat(local)
    except OSError as err:
        raise errors.OpExecError(
            f"export {directory}: file {name}: {err.strerror}"
        ) from err
    if not stat.S_ISREG(state.st_mode):
        raise errors.OpExecError(
            f"export {directory}: {name}: wanted a regular file, found something else"
        )
    return local


# Directories
def _local(node: LocalNode, path: str) -> str:
    """Return the local path of something below the export directory."""
    local = allowed.local_path(node.paths, path)
    if not allowed.is_below(top(node), local):
        raise errors.OpExecError(
            f"{path}: wanted a path below {_buildconf.EXPORT_DIR}, where this node has"
            " its exports; a symbolic link there may lead to others"
        )
    return local


def _description(directory: str) -> str:
    path = f"{directory}/{constants.EXPORT_CONF_FILE}"
    if not stat.S_ISREG(os.lstat(path).st_mode):
        raise errors.OpExecError(f"{path}: wanted a regular file, found another one")
    data = files.read_file(path, max_size=descriptions.MAX_LENGTH)
    return data.decode(errors="replace")


def _is_complete(directory: str) -> bool:
    """Return whether a directory has an export that is in its place."""
    try:
        text = _description(directory)
    except (OSError, errors.GenericError):
        return False
    if not directory.endswith(_NEW):
        return True
    return _named_in(text) != os.path.basename(directory).removesuffix(_NEW)


def _named_in(text: str) -> str:
    try:
        return descriptions.parse(text).name
    except errors.ParseError:
        return ""


def _require_unfinished(directory: str, name: str) -> None:
    """Refuse to write where the export of an instance of that very name is."""
    if _is_complete(directory):
        raise errors.OpExecError(
            f"export of instance {name}: {os.path.basename(directory)} in the export"
            " directory is an export of another instance; move it elsewhere"
        )


def _old(node: LocalNode, name: str) -> str:
    """Return where an export is while a newer one takes its place."""
    return f"{top(node)}/.{name}{_OLD}"


def _put_back(node: LocalNode, name: str) -> None:
    """Give an export its place again if the daemon ended while it was replaced."""
    final, old = f"{top(node)}/{name}", _old(node, name)
    if os.path.isdir(old) and not os.path.lexists(final):
        os.rename(old, final)
        files.sync_dir(top(node))


def _require_replaceable(directory: str) -> None:
    if os.path.lexists(directory) and not os.path.isdir(directory):
        raise errors.OpExecError(f"{directory}: wanted a directory, found another file")


def _remove(path: str) -> None:
    """Remove a directory with its files, the description first."""
    if os.path.islink(path) or os.path.isfile(path):
        os.unlink(path)
        return
    if not os.path.isdir(path):
        return
    files.remove_file(f"{path}/{constants.EXPORT_CONF_FILE}")
    shutil.rmtree(path)
