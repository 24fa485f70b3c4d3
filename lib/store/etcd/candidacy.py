"""Waiting for the leadership: how a candidate becomes master when the lease ends.

Nothing is decided here. The servers end the lease of a silent master; of the candidates
that see that, one writes the leader's key, and the others wait again.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from ganeti.base import clock as clock_module
from ganeti.base import errors
from ganeti.store.etcd import messages
from ganeti.store.etcd.address import Servers
from ganeti.store.etcd.gateway import CompactedError, Gateway
from ganeti.store.etcd.reader import Reader

_log = logging.getLogger(__name__)

#: Seconds of one watch: a server that is frozen sends nothing, and is left then. This
#: adds to the time of a takeover if that server fails together with the master.
WATCH_S: Final = 2.0
#: Seconds between attempts while no server answers.
RETRY_S: Final = 0.5
_Opened = TypeVar("_Opened")


class Candidacy:
    """Waits on behalf of one node; for one thread."""

    def __init__(self, servers: Servers, node: str, clock: clock_module.Clock) -> None:
        """Remember the servers; nothing is sent yet.

        Args:
            servers: of the store.
            node: uuid of this node.
            clock: paces attempts.
        """
        self._gateway = Gateway(servers)
        self._reader = Reader(self._gateway)
        self._node = node
        self._clock = clock

    def take_over(
        self, begin: Callable[[], _Opened], stop: threading.Event
    ) -> _Opened | None:
        """Wait until no other node leads, then begin; return what ``begin`` returned.

        Args:
            begin: opens the store for writing, such as `open_etcd`. A TermError means
                that another candidate was faster; then this waits again.
            stop: ends the wait.

        Returns:
            None if the wait was ended.

        Raises:
            ConfigurationError: the store is damaged, was moved to a file, or needs a
                newer release.
        """
        while self.wait(stop):
            try:
                return begin()
            except errors.TermError as err:
                _log.info("another candidate was faster: %s", err)
            except errors.StorageError as err:
                _log.warning("the leadership is free, but cannot be taken: %s", err)
                self._clock.wait(stop, RETRY_S)
        return None

    def wait(self, stop: threading.Event) -> bool:
        """Wait until no other node leads; return false if the wait was ended.

        Raises:
            ConfigurationError: the store is damaged.
        """
        while not stop.is_set():
            try:
                now = self._reader.look()
            except errors.StorageError as err:
                _log.warning("the leader is not known: %s", err)
                self._clock.wait(stop, RETRY_S)
                continue
            if now.leading is None or now.leading.owner == self._node:
                return True
            self._watch(now.at + 1, stop)
        return False

    def close(self) -> None:
        """Close idle connections."""
        self._gateway.close()

    def _watch(self, start: int, stop: threading.Event) -> None:
        """Wait for a change of the leader's key, at most for the time of one watch."""

        def take(_events: list[messages.Event]) -> bool:
            return False

        try:
            self._gateway.watch(
                self._reader.keys.leader,
                start,
                take,
                timeout_s=WATCH_S,
                is_wanted=lambda: not stop.is_set(),
            )
        except (CompactedError, errors.StorageError) as err:
            # Usually the end of the time. The next look says whether servers answer.
            _log.debug("watch: %s", err)
