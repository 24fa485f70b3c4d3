"""Writer of ssconf files."""

import os
import stat
from collections.abc import Mapping
from typing import Final

from ganeti.base import errors
from ganeti.base.constants.protocols import ssconf as ssconf_constants
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths

LOCK_NAME: Final = "ganeti-ssconf.lock"
LOCK_TIMEOUT_S: Final = 10.0
_MODE: Final = 0o444


def write(paths: Paths, values: Mapping[str, str], *, dry_run: bool = False) -> None:
    """Replace ssconf files, each one atomically, under the ssconf lock.

    Unchanged files are not written: most changes of a cluster concern one or two files,
    and each durable write costs disk time. A key that is refused does not keep the
    others from being written: the list of instances must not stop a new master.

    Args:
        paths: paths of the node.
        values: key -> text; a missing final newline is added unless it is empty.
        dry_run: check only.

    Raises:
        ConfigurationError: keys are unknown or values too long; all others were
            written.
        LockError: another writer holds the lock for too long.
    """
    texts, problems = {}, []
    for key, value in values.items():
        try:
            texts[key] = encode(key, value)
        except errors.ConfigurationError as err:
            problems.append(str(err))
    if texts and not dry_run:
        _replace(paths, texts)
    if problems:
        raise errors.ConfigurationError("; ".join(problems))


def _replace(paths: Paths, texts: Mapping[str, bytes]) -> None:
    with files.locked(f"{paths.lock_dir}/{LOCK_NAME}", timeout_s=LOCK_TIMEOUT_S):
        for key, data in texts.items():
            path = paths.data(ssconf_constants.FILEPREFIX + key)
            if not _is_right(path, data):
                files.write_file(path, data, mode=_MODE, sync_name=False)
        # Also when nothing was written: the last writer may have been killed.
        files.sync_dir(paths.data_dir)


def _is_right(path: str, data: bytes) -> bool:
    """Return whether a regular file of this user has this content and mode."""
    try:
        status = os.lstat(path)
        looks_right = (status.st_mode, status.st_uid) == (
            stat.S_IFREG | _MODE,
            os.geteuid(),
        )
        size = ssconf_constants.MAX_SIZE
        return looks_right and files.read_file(path, max_size=size) == data
    except (OSError, errors.GenericError):
        return False


def encode(key: str, value: str) -> bytes:
    """Return the content of a key's file.

    Raises:
        ConfigurationError: the key is unknown or the value too long.
    """
    if key not in ssconf_constants.KEYS:
        raise errors.ConfigurationError(f"ssconf has no key {key!r}")
    text = value if not value or value.endswith("\n") else f"{value}\n"
    data = text.encode()
    if len(data) > ssconf_constants.MAX_SIZE:
        raise errors.ConfigurationError(
            f"ssconf key {key}: {len(data)} bytes, wanted at most"
            f" {ssconf_constants.MAX_SIZE}"
        )
    return data
