"""Features of the stored form that not every release can read.

A candidate names the features that its release knows in the answers to ``store_status``
and ``store_promise``. The master begins to use a feature when all candidates know it.
The group that uses one for the first time records it as a document, so each copy says
which features it needs: a release that lacks one refuses to be master with that copy,
and a candidate whose release lacks one is not sent anything and does not count, until
it is upgraded. So a copy that its node misreads never exists.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.store.base import Document

#: Key of the features in use, in the table of single values.
KEY: Final = "features"
#: Key of the known features in the answer of a candidate; text with commas.
STATUS_KEY: Final = "features"
#: Records of large networks are compressed, see `ganeti.store.wire`.
COMPRESSED_NETWORKS: Final = "compressed-networks"
#: Logs of archived jobs are rows of the archive, see `ganeti.master.jqueue.effects`.
ARCHIVED_LOGS: Final = "archived-logs"
#: Address pools of large networks are rows of their own, see `ganeti.store.pools`.
POOL_ROWS: Final = "pool-rows"
#: All features that this release knows.
KNOWN: Final = frozenset({COMPRESSED_NETWORKS, ARCHIVED_LOGS, POOL_ROWS})

Features = frozenset[str]


def encode(features: Collection[str]) -> Document:
    """Return the document of the features in use."""
    return Document("meta", KEY, msgspec.json.encode(sorted(features)))


def decode(data: bytes | None) -> Features:
    """Return the features in a document; none if there is no document.

    Raises:
        ConfigurationError: it cannot be read.
    """
    if data is None:
        return frozenset()
    try:
        return frozenset(msgspec.json.decode(data, type=list[str]))
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        raise errors.ConfigurationError(f"features of the store: {err}") from err


def require(used: Collection[str], what: str) -> None:
    """Check that this release knows the features in use.

    Raises:
        ConfigurationError: it does not; contains ``what``.
    """
    if missing := sorted(set(used) - KNOWN):
        raise errors.ConfigurationError(
            f"{what}: uses {', '.join(missing)}, which this release does not know:"
            " install the release that the last master had"
        )


def to_status() -> str:
    """Return the features of this release in the form of a candidate's answer."""
    return ",".join(sorted(KNOWN))


def from_status(status: Mapping[str, Any]) -> Features:
    """Return the features of a candidate; earlier releases name none."""
    text = str(status.get(STATUS_KEY, ""))
    return frozenset(text.split(",")) - {""}
