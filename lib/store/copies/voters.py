"""The candidate set in force as a document of the store.

The group that changes the set writes the document, so that each copy knows which
copies count. Which majority it asks for is `ganeti.decisions.quorum`.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from ganeti.base import errors
from ganeti.decisions.quorum import Voters, voters_of
from ganeti.model.objects import Snapshot
from ganeti.store.base import Document

#: Key in the table of single values.
KEY: Final = "voters"


class _Role(msgspec.Struct):
    uuid: str
    master_candidate: bool = False
    offline: bool = False


def encode(voters: Voters) -> Document:
    """Return the document of a candidate set."""
    return Document("meta", KEY, msgspec.json.encode(voters.to_dict()))


def decode(data: bytes) -> Voters:
    """Return the candidate set in a document.

    Raises:
        ConfigurationError: there is none in it.
    """
    try:
        return voters_of(msgspec.json.decode(data))
    except ValueError as err:
        raise errors.ConfigurationError(f"candidate set: {err}") from err


def candidates_of(snapshot: Snapshot) -> frozenset[str]:
    """Return the uuids of a configuration's master candidates."""
    return frozenset(
        uuid
        for uuid, node in snapshot.nodes.items()
        if node.master_candidate and not node.offline
    )


def candidates_in(records: Iterable[bytes | str]) -> frozenset[str]:
    """Return the uuids of the master candidates among stored node records.

    Raises:
        ConfigurationError: a record cannot be read.
    """
    try:
        nodes = [msgspec.json.decode(data, type=_Role) for data in records]
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        raise errors.ConfigurationError(f"node: {err}") from err
    return frozenset(n.uuid for n in nodes if n.master_candidate and not n.offline)
