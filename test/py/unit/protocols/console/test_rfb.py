"""Messages of watchers of a display arrive, but for those that change the guest."""

import struct

import pytest

from ganeti.protocols.console import rfb
from ganeti.protocols.console.stream import Malformed

VERSION = b"RFB 003.008\n"
KEY = struct.pack(">BBHI", 4, 1, 0, 0xFF0D)
POINTER = struct.pack(">BBHH", 5, 1, 10, 10)
CUT = struct.pack(">B3xI", 6, 5) + b"\x04\x05\x06\x00\x00"
EXTENDED_CUT = struct.pack(">B3xi", 6, -4) + b"\x00\x00\x00\x01"
DROPPED = {
    "key": KEY,
    "pointer": POINTER,
    "clipboard": CUT,
    "extended clipboard": EXTENDED_CUT,
    "power": struct.pack(">BBBB", 250, 0, 1, 2),
    "size": struct.pack(">BBHHBB", 251, 0, 640, 480, 1, 0) + bytes(16),
    "key of QEMU": struct.pack(">BBHII", 255, 0, 1, 0xFF0D, 28),
    "sound": struct.pack(">BBH", 255, 1, 0),
    "form of sound": struct.pack(">BBHBBI", 255, 1, 2, 3, 2, 44100),
}
PASSED = {
    "pixels": struct.pack(">B3x", 0) + bytes(16),
    "encodings": struct.pack(">BxHii", 2, 2, 0, -223),
    "request": struct.pack(">BBHHHH", 3, 1, 0, 0, 640, 480),
    "updates": struct.pack(">BBHHHH", 150, 1, 0, 0, 640, 480),
    "fence": struct.pack(">B3xIB", 248, 1, 3) + b"abc",
}


def watcher(proof=b"", chosen=b"\x01"):
    made = rfb.ReadOnly()
    assert made.feed(VERSION + chosen + proof + b"\x00") == (
        VERSION + chosen + proof + b"\x01"  # those who see it already stay
    )
    return made


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_what_looks_passes_and_what_acts_does_not(size):
    sent = b"".join(
        passed + dropped for passed in PASSED.values() for dropped in DROPPED.values()
    )
    made = watcher()
    got = b"".join(made.feed(sent[at : at + size]) for at in range(0, len(sent), size))
    assert got == b"".join(passed for passed in PASSED.values() for _ in DROPPED)


def test_a_password_is_passed_on():
    made = watcher(proof=bytes(range(16)), chosen=b"\x02")
    assert made.feed(KEY + PASSED["request"]) == PASSED["request"]


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (b"RFB 003.003\n", "RFB 3.7"),
        (b"RFB 003.3\n\n\n", "RFB 3.7"),
        (b"RFB 003.9\n\n\n", "RFB 3.7"),
        (b"GET / HTTP/1.", "RFB 3.7"),
        (VERSION + b"\x13", "encryption of its own"),
        (VERSION + b"\x01\x01" + b"\x07", "unknown message 7"),
        (VERSION + b"\x01\x01" + struct.pack(">B3xI", 6, 1 << 30), "bytes"),
        (VERSION + b"\x01\x01" + struct.pack(">BxH", 2, 65535), "bytes"),
    ],
)
def test_what_nobody_can_follow_ends_the_connection(sent, text):
    with pytest.raises(Malformed, match=text):
        rfb.ReadOnly().feed(sent)
