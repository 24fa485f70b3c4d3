"""A document of the store as a value of its type."""

from typing import TypeVar

import msgspec

from ganeti.base import errors
from ganeti.store.base import Store

T = TypeVar("T", bound=msgspec.Struct)


def read_typed(store: Store, table: str, key: str, form: type[T], what: str) -> T:
    """Return a document; the defaults of its type if there is none.

    Args:
        store: to read.
        table: of the document.
        key: of the document.
        form: its type, of which all fields have defaults.
        what: name for messages.

    Raises:
        ConfigurationError: it cannot be read.
    """
    data = store.read(table, key)
    if data is None:
        return form()
    try:
        return msgspec.json.decode(data, type=form)
    except (msgspec.DecodeError, UnicodeError) as err:
        raise errors.ConfigurationError(f"{what}: {err}") from err
