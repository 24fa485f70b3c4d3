"""Snapshots and the key of a confd server: the store of this node, followed.

A commit of the writer touches the log of the store's file, which inotify reports. The
commit becomes visible only after the writer has synchronized the log. That moment is
not reported, so requests after a notification look again, at growing intervals.

Without requests, a notification only begins an interval. One look at its end takes over
all commits until then: a stream of them costs one look per second, not several each.
"""

import logging
import os
import select
from typing import Final

from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.base.constants.protocols import confd
from ganeti.base.filesystem import files, filewatch
from ganeti.base.pathutils import Paths
from ganeti.daemons.confd.answers import Projection
from ganeti.model.objects import Cluster, Snapshot, Update
from ganeti.protocols.confd import wire
from ganeti.store.copies.follower import Follower, News

#: Seconds.
_CONFD_CONFIG_RELOAD_TIMEOUT: Final = 17

_log = logging.getLogger(__name__)

#: Share of the time since the latest notification until a request looks again: a change
#: is delayed by at most this share of the time that its writer took.
_SHARE: Final = 0.05
#: Seconds from a notification to the look at what has changed, without requests.
_COALESCE_S: Final = 1.0
#: Most seconds between looks, without requests and notifications.
_SAFETY_S: Final = float(_CONFD_CONFIG_RELOAD_TIMEOUT)
_NEVER: Final = float("inf")
#: Longest key file in bytes; the key has 41.
_MAX_KEY_BYTES: Final = 4096
#: First bytes of accepted requests by setting of the cluster.
MAGICS: Final = {
    "sha1": frozenset({wire.MAGIC_SHA1}),
    "both": frozenset({wire.MAGIC_SHA1, wire.MAGIC_SHA256}),
    "sha256": frozenset({wire.MAGIC_SHA256}),
}


def read_key(paths: Paths) -> bytes:
    """Return the key of confd: the whole content of its file, the newline included.

    Raises:
        ConfigurationError: the file is missing, empty, too long or cannot be read.
    """
    path = paths.hmac_key
    try:
        key = files.read_file(path)
    except FileNotFoundError as err:
        raise errors.ConfigurationError(
            f"{path}: no key of confd; is this node part of a cluster?"
        ) from err
    except OSError as err:
        raise errors.ConfigurationError(f"{path}: {err.strerror}") from err
    if not key or len(key) > _MAX_KEY_BYTES:
        raise errors.ConfigurationError(
            f"{path}: wanted a key of 1 to {_MAX_KEY_BYTES} bytes, found {len(key)}"
        )
    return key


class StoreSource:
    """Follows the store and the key of this node; see `server.Source`."""

    def __init__(self, paths: Paths, clock: Clock, hmac: str | None = None) -> None:
        """Read the key and watch the state directory.

        Args:
            paths: of this node.
            clock: paces looks.
            hmac: a key of `MAGICS`; None for the setting of the cluster.

        Raises:
            ConfigurationError: there is no key.
            InotifyError: the state directory cannot be watched.
        """
        self._paths = paths
        self._clock = clock
        self._hmac = hmac
        self._detects_replays = False
        self._magics = MAGICS[hmac or confd.CONFD_HMAC_SHA1]
        self._watch = filewatch.DirectoryWatch(paths.data_dir)
        # Readable while there are notifications, except when these are muted.
        self._notices = select.epoll()
        self._notices.register(self._watch.fileno(), select.EPOLLIN)
        self._muted_until = _NEVER
        self._key = read_key(paths)
        self._signers = wire.Signers(self._key, self._magics)
        self._follower: Follower | None = None
        self._shown = ""
        self._noticed_at = self._due_at = self._look_at = clock.monotonic()

    def fileno(self) -> int:
        """Return the descriptor of the notifications."""
        return self._notices.fileno()

    def notice(self) -> None:
        """Begin the interval after a notification, in which further ones are muted."""
        self._notices.modify(self._watch.fileno(), 0)
        self._muted_until = self._clock.monotonic() + _COALESCE_S
        self._look_at = min(self._look_at, self._muted_until)

    def signers(self) -> wire.Signers:
        """Return the signing functions of the present key."""
        return self._signers

    def detects_replays(self) -> bool:
        """Return whether the cluster wants each request to be answered only once."""
        return self._detects_replays

    def is_due(self) -> bool:
        """Return whether a request must look for changes before it is answered."""
        return self._watch.has_news() or self._clock.monotonic() >= self._due_at

    def next_look_s(self) -> float:
        """Return after how many seconds to look without requests; 0 if it is time."""
        return max(0.0, self._look_at - self._clock.monotonic())

    def update(self, projection: Projection) -> bool:
        """Bring a projection up to date; return whether the store has changed."""
        now = self._clock.monotonic()
        names = self._watch.take()
        store = os.path.basename(self._paths.store_db)
        if any(name == "" or name.startswith(store) for name in names):
            self._noticed_at = now
        if now >= self._muted_until:
            self._notices.modify(self._watch.fileno(), select.EPOLLIN)
            self._muted_until = _NEVER
        age_s = now - self._noticed_at
        self._due_at = now + age_s * _SHARE
        interval_s = min(max(age_s, _COALESCE_S), _SAFETY_S)
        self._look_at = min(now + interval_s, self._muted_until)
        if names & {"", os.path.basename(self._paths.hmac_key)}:
            self._read_key()
        try:
            return self._follow(projection)
        except errors.StorageError as err:
            self._show(f"cannot read the store, which stays as it was: {err}")
            return False
        except errors.ConfigurationError as err:
            self._close()
            self._show(f"disabled, this node has no configuration: {err}")
            was_enabled = projection.is_enabled
            projection.advance(None)
            return was_enabled

    def _follow(self, projection: Projection) -> bool:
        if self._follower is None:
            self._follower = Follower(self._paths.store_db)
            news = News([], True)
        else:
            news = self._follower.poll()
        if news.is_empty:
            return False
        snapshot = self._follower.snapshot()
        _require_cluster(snapshot, self._paths.store_db)
        if self._follower.is_below_replaced():
            # A client that asked before must not see an older revision.
            self._show(
                f"silent at revision {snapshot.revision}: a history that was replaced"
                " here went further, and the master leaves its revisions out"
            )
            was_enabled = projection.is_enabled
            projection.advance(None)
            return was_enabled
        changes = [change for group in news.change_sets for change in group.changes]
        updates = [change for change in changes if isinstance(change, Update)]
        projection.advance(snapshot, None if news.is_reload else updates)
        self._apply(snapshot.cluster)
        self._show("enabled")
        return True

    def _apply(self, cluster: Cluster) -> None:
        """Take over the settings of the cluster."""
        self._detects_replays = cluster.confd_detect_replays
        magics = MAGICS.get(self._hmac or cluster.confd_hmac, self._magics)
        if magics != self._magics:
            self._magics = magics
            self._signers = wire.Signers(self._key, magics)
            _log.info("accepted signatures: %s", cluster.confd_hmac)

    def _show(self, text: str) -> None:
        """Log a state once."""
        if text != self._shown:
            _log.info("%s", text)
            self._shown = text

    def _read_key(self) -> None:
        try:
            key = read_key(self._paths)
        except errors.ConfigurationError as err:
            _log.warning("the key stays as it was: %s", err)
            return
        if key != self._key:
            _log.info("the key has changed")
            self._key, self._signers = key, wire.Signers(key, self._magics)

    def _close(self) -> None:
        if self._follower is not None:
            self._follower.close()
            self._follower = None

    def close(self) -> None:
        """Close the store and the watch."""
        self._close()
        self._notices.close()
        self._watch.close()


def _require_cluster(snapshot: Snapshot, path: str) -> None:
    """Check that a copy is complete: a new one is empty until the master has sent it.

    Raises:
        ConfigurationError: it has no cluster.
    """
    if not snapshot.table("cluster"):
        raise errors.ConfigurationError(f"{path}: the copy is still empty")
