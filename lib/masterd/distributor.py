"""Distribution of ssconf files to all nodes after changes of the configuration.

One thread follows the store and selects the relevant changes; another one writes to the
nodes, so a slow node delays neither commits nor the first thread. Changes in quick
succession are sent together, and failed nodes are tried again. When there is nothing to
write, master candidates are pinged every `RETRY_S` seconds, so a suspended master
notices that it was replaced.
"""

import logging
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from ganeti import errors, rpc
from ganeti.objects import CLUSTER_KEY, Instance, Snapshot, Update
from ganeti.store import Change, Store

_log = logging.getLogger(__name__)

#: Seconds between pings, and longest time until failed nodes are tried again.
RETRY_S: Final = 30.0
#: Seconds until the first retry, in case a daemon was just restarted; doubled each
#: time.
FIRST_RETRY_S: Final = 1.0
_PROCEDURE: Final = "write_ssconf_files"
#: Every call carries the term; this one does nothing else.
_PING: Final = "version"
_PING_TIMEOUT_S: Final = 10.0
#: Tables whose changes may affect ssconf files; of instances, only the names.
_TABLES: Final = frozenset({"cluster", "nodes", "nodegroups", "networks"})

Values = dict[str, str]


def matters(before: Snapshot, changes: Iterable[Change]) -> bool:
    """Return whether changes may affect ssconf files; costs only what changed."""
    for change in changes:
        if not isinstance(change, Update):
            continue
        if change.table in _TABLES:
            return True
        if change.table == "instances":
            old = before.instances.get(change.key)
            new = change.record
            names = [row.name for row in (old, new) if isinstance(row, Instance)]
            if len(names) != 2 or names[0] != names[1]:
                return True
    return False


def wakes_queue(before: Snapshot, changes: Iterable[Change]) -> bool:
    """Return whether changes may allow other jobs to start."""
    for change in changes:
        if not isinstance(change, Update):
            continue
        if change.table == "filters":
            return True
        if change.table == "cluster":
            old: Any = before.table("cluster").get(CLUSTER_KEY)
            new: Any = change.record
            if old is None or new is None:
                return True
            if old.max_running_jobs != new.max_running_jobs:
                return True
    return False


class Distributor:
    """The follower of the store; see the module."""

    def __init__(
        self,
        store: Store,
        runner: rpc.Runner,
        values: Callable[[Snapshot], Values],
        *,
        wake_queue: Callable[[], None],
        retry_s: float = RETRY_S,
    ) -> None:
        """Prepare; `start` starts the threads.

        Args:
            store: the store to follow; closing the store ends the first thread.
            runner: calls the nodes.
            values: returns file contents by name.
            wake_queue: called when other jobs may be able to start.
            retry_s: longest time until failed nodes are tried again.
        """
        self._store = store
        self._rpc = runner
        self._values = values
        self._wake_queue = wake_queue
        self._retry_s = retry_s
        self._news: queue.SimpleQueue[Snapshot | None] = queue.SimpleQueue()
        self._sent: dict[str, Values] = {}
        self._threads = [
            threading.Thread(target=run, name=name, daemon=True)
            for run, name in (
                (self._follow, "ssconf-follow"),
                (self._write, "ssconf-write"),
            )
        ]

    def start(self) -> None:
        """Start the threads; every online node gets its files once."""
        self._news.put(self._store.snapshot())
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Wait for the threads to end; the store must be closed."""
        self._news.put(None)
        for thread in self._threads:
            thread.join()

    def _follow(self) -> None:
        before = self._store.snapshot()
        while True:
            try:
                for change_set in self._store.follow(before.revision):
                    self._notice(before, change_set.changes)
                    updates = [
                        item for item in change_set.changes if isinstance(item, Update)
                    ]
                    before = before.apply(updates, revision=change_set.revision)
            except errors.StorageError:
                # The store keeps only recent changes, so consider everything changed.
                _log.info(
                    "ssconf: missed changes of the configuration, writing all files"
                )
                before = self._store.snapshot()
                self._news.put(before)
                self._wake_queue()
                continue
            return

    def _notice(self, before: Snapshot, changes: Sequence[Change]) -> None:
        if wakes_queue(before, changes):
            self._wake_queue()
        if matters(before, changes):
            self._news.put(self._store.snapshot())

    def _write(self) -> None:
        failed: set[str] = set()
        snapshot: Snapshot | None = None
        wait_s = self._retry_s
        while True:
            try:
                news = self._news.get(timeout=wait_s)
                while not self._news.empty() and news is not None:
                    news = self._news.get()
                if news is None:
                    return
                snapshot = news
            except queue.Empty:
                if not failed:
                    self._ping(self._store.snapshot())
                    continue
                _log.info("ssconf: trying %d nodes again", len(failed))
            if snapshot is not None:
                before, failed = failed, self._push(snapshot)
                wait_s = self._next_wait(wait_s, before, failed)

    def _next_wait(self, last_s: float, before: set[str], failed: set[str]) -> float:
        """Return the seconds until failed nodes are tried again."""
        if not failed:
            return self._retry_s
        if failed - before:
            return min(FIRST_RETRY_S, self._retry_s)
        return min(2 * last_s, self._retry_s)

    def _ping(self, snapshot: Snapshot) -> None:
        """Send the master's term to the other master candidates; ignore the answers."""
        master = snapshot.cluster.master_node
        others = [
            node.uuid
            for node in snapshot.nodes.values()
            if node.master_candidate and not node.offline and node.uuid != master
        ]
        try:
            if others:
                self._rpc.call(_PING, others, timeout_s=_PING_TIMEOUT_S)
        except Exception:  # noqa: BLE001 - logged
            _log.exception("master candidates cannot be pinged")

    def _push(self, snapshot: Snapshot) -> set[str]:
        """Write to online nodes without the present values; return the failed ones."""
        try:
            values = self._values(snapshot)
            online = [node for node in snapshot.nodes.values() if not node.offline]
            wanting = [n.uuid for n in online if self._sent.get(n.uuid) != values]
            if not wanting:
                return set()
            answers = self._rpc.call(_PROCEDURE, wanting, [values])
        except Exception:  # noqa: BLE001 - logged
            _log.exception("ssconf: writing to nodes failed")
            return {"all"}
        failed = set()
        for uuid, answer in answers.items():
            if answer.failed:
                _log.warning("ssconf: node %s: %s", answer.node, answer.fail_msg)
                self._sent.pop(uuid, None)
                failed.add(uuid)
            else:
                self._sent[uuid] = values
        # An offline or removed node gets its files when it is online again.
        known = {node.uuid for node in online}
        self._sent = {uuid: sent for uuid, sent in self._sent.items() if uuid in known}
        return failed
