"""Copies that are known to hold another history than the present master's.

A master that a minority was forced to elect can leave a copy with changes of its term
on a candidate. A later start of the present master would take that copy for proof that
its own was set back. So a master notes such a copy while it leads: the copy does not
count in an election, as if its node was silent, for as long as it stays as it was
noted. To count fewer copies is always safe, see `ganeti.decisions.quorum`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from ganeti.decisions.quorum import Copy
from ganeti.store.backend import NO_HISTORY
from ganeti.store.base import Document

_TABLE: Final = "meta"
#: Beginning of the keys; a node uuid follows.
_PREFIX: Final = "branch/"


def newer(status: Any, cluster: str, number: int) -> str:
    """Return the digest of a copy that a master of a later term wrote, else "".

    Args:
        status: answer of a candidate; one that is wrong has no such copy.
        cluster: uuid of the cluster.
        number: of the present master's term.

    >>> digest = "AB" * 16
    >>> newer({"cluster": "c", "written": 4, "digest": digest}, "c", 3)
    'abababababababababababababababab'
    >>> newer({"cluster": "c", "written": 2, "digest": digest}, "c", 3)
    ''
    """
    try:
        digest = bytes.fromhex(status["digest"])
        is_newer = status["cluster"] == cluster and int(status["written"]) >= number
    except (KeyError, TypeError, ValueError):
        return ""
    return digest.hex() if is_newer and len(digest) == len(NO_HISTORY) else ""


def document(node: str, digest: str) -> Document:
    """Return what notes that a node's copy, while it has a digest, is such a copy."""
    return Document(_TABLE, f"{_PREFIX}{node}", digest.encode())


def is_known(read: Callable[[str, str], bytes | None], node: str, digest: str) -> bool:
    """Return whether a node's copy was noted.

    Args:
        read: returns the document of a table and key.
        node: uuid of the candidate.
        digest: of its copy, in hexadecimal digits.
    """
    return bool(digest) and read(_TABLE, f"{_PREFIX}{node}") == digest.encode()


def without_known(
    read: Callable[[str, str], bytes | None], copies: Mapping[str, Copy]
) -> dict[str, Copy]:
    """Return copies with those that were noted as empty ones, which do not count."""
    return {
        node: Copy(0, 0) if is_known(read, node, copy.digest) else copy
        for node, copy in copies.items()
    }
