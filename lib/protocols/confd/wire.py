"""Datagrams of confd: four bytes of magic, then one signed JSON object.

The member ``msg`` of the object is the text of a second JSON object. Its signature
covers the text as it was sent, so it is checked before the text is parsed.

Magic ``plj0`` has an HMAC of SHA-1, as all releases of Ganeti. Magic ``plj1`` (not in
Ganeti) is the same datagram with SHA-256, for clusters whose administrator switched it
on; a server without it drops the datagram.
"""

import hashlib
import hmac
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import msgspec

from ganeti.base import errors
from ganeti.base.constants.protocols import confd

MAGIC_SHA1: Final = confd.CONFD_MAGIC_FOURCC.encode()
MAGIC_SHA256: Final = b"plj1"
_HASHES: Final = {MAGIC_SHA1: hashlib.sha1, MAGIC_SHA256: hashlib.sha256}
#: Digits of the longest salt of a request; a time in seconds has ten.
_MAX_SALT_DIGITS: Final = 15
#: Errors about bytes that are no JSON, no UTF-8, or nested too deep.
_NOT_JSON: Final = (msgspec.DecodeError, UnicodeError, RecursionError)


class Dropped(Exception):
    """A datagram that gets no answer; the argument is one of `REASONS`."""


#: Why datagrams are dropped, in the order of the checks.
REASONS: Final = (
    *("magic", "size", "malformed", "signature", "clock", "request", "replay"),
    *("reply too large", "reply rate", "send"),
)


class _Signed(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    msg: str
    salt: str
    hmac: str


class Query(msgspec.Struct, gc=False):
    """The inner message of a request.

    Attributes:
        protocol: 1.
        type: number of the kind of query, see `ganeti.base.constants.protocols.confd`.
        rsalt: returned as the salt of the reply, not empty.
        query: search key: null, a text or an object.
    """

    protocol: int
    type: int
    rsalt: str
    query: Any = None


class Reply(msgspec.Struct, gc=False):
    """The inner message of a reply.

    Attributes:
        protocol: 1.
        status: 0 ok, 1 error, 2 not implemented.
        answer: depends on the query; on an error, its number or a text.
        serial: of the configuration; 0 for a ping and for errors.
    """

    protocol: int
    status: int
    answer: Any
    serial: int


_decode_signed: Final = msgspec.json.Decoder(_Signed).decode
_decode_query: Final = msgspec.json.Decoder(Query).decode
_decode_reply: Final = msgspec.json.Decoder(Reply).decode
_encode: Final = msgspec.json.Encoder().encode

#: Returns the hexadecimal HMAC of some bytes.
Signer = Callable[[bytes], str]


def signer(magic: bytes, key: bytes) -> Signer:
    """Return the signing function of a magic.

    Copies of one object repeat the part of the work that depends on the key alone.
    """
    keyed = hmac.new(key, digestmod=_HASHES[magic])

    def sign(data: bytes) -> str:
        one = keyed.copy()
        one.update(data)
        return one.hexdigest()

    return sign


class Signers:
    """Signing functions of one key, by magic; other magics are dropped."""

    def __init__(
        self, key: bytes, magics: Collection[bytes] = frozenset({MAGIC_SHA1})
    ) -> None:
        self.by_magic: Mapping[bytes, Signer] = {
            magic: signer(magic, key) for magic in magics
        }


def open_request(data: bytes, signers: Signers, now: float) -> tuple[bytes, Query]:
    """Return the magic and the query of a request.

    Args:
        data: the datagram, or more than its first `confd.MAX_UDP_DATA_SIZE` bytes.
        signers: of the key.
        now: time of this machine, seconds since 1970.

    Raises:
        Dropped: the request must not be answered.
    """
    magic = data[:4]
    sign = signers.by_magic.get(magic)
    if sign is None:
        raise Dropped("magic")
    if len(data) > confd.MAX_UDP_DATA_SIZE:
        raise Dropped("size")
    signed = _checked(data, sign)
    salt = signed.salt
    if not (salt.isascii() and salt.isdigit()) or len(salt) > _MAX_SALT_DIGITS:
        raise Dropped("clock")
    # Clocks are compared in whole seconds, as clients send them.
    if abs(int(now) - int(salt)) > confd.CONFD_MAX_CLOCK_SKEW:
        raise Dropped("clock")
    try:
        query = _decode_query(signed.msg)
    except _NOT_JSON as err:
        raise Dropped("request") from err
    if query.protocol != confd.CONFD_PROTOCOL_VERSION or not query.rsalt:
        raise Dropped("request")
    return magic, query


def _checked(data: bytes, sign: Signer) -> _Signed:
    """Return the outer message after a check of its signature."""
    try:
        signed = _decode_signed(data[4:])
        text = (signed.salt + signed.msg).encode()
    except _NOT_JSON as err:
        raise Dropped("malformed") from err
    claimed = signed.hmac.lower()
    if not claimed.isascii() or not hmac.compare_digest(claimed, sign(text)):
        raise Dropped("signature")
    return signed


def _seal(magic: bytes, message: bytes, salt: str, sign: Signer) -> bytes:
    digest = sign(salt.encode() + message)
    return magic + _encode(_Signed(message.decode(), salt, digest))


def encode_message(reply: Reply) -> bytes:
    """Return the inner text of a reply, which can be sealed for several requests."""
    return _encode(reply)


def seal_reply(magic: bytes, message: bytes, salt: str, signers: Signers) -> bytes:
    """Return the datagram of a reply.

    Args:
        magic: of the request.
        message: see `encode_message`.
        salt: ``rsalt`` of the request.
        signers: of the key.

    Raises:
        Dropped: it would be larger than a datagram may be.
    """
    if len(message) > confd.MAX_UDP_DATA_SIZE:
        raise Dropped("reply too large")
    data = _seal(magic, message, salt, signers.by_magic[magic])
    if len(data) > confd.MAX_UDP_DATA_SIZE:
        raise Dropped("reply too large")
    return data


def seal_query(query: Query, now: float, signers: Signers, magic: bytes) -> bytes:
    """Return the datagram of a request.

    Raises:
        ConfdClientError: it would be larger than a datagram may be.
    """
    data = _seal(magic, _encode(query), str(int(now)), signers.by_magic[magic])
    if len(data) > confd.MAX_UDP_DATA_SIZE:
        raise errors.ConfdClientError(
            f"request of {len(data)} bytes, at most {confd.MAX_UDP_DATA_SIZE} are"
            " possible: ask for fewer objects at once"
        )
    return data


def open_reply(data: bytes, signers: Signers) -> tuple[str, Reply]:
    """Return the salt and the content of a reply.

    Raises:
        ConfdMagicError: it does not begin with a magic that this client knows.
        Dropped: the reply is not authentic or not well formed.
    """
    sign = signers.by_magic.get(data[:4])
    if sign is None:
        raise errors.ConfdMagicError(f"a reply begins with {data[:4]!r}")
    signed = _checked(data, sign)
    try:
        reply = _decode_reply(signed.msg)
    except _NOT_JSON as err:
        raise Dropped("request") from err
    return signed.salt, reply
