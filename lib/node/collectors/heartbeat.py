"""The process that writes the heartbeat of this node to shared storage.

`start` forks it before the daemon changes to its own user, since directories of disks
belong to root. Storage that hangs stops this process and nothing else: the daemon only
sends it settings, without waiting, and reads its state from a local file.
"""

import contextlib
import json
import os
import select
import signal
import socket
from collections.abc import Callable, Sequence
from typing import Final

from ganeti.base import clock, errors
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths
from ganeti.node.collectors import helper
from ganeti.node.storage import heartbeats
from ganeti.node.storage.heartbeats import PERIOD_S, Beat, State

_MAX_MESSAGE: Final = 4096
_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
#: Seconds after which a heartbeat is late.
_LATE_S: Final = 15.0
#: Longest error that is kept.
_MAX_ERROR: Final = 300


def problems(state: State | None, now: float) -> dict[str, str]:
    """Return what people should know, by subject.

    Args:
        state: of the process; None if it has none.
        now: seconds of the monotonic clock.
    """
    if state is None:
        return {}
    texts = {}
    for place, (when, error) in state.written.items():
        subject = f"in {place}" if place else "of this node"
        if error:
            texts[subject] = error
        elif now - when > _LATE_S:
            texts[subject] = "none was written for some time; the storage may hang"
    for name, text in state.problems.items():
        texts[f"of node {name}"] = f"it does not count: {text}"
    return texts


class Heartbeat:
    """The daemon's side."""

    def __init__(self, sock: socket.socket, on_end: Callable[[], None]) -> None:
        """Take the socket of `start`.

        Args:
            sock: to the process.
            on_end: called when the process has ended, which it never should.
        """
        self._sock = sock
        self._on_end = on_end
        sock.setblocking(False)

    def follow(self, kinds: Sequence[str]) -> None:
        """Say which kinds of shared storage get heartbeats; none ends them."""
        try:
            self._sock.send(json.dumps(list(kinds)).encode())
        except BlockingIOError:
            # It hangs, and has the same message many times.
            return
        except OSError:
            self._on_end()

    def close(self) -> None:
        """Let the process end; one that hangs ends later."""
        self._sock.close()


def start(paths: Paths) -> socket.socket:
    """Fork the process, and return the daemon's end of its socket.

    Call it while the daemon has one thread.
    """
    return helper.fork(lambda own: _live(paths, own))


def _live(paths: Paths, own: socket.socket) -> None:
    """Write heartbeats until the daemon has closed its end."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _serve(Heart(paths, clock.SystemClock()), own)


def _serve(heart: "Heart", sock: socket.socket) -> None:
    kinds: list[str] = []
    while True:
        ready, _, _ = select.select([sock], [], [], PERIOD_S if kinds else None)
        if ready:
            data = sock.recv(_MAX_MESSAGE)
            if not data:
                return
            before, kinds = kinds, json.loads(data)
            if kinds == before:
                continue
        if kinds:
            heart.beat(kinds)
        else:
            heart.rest()


class Heart:
    """The work of the process."""

    def __init__(self, paths: Paths, clock_: clock.Clock) -> None:
        self._paths = paths
        self._clock = clock_
        self._run = os.urandom(16).hex()
        self._count = 0
        self._written: dict[str, tuple[float, str]] = {}

    def rest(self) -> None:
        """Keep no state while there are no heartbeats."""
        self._written = {}
        heartbeats.remove_state(self._paths)

    def beat(self, kinds: Sequence[str]) -> None:
        """Write a heartbeat to each directory, and read those that are wanted."""
        self._count += 1
        try:
            key = heartbeats.cluster_key(self._paths)
            places = heartbeats.places(self._paths, kinds)
        except (errors.GenericError, OSError) as err:
            self._written = {"": (0.0, str(err)[:_MAX_ERROR])}
            places, key = [], b""
        else:
            self._written = {
                place: self._written.get(place, (0.0, "")) for place in places
            }
        names = heartbeats.wanted(self._paths, self._clock.monotonic())
        beats: dict[str, Beat] = {}
        problems: dict[str, str] = {}
        for place in places:
            try:
                with heartbeats.shelf(place) as shelf:
                    self._write(place, shelf, key)
                    for name in names:
                        self._look(shelf, key, name, beats, problems)
            except (errors.GenericError, OSError) as err:
                self._failed(place, err)
        state = State(
            written=self._written,
            looked=self._clock.monotonic() if names else 0.0,
            beats={name: (beat.run, beat.count) for name, beat in beats.items()},
            problems=problems,
        )
        with contextlib.suppress(OSError):
            heartbeats.write_state(self._paths, state)

    def _write(self, place: str, shelf: heartbeats.Shelf, key: bytes) -> None:
        """Write a heartbeat, or note why not: those of others count all the same."""
        try:
            shelf.write(self._paths.hostname, self._own(key))
        except OSError as err:
            self._failed(place, err)
        else:
            self._written[place] = self._clock.monotonic(), ""

    def _failed(self, place: str, err: Exception) -> None:
        when, _error = self._written[place]
        self._written[place] = when, str(err)[:_MAX_ERROR]

    def _own(self, key: bytes) -> bytes:
        boot = files.text_of(_BOOT_ID, files.MAX_PROC).strip()
        name, now = self._paths.hostname, self._clock.time()
        return heartbeats.sealed(Beat(name, boot, self._run, self._count, now), key)

    def _look(
        self,
        shelf: heartbeats.Shelf,
        key: bytes,
        name: str,
        beats: dict[str, Beat],
        problems: dict[str, str],
    ) -> None:
        """Read the heartbeat of another node, or note why it does not count."""
        try:
            data = shelf.read(name)
            beat = heartbeats.opened(data, key, node=name, now=self._clock.time())
        except FileNotFoundError:
            return
        except (errors.GenericError, OSError) as err:
            problems[name] = str(err)[:_MAX_ERROR]
            return
        beats[name] = heartbeats.newer(beats, beat)
