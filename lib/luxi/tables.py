"""Decoding large answers of queries: rows of pairs, as tuples.

A listing of a large cluster has more than a million cells. As tuples they are
cheaper than as lists, and equal ones can be told by hashing. Imported when a large
answer arrives only.
"""

import gc
from typing import Any

import msgspec

from ganeti.luxi import framing


class _Table(msgspec.Struct):
    fields: list[dict[str, Any]]
    data: list[list[tuple[int, Any]]]


class _Answer(msgspec.Struct):
    success: bool
    result: _Table
    version: Any = None


_decoder = msgspec.json.Decoder(_Answer)


def decode(data: bytes) -> dict[str, Any] | None:
    """Return an answer as its generic form has it, None if it is no table."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        answer = _decoder.decode(data)
    except msgspec.DecodeError:
        return None
    finally:
        if was_enabled:
            gc.enable()
    # All of it lives until the program ends; looking for garbage in it costs time.
    gc.freeze()
    return {
        framing.KEY_SUCCESS: answer.success,
        framing.KEY_RESULT: {
            "fields": answer.result.fields,
            "data": answer.result.data,
        },
        framing.KEY_VERSION: answer.version,
    }
