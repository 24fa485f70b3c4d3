"""The note of a renewal of the cluster certificate that is not complete.

It is on the node that makes the new certificate, from before the first file is replaced
until the end, and the nodes may have different authorities then. It has digests of
``server.pem`` before and after: a node whose file is neither has got it by a later
renewal, made on another node because this one was lost, and its note is outdated.
"""

import hashlib

from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths

_MODE = 0o600
_MAX_BYTES = 4096


def _path(paths: Paths) -> str:
    return paths.data("renewing-certificates")


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _present(paths: Paths) -> str:
    """Return the digest of the cluster certificate; of no file if it is missing."""
    try:
        return _digest(files.read_file(paths.server_pem))
    except FileNotFoundError:
        return _digest(b"")


def write(paths: Paths, new: bytes) -> None:
    """Leave the note, before the file gets its new content."""
    text = f"{_present(paths)}\n{_digest(new)}\n"
    files.write_file(_path(paths), text.encode(), mode=_MODE)


def counts(paths: Paths) -> bool:
    """Return whether there is a note that is not outdated.

    Releases before this one left an empty one, which counts.
    """
    try:
        text = files.read_file(_path(paths), max_size=_MAX_BYTES).decode()
    except FileNotFoundError:
        return False
    digests = text.split()
    return not digests or _present(paths) in digests


def remove(paths: Paths) -> None:
    """Remove the note: this node has the files that all others have, too."""
    files.remove_file(_path(paths))
