"""Records to and from the form of ``config.data``."""

import functools
from typing import Any, Final, TypeVar

import msgspec

from ganeti.base import errors
from ganeti.model.objects.records import Record

R = TypeVar("R", bound=Record)


def to_dict(record: Record) -> dict[str, Any]:
    """Return the stored form: JSON types only, unset sparse fields left out."""
    sparse = _sparse_defaults(type(record))
    return {
        name: _plain(value)
        for name in record.__struct_fields__
        if (value := getattr(record, name)) != sparse.get(name, _NEVER)
    }


_NEVER: Final = object()


@functools.cache
def _sparse_defaults(cls: type[Record]) -> dict[str, Any]:
    return {
        field.name: (
            field.default_factory()
            if field.default is msgspec.NODEFAULT
            else field.default
        )
        for field in msgspec.structs.fields(cls)
        if field.name in cls.SPARSE
    }


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return to_dict(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def from_dict(cls: type[R], data: Any) -> R:
    """Return the record for a stored form.

    Raises:
        ConfigurationError: a field is missing or has the wrong type.
    """
    try:
        return msgspec.convert(data, cls)
    except msgspec.ValidationError as err:
        raise errors.ConfigurationError(f"{cls.__name__}: {err}") from err


def encode(record: Record) -> bytes:
    """Return the record as JSON for the store; faster than `to_dict`."""
    return msgspec.json.encode(record)


#: Errors about bytes that are no JSON, no UTF-8, or nested too deep.
_NOT_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_decoders: dict[type[Record], msgspec.json.Decoder[Any]] = {}


def decode(cls: type[R], data: bytes) -> R:
    """Return the record for JSON written by `encode`.

    Raises:
        ConfigurationError: the text is not such a record.
    """
    decoder = _decoders.get(cls)
    if decoder is None:
        decoder = _decoders.setdefault(cls, msgspec.json.Decoder(cls))
    try:
        record: R = decoder.decode(data)
    except _NOT_JSON as err:
        raise errors.ConfigurationError(f"{cls.__name__}: {err}") from err
    return record
