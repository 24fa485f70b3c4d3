"""The lease of the leader: held by a master, waited for by the other candidates.

The servers remove the key of the leader when the lease ends. The master counts from the
moment at which it last *asked* for a prolongation that was granted, so it knows no
later than the servers that its lease is over. Of the candidates that see it removed,
one writes it again, and the others wait on. Nothing is decided here.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final, TypeVar

from ganeti.base import clock as clock_module
from ganeti.base import errors
from ganeti.store.backend import OutcomeUnknownError
from ganeti.store.etcd import messages
from ganeti.store.etcd.address import Servers
from ganeti.store.etcd.gateway import CompactedError, Gateway
from ganeti.store.etcd.reader import Reader

_log = logging.getLogger(__name__)

#: Seconds after which the lease of a silent master ends. Another candidate takes over
#: then, and must have its first job accepted within 10 seconds.
TTL_S: Final = 5
#: Prolongations during that time.
_ASKED: Final = 4
#: Seconds of one watch: a server that is frozen sends nothing, and is left then. This
#: adds to the time of a takeover if that server fails together with the master.
WATCH_S: Final = 2.0
#: Seconds between attempts while no server answers.
RETRY_S: Final = 0.5
_Opened = TypeVar("_Opened")


class LeaseKeeper:
    """Holds one lease from `start` to `stop`, by a thread; thread-safe."""

    def __init__(
        self,
        gateway: Gateway,
        clock: clock_module.Clock,
        on_lost: Callable[[], None],
        ttl_s: int = TTL_S,
        is_leading: Callable[[], bool] = lambda: True,
    ) -> None:
        """Prepare a lease.

        Args:
            gateway: to the servers.
            clock: measures the time that is left.
            on_lost: called once, from the keeper's thread, when the lease is over.
            ttl_s: seconds that the lease lasts without prolongation.
            is_leading: asked after each prolongation; false if another master has taken
                the leadership, which ends it as well.
        """
        self._gateway = gateway
        self._clock = clock
        self._on_lost = on_lost
        self._ttl_s = ttl_s
        self._is_leading = is_leading
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._until = 0.0
        self.number = 0

    @property
    def is_held(self) -> bool:
        """Whether the lease has time left."""
        return bool(self.number) and self._clock.monotonic() < self._until

    def start(self) -> int:
        """Get the lease and begin to prolong it; return its number.

        Raises:
            StorageError: the servers do not grant it.
        """
        asked = self._clock.monotonic()
        body = {"TTL": self._ttl_s}
        lease = self._gateway.fetch("lease/grant", body, messages.Lease)
        if not lease.ID:
            raise errors.StorageError(f"{self._gateway.servers}: no lease was granted")
        # The servers raise a time that is too short for them.
        self._ttl_s = min(self._ttl_s, lease.TTL)
        self._until = asked + self._ttl_s
        self.number = lease.ID
        self._thread = threading.Thread(
            target=self._keep, name="store-lease", daemon=True
        )
        self._thread.start()
        return self.number

    def stop(self, *, gives_back: bool = True) -> None:
        """Prolong the lease no more.

        Args:
            gives_back: end it at once, so that another candidate need not wait.
        """
        if self._stop.is_set() or self._thread is None:
            return
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join()
        if not gives_back:
            self._until = 0.0
            return
        try:
            self._gateway.call(
                "lease/revoke",
                {"ID": self.number},
                messages.TxnAnswer,
                timeout_s=self._ttl_s / _ASKED,
            )
        except (errors.StorageError, OutcomeUnknownError) as err:
            _log.warning("the lease ends by itself in %d s: %s", self._ttl_s, err)
        self._until = 0.0

    def _keep(self) -> None:
        while not self._clock.wait(self._stop, self._ttl_s / _ASKED):
            asked = self._clock.monotonic()
            is_over = False
            try:
                kept = self._gateway.call(
                    "lease/keepalive",
                    {"ID": self.number},
                    messages.KeptLease,
                    timeout_s=self._ttl_s / _ASKED,
                )
            except (errors.StorageError, OutcomeUnknownError) as err:
                _log.warning("the lease was not prolonged: %s", err)
            else:
                is_over = kept.result.TTL <= 0 or not self._is_leading()
                self._until = asked + self._ttl_s if not is_over else self._until
            if is_over or self._clock.monotonic() >= self._until:
                self._until = 0.0
                if not self._stop.is_set():
                    _log.critical("the lease of this master is over")
                    self._on_lost()
                return


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
