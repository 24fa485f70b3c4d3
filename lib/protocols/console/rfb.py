"""The viewer's side of RFB, the protocol of VNC: what may only look, made so.

A viewer that watches may ask for pictures, and send nothing that changes the guest. The
messages are those of RFC 6143 and of the register of its extensions that QEMU's server
and noVNC know. Nothing is guessed: an unknown message ends the connection.
"""

from collections.abc import Callable, Mapping
from typing import Final

from ganeti.protocols.console.stream import Malformed

_VERSION: Final = 12
#: In these the viewer chooses the kind of authentication. No other spelling: a server
#: may read it as an older version, in which messages begin elsewhere.
_VERSIONS: Final = frozenset({b"RFB 003.007\n", b"RFB 003.008\n"})
#: Kind of authentication -> bytes of the viewer's proof. Others encrypt what follows.
_PROOFS: Final[Mapping[int, int]] = {1: 0, 2: 16}
#: The viewer does not end those of others.
_SHARED: Final = b"\x01"
#: Longest message: texts for the clipboard are dropped when they are whole.
_LONGEST: Final = 64 * 1024
_QEMU: Final = 255
_QEMU_AUDIO: Final = 1
_AUDIO_FORMAT: Final = 2

#: Bytes of a message, by its type, from its first bytes; 0 if there are too few.
_Size = Callable[[bytes | bytearray], int]


def _number(data: bytes | bytearray, at: int, size: int) -> int | None:
    return int.from_bytes(data[at : at + size]) if len(data) >= at + size else None


def _fixed(size: int) -> _Size:
    return lambda _data: size


def _counted(at: int, size: int, unit: int, head: int) -> _Size:
    """Return the size of a message with a count of units at a place in its head."""

    def of(data: bytes | bytearray) -> int:
        count = _number(data, at, size)
        return 0 if count is None else head + count * unit

    return of


def _text(data: bytes | bytearray) -> int:
    length = _number(data, 4, 4)
    # A negative length is that of the extended clipboard.
    return 0 if length is None else 8 + min(length, 2**32 - length)


def _qemu(data: bytes | bytearray) -> int:
    if len(data) < 4:
        return 0
    if data[1] != _QEMU_AUDIO:
        return 12
    return 10 if _number(data, 2, 2) == _AUDIO_FORMAT else 4


#: Type of a message -> its size, and whether a watcher may send it.
_MESSAGES: Final[Mapping[int, tuple[_Size, bool]]] = {
    0: (_fixed(20), True),  # SetPixelFormat
    2: (_counted(2, 2, 4, 4), True),  # SetEncodings
    3: (_fixed(10), True),  # FramebufferUpdateRequest
    4: (_fixed(8), False),  # KeyEvent
    5: (_fixed(6), False),  # PointerEvent
    6: (_text, False),  # ClientCutText
    150: (_fixed(10), True),  # EnableContinuousUpdates
    248: (_counted(8, 1, 1, 9), True),  # ClientFence
    250: (_fixed(4), False),  # xvp: power
    251: (_counted(6, 1, 16, 8), False),  # SetDesktopSize
    _QEMU: (_qemu, False),  # keys, audio
}


class ReadOnly:
    """Passes on what a viewer sends, but for what would change something."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._steps = [self._version, self._authentication]

    def feed(self, data: bytes) -> bytes:
        """Return what is passed on of the next bytes.

        Raises:
            Malformed: a message is unknown or too long, or the viewer wants a kind of
                authentication after which nobody else can read what it sends.
        """
        self._buffer += data
        passed = bytearray()
        while True:
            step = self._steps[0] if self._steps else self._message
            taken = step()
            if taken is None:
                return bytes(passed)
            passed += taken

    def _cut(self, size: int) -> bytes | None:
        """Take bytes from the buffer; None if there are too few."""
        if len(self._buffer) < size:
            return None
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    def _version(self) -> bytes | None:
        version = self._cut(_VERSION)
        if version is not None:
            if version not in _VERSIONS:
                raise Malformed("watching needs a viewer with RFB 3.7 or 3.8")
            self._steps.pop(0)
        return version

    def _authentication(self) -> bytes | None:
        chosen = self._cut(1)
        if chosen is not None:
            if chosen[0] not in _PROOFS:
                raise Malformed(
                    "a display with encryption of its own cannot be watched, only"
                    " taken over"
                )
            proof = _PROOFS[chosen[0]]
            self._steps = [lambda: self._proof(proof), self._init]
        return chosen

    def _proof(self, size: int) -> bytes | None:
        proof = self._cut(size)
        if proof is not None:
            self._steps.pop(0)
        return proof

    def _init(self) -> bytes | None:
        if self._cut(1) is None:
            return None
        self._steps.pop(0)
        return _SHARED

    def _message(self) -> bytes | None:
        if not self._buffer:
            return None
        known = _MESSAGES.get(self._buffer[0])
        if known is None:
            raise Malformed(f"a watcher sends an unknown message {self._buffer[0]}")
        size_of, is_passed = known
        size = size_of(self._buffer)
        if size > _LONGEST:
            raise Malformed(f"a watcher sends a message of {size} bytes")
        whole = self._cut(size) if size else None
        return whole if is_passed or whole is None else b""
