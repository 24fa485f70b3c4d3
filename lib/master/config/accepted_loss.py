"""Numbers that are left out where an administrator accepted loss.

Lost changes may have used serials of the configuration and job ids above those that
this copy knows, and clients may still ask for them. More are left out than the silent
copies can have used. Revisions are left out by `ganeti.store`.

What is left out has to be in the first group that is written: a master that takes over
from this one knows nothing of the loss.
"""

from typing import Final

import msgspec

from ganeti.master.config.config import HEADER_KEY, Header
from ganeti.store import Document, Store
from ganeti.store.numbers import LAST_JOB

SKIPPED_SERIALS: Final = 1_000_000
SKIPPED_JOBS: Final = 10_000


def job_ids(store: Store) -> Document:
    """Return the document that leaves out job ids."""
    last = int(store.read("meta", LAST_JOB) or b"0")
    return Document("meta", LAST_JOB, b"%d" % (last + SKIPPED_JOBS))


def serials(store: Store) -> Document:
    """Return the document that leaves out serials of the configuration."""
    header = Header.decode(store.read("meta", HEADER_KEY))
    left_out = msgspec.structs.replace(
        header, serial_no=header.serial_no + SKIPPED_SERIALS
    )
    return Document("meta", HEADER_KEY, msgspec.json.encode(left_out))
