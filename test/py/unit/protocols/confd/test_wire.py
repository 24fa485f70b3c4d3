"""Datagrams of confd, with the vectors of the protocol."""

import json

import pytest

from fakes.confd import KEY, VECTORS, orchard
from ganeti.base import errors
from ganeti.daemons.confd import answers
from ganeti.protocols.confd import wire

SIGNERS = wire.Signers(KEY)
NOW, ROLE, *_ = VECTORS["role"]


def drop_of(data, now=NOW, signers=SIGNERS):
    """Return the reason for which a datagram is dropped."""
    with pytest.raises(wire.Dropped) as caught:
        wire.open_request(data, signers, now)
    return caught.value.args[0]


@pytest.mark.parametrize("name", VECTORS)
def test_each_vector_gets_its_reply(name):
    now, request, inner, salt, digest = VECTORS[name]
    magic, query = wire.open_request(request, SIGNERS, now)
    message = answers.Projection(orchard()).message(query)
    assert json.loads(message) == json.loads(inner)
    reply = wire.seal_reply(magic, inner.encode(), query.rsalt, SIGNERS)
    assert reply[:4] == b"plj0"
    assert json.loads(reply[4:]) == {"msg": inner, "salt": salt, "hmac": digest}


def test_a_reply_that_ends_with_a_newline_is_read():
    text = '{"protocol":1,"status":0,"answer":1,"serial":77}\n'
    data = {"msg": text, "salt": "s", "hmac": ""}
    data["hmac"] = wire.signer(b"plj0", KEY)(("s" + text).encode()).upper()
    salt, reply = wire.open_reply(b"plj0" + json.dumps(data).encode(), SIGNERS)
    assert (salt, reply.answer, reply.serial) == ("s", 1, 77)


@pytest.mark.parametrize(("shift", "is_dropped"), [(300, False), (301, True)])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_clock_may_differ_by_300_seconds(shift, sign, is_dropped):
    now = NOW + sign * shift + 0.4
    if is_dropped:
        assert drop_of(ROLE, now) == "clock"
    else:
        wire.open_request(ROLE, SIGNERS, now)


def test_any_change_of_text_salt_or_key_is_noticed():
    for old, new in ((b"pear", b"bear"), (b"1700000101", b"1700000102")):
        assert drop_of(ROLE.replace(old, new)) == "signature"
    assert drop_of(ROLE, signers=wire.Signers(KEY.rstrip())) == "signature"
    assert drop_of(ROLE.replace(b"aff752", "é".encode())) == "signature"


def test_checks_are_made_in_order():
    # Each datagram has all later faults, too.
    large = b" " * 62000
    assert drop_of(b"plj1" + large) == "magic"
    assert drop_of(b"plj0" + large) == "size"
    assert drop_of(b"plj0[]") == "malformed"
    assert drop_of(signed("nonsense", "1", digest="0")) == "signature"
    assert drop_of(signed("nonsense", "1")) == "clock"
    assert drop_of(signed("nonsense", str(NOW))) == "request"


def signed(text, salt, digest=None):
    """Return a signed datagram of any text."""
    if digest is None:
        digest = wire.signer(b"plj0", KEY)((salt + text).encode())
    outer = {"msg": text, "salt": salt, "hmac": digest}
    return b"plj0" + json.dumps(outer).encode()


@pytest.mark.parametrize("data", [b"", b"p", b"plj", b"plk0{}", b"\0" * 70000])
def test_other_magics_are_dropped(data):
    assert drop_of(data) == "magic"


@pytest.mark.parametrize(
    "data",
    [
        b"plj0",
        b"plj0{}",
        b'plj0{"msg":1,"salt":"1","hmac":""}',
        b'plj0{"msg":"","salt":"1","hmac":"","more":1}',
        b'plj0{"msg":"\xff","salt":"1","hmac":""}',
        b"plj0" + b"[" * 60000,
    ],
)
def test_malformed_datagrams_are_dropped(data):
    assert drop_of(data) == "malformed"


@pytest.mark.parametrize("salt", ["", "x", "-1", "1_0", " 1", "٣", "9" * 16])
def test_a_salt_that_is_no_time_is_dropped(salt):
    assert drop_of(signed("{}", salt)) == "clock"


@pytest.mark.parametrize(
    "inner",
    [
        {},
        {"protocol": 1, "type": 0},
        {"protocol": 1, "type": 0, "rsalt": ""},
        {"protocol": 1, "type": 0, "rsalt": 1},
        {"protocol": 2, "type": 0, "rsalt": "s"},
        {"protocol": 1, "type": True, "rsalt": "s"},
        {"protocol": 1, "type": "0", "rsalt": "s"},
    ],
)
def test_a_request_without_its_members_is_dropped(inner):
    assert drop_of(signed(json.dumps(inner), str(NOW))) == "request"


def test_sha256_has_a_magic_of_its_own_that_must_be_enabled():
    both = wire.Signers(KEY, {wire.MAGIC_SHA1, wire.MAGIC_SHA256})
    query = wire.Query(1, 0, "s")
    data = wire.seal_query(query, NOW, both, wire.MAGIC_SHA256)
    assert data.startswith(b"plj1")
    assert len(json.loads(data[4:])["hmac"]) == 64
    assert wire.open_request(data, both, NOW) == (b"plj1", query)
    assert drop_of(data) == "magic"
    assert drop_of(ROLE, signers=wire.Signers(KEY, {b"plj1"})) == "magic"
    # A signature of one algorithm is none of the other.
    assert drop_of(b"plj0" + data[4:], signers=both) == "signature"


def test_signatures_are_those_of_the_standard_library():
    import hmac

    for magic, name in ((b"plj0", "sha1"), (b"plj1", "sha256")):
        for key in (b"k", KEY, b"long" * 40):
            wanted = hmac.new(key, b"text", name).hexdigest()
            assert wire.signer(magic, key)(b"text") == wanted


def test_replies_and_requests_larger_than_a_datagram_are_not_made():
    with pytest.raises(wire.Dropped, match="too large"):
        wire.seal_reply(b"plj0", b'"' * 40000, "s", SIGNERS)
    with pytest.raises(errors.ConfdClientError, match="at most 61440"):
        wire.seal_query(wire.Query(1, 1, "s", "x" * 62000), NOW, SIGNERS, b"plj0")


def test_a_reply_with_another_magic_is_an_error():
    with pytest.raises(errors.ConfdMagicError, match="begins with b'plj1'"):
        wire.open_reply(b"plj1{}", SIGNERS)
