"""Distribution of ssconf files to all nodes after changes of the configuration.

One thread follows the store and selects the relevant changes; another one writes to
the nodes, so a slow node delays neither commits nor the first thread. There is one push
at a time, of the newest values. A node gets the files that differ from those it has
acknowledged. Jobs that need a file at once write it themselves; the distributor writes
the same files again behind them, since theirs may be older. Changes of the list of
instances, of which a busy cluster has many per second, are sent together, after pauses
that become longer while changes go on, see `PAUSES_S`; all others are sent at once.
Failed nodes are tried again. When there is nothing to write, master candidates are
pinged every `RETRY_S` seconds, so a suspended master notices that it was replaced.
"""

import enum
import logging
import queue
import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.model.objects import CLUSTER_KEY, Cluster, Instance, Node, Snapshot, Update
from ganeti.protocols import rpc
from ganeti.protocols.rpc import calls
from ganeti.store import Change, Store

_log = logging.getLogger(__name__)

#: Seconds between pings, and longest time until failed nodes are tried again.
RETRY_S: Final = 30.0
#: Seconds until the first retry, in case a daemon was just restarted; doubled each
#: time.
FIRST_RETRY_S: Final = 1.0
#: Least seconds between the last push and one of nothing but `_PACED` files, in a run
#: of changes: the first one of a run is mostly sent at once. A push to 60 nodes takes
#: 20 to 40 ms of processor time, as much as the rest of a creation.
PAUSES_S: Final = (1.0, 1.0, 2.0, 4.0, 8.0)
#: Seconds without a change that end a run of changes.
QUIET_S: Final = 1.0
#: Files that no decision about the cluster depends on.
_PACED: Final = frozenset({"instance_list"})
_PING_TIMEOUT_S: Final = 10.0
#: Fields of the cluster record that removals and ports of instances change.
_COUNTERS: Final = ("serial_no", "mtime", "highest_used_port", "tcpudp_port_pool")
#: Tables whose changes may affect ssconf files; of instances, only the names.
_TABLES: Final = frozenset({"cluster", "nodes", "nodegroups", "networks"})

Values = dict[str, str]


class Files(enum.IntEnum):
    """The files that changes may affect."""

    NONE = 0
    #: Those in `_PACED`.
    INSTANCES = 1
    ANY = 2


def affected(before: Snapshot, changes: Iterable[Change]) -> Files:
    """Return the ssconf files that changes may affect; costs only what changed."""
    actual = Files.NONE
    for change in changes:
        if not isinstance(change, Update):
            continue
        if change.table == "instances":
            old = before.instances.get(change.key)
            new = change.record
            names = [row.name for row in (old, new) if isinstance(row, Instance)]
            if len(names) != 2 or names[0] != names[1]:
                actual = max(actual, Files.INSTANCES)
        elif change.table in _TABLES and not _only_counts(before, change):
            return Files.ANY
    return actual


def _only_counts(before: Snapshot, change: Update) -> bool:
    """Return whether only serial, time or ports of the cluster record change."""
    old: Any = before.table(change.table).get(change.key)
    new = change.record
    if not isinstance(old, Cluster) or not isinstance(new, Cluster):
        return False
    return new == old.replace(**{name: getattr(new, name) for name in _COUNTERS})


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


class Pace:
    """When files in `_PACED` may be pushed; all times are monotonic seconds."""

    def __init__(self) -> None:
        self._pushed_at = self._changed_at = float("-inf")
        #: Pushes of nothing but such files in this run of changes.
        self._count = 0

    def changed(self, now: float) -> None:
        """Note a change of such a file."""
        if now - self._changed_at > QUIET_S:
            self._count = 0
        self._changed_at = now

    def due(self) -> float:
        """Return the time of the next push of nothing but such files."""
        return self._pushed_at + PAUSES_S[min(self._count, len(PAUSES_S) - 1)]

    def pushed(self, now: float, *, is_paced: bool) -> None:
        """Note a push, which was of nothing but such files or of any."""
        self._pushed_at = now
        self._count += is_paced


class _Sent(NamedTuple):
    """The acknowledged files of a node, and its record at that time."""

    node: Node
    values: Values


class _Push(NamedTuple):
    """Files for nodes: those that change, all that they have then, the nodes."""

    values: Values
    result: Values
    nodes: list[Node]


class Distributor:
    """The follower of the store; see the module."""

    def __init__(
        self,
        store: Store,
        runner: rpc.Runner,
        values: Callable[[Snapshot], Values],
        *,
        wake_queue: Callable[[], None],
        on_refusal: Callable[[Sequence[str]], None],
        clock: Clock,
        retry_s: float = RETRY_S,
    ) -> None:
        """Prepare; `start` starts the threads.

        Args:
            store: the store to follow; closing the store ends the first thread.
            runner: calls the nodes.
            values: returns all file contents by name; called by one thread.
            wake_queue: called when other jobs may be able to start.
            on_refusal: called with the nodes that do not accept the certificate of this
                master; they are tried again after that.
            clock: measures the time between pushes.
            retry_s: longest time until failed nodes are tried again.
        """
        self._store = store
        self._rpc = runner
        self._values = values
        self._wake_queue = wake_queue
        self._on_refusal = on_refusal
        self._clock = clock
        self._retry_s = retry_s
        #: None to stop.
        self._news: queue.SimpleQueue[Files | None] = queue.SimpleQueue()
        self._sent: dict[str, _Sent] = {}
        #: Nodes, and keys of files, that others have written since the last push.
        self._foreign: queue.SimpleQueue[tuple[Collection[str], Collection[str]]] = (
            queue.SimpleQueue()
        )
        #: Nodes whose last write failed.
        self._failing: set[str] = set()
        self._pace = Pace()
        self._threads = [
            threading.Thread(target=run, name=name, daemon=True)
            for run, name in (
                (self._follow, "ssconf-follow"),
                (self._write, "ssconf-write"),
            )
        ]

    def start(self) -> None:
        """Start the threads; every online node gets its files once."""
        self._news.put(Files.ANY)
        for thread in self._threads:
            thread.start()

    def write_again(self, nodes: Collection[str], keys: Collection[str]) -> None:
        """Write some files to some nodes again, which others have written."""
        self._foreign.put((nodes, keys))
        self._news.put(Files.ANY)

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
                self._news.put(Files.ANY)
                self._wake_queue()
                continue
            return

    def _notice(self, before: Snapshot, changes: Sequence[Change]) -> None:
        if wakes_queue(before, changes):
            self._wake_queue()
        if files := affected(before, changes):
            self._news.put(files)

    def _write(self) -> None:
        failed: set[str] = set()
        news, wait_s = Files.NONE, self._retry_s
        while True:
            try:
                if not (more := self._take_news(wait_s)):
                    return
                if more is Files.INSTANCES:
                    self._pace.changed(self._clock.monotonic())
                news = max(news, more)
            except queue.Empty:
                if not (news or failed):
                    self._ping(self._store.snapshot())
                    continue
                if not news:
                    _log.info("ssconf: trying %d nodes again", len(failed))
            now = self._clock.monotonic()
            pause_s = self._pace.due() - now
            if news is Files.INSTANCES and pause_s > 0:
                wait_s = pause_s
                continue
            self._pace.pushed(now, is_paced=news is Files.INSTANCES)
            news = Files.NONE
            before, failed = failed, self._push()
            wait_s = self._next_wait(wait_s, before, failed)

    def _take_news(self, wait_s: float) -> Files | None:
        """Wait for news and return them, None at the end. Raises queue.Empty."""
        news = self._news.get(timeout=wait_s)
        while not self._news.empty() and news is not None:
            more = self._news.get()
            news = None if more is None else max(news, more)
        return news

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
                self._rpc.call_nodes(others, calls.version(), timeout_s=_PING_TIMEOUT_S)
        except Exception:  # noqa: BLE001 - logged
            _log.exception("master candidates cannot be pinged")

    def _push(self) -> set[str]:
        """Write to online nodes the files that they lack; return the failed ones."""
        while not self._foreign.empty():
            self._forget(*self._foreign.get())
        snapshot = self._store.snapshot()
        failed = set()
        try:
            for push in self._find_differences(snapshot):
                failed |= self._write_to(push)
        except Exception:  # noqa: BLE001 - logged
            _log.exception("ssconf: writing to nodes failed")
            return {"all"}
        return failed

    def _forget(self, nodes: Collection[str], keys: Collection[str]) -> None:
        # Nodes that were written together go on to share one object.
        before, kept = dict(self._sent), dict[int, Values]()
        for uuid in before.keys() & set(nodes):
            sent = before[uuid]
            values = kept.setdefault(
                id(sent.values),
                {k: v for k, v in sent.values.items() if k not in keys},
            )
            self._sent[uuid] = sent._replace(values=values)

    def _find_differences(self, snapshot: Snapshot) -> list[_Push]:
        """Return the files that nodes lack; those with the same files get one call.

        A node whose record has changed may have been installed again: it gets all.
        """
        values = self._values(snapshot)
        online = {n.uuid: n for n in snapshot.nodes.values() if not n.offline}
        # An offline or removed node gets its files when it is online again.
        self._sent = {
            uuid: sent
            for uuid, sent in self._sent.items()
            if online.get(uuid) is sent.node
        }
        self._failing &= online.keys()
        nothing: Values = {}
        pushes: dict[int, _Push] = {}
        for uuid, node in online.items():
            old = self._sent[uuid].values if uuid in self._sent else nothing
            # Nodes that were written together share one object.
            push = pushes.get(id(old))
            if push is None:
                changed = {k: v for k, v in values.items() if old.get(k) != v}
                push = pushes[id(old)] = _Push(changed, values, [])
            push.nodes.append(node)
        return [push for push in pushes.values() if push.values]

    def _write_to(self, push: _Push) -> set[str]:
        failed = set()
        nodes = {node.uuid: node for node in push.nodes}
        answers = self._rpc.call_nodes(
            list(nodes), calls.write_ssconf_files(push.values)
        )
        for uuid, answer in answers.items():
            if answer.failed:
                # A node that is away would be a line for each commit.
                if uuid not in self._failing:
                    _log.warning(
                        "ssconf: node %s: %s; no further line until it has them",
                        *(answer.node, answer.fail_msg),
                    )
                self._failing.add(uuid)
                self._sent.pop(uuid, None)
                failed.add(uuid)
            else:
                self._failing.discard(uuid)
                self._sent[uuid] = _Sent(nodes[uuid], push.result)
        if refused := [uuid for uuid, answer in answers.items() if answer.refused]:
            self._on_refusal(refused)
        return failed
