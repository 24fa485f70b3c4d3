"""JSON for the wire, and HMAC-signed messages.

simplejson reads and writes texts that people see or edit; msgspec the hot paths.
"""

import hashlib
import hmac
from typing import Any

import msgspec

from ganeti.base import errors


def dump(value: Any) -> bytes:
    """Return compact JSON; records and tuples are accepted."""
    return msgspec.json.encode(value)


def load(data: bytes | str) -> Any:
    """Return the value of a JSON text.

    Raises:
        ParseError: the text is not JSON.
    """
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        raise errors.ParseError(f"not JSON: {err}") from err
    except RecursionError as err:
        raise errors.ParseError("not JSON: nested too deeply") from err


def pretty(value: Any) -> str:
    """Return indented JSON with sorted keys, for people."""
    import simplejson

    text: str = simplejson.dumps(msgspec.to_builtins(value), indent=2, sort_keys=True)
    return text


def sign(key: bytes, text: str, salt: str) -> str:
    """Return the hexadecimal SHA-1 HMAC of salt and text."""
    return hmac.new(key, (salt + text).encode(), hashlib.sha1).hexdigest()


def verify(key: bytes, text: str, salt: str, digest: str) -> bool:
    """Compare a signature in constant time."""
    return hmac.compare_digest(sign(key, text, salt), digest)
