"""Stores without a disk.

`open_memory` gives the real engine over a backend in memory. It passes the same
contract tests as the sqlite engine, see ``unit/store/test_contract.py``: it calls
``done`` from its own thread, and durable state follows a moment after `commit_soon`;
``commit([])`` waits until all that was asked for is durable. Close it at the end of
the test. `FakeStore` is durable at once and has no thread; `StepStore` remembers the
state after every single commit. `write` makes the file of a node's store.
"""

import contextlib
import queue
import threading

from ganeti import store
from ganeti.base.clock import SystemClock
from ganeti.model.objects import TABLES, Snapshot, Update
from ganeti.store.memory import MemoryBackend, open_memory

__all__ = [
    "FakeStore",
    "MemoryBackend",
    "StepStore",
    "backend_with",
    "open_memory",
    "updates",
    "write",
]


def updates(snapshot):
    """Return the changes that write all records of a snapshot."""
    return [
        Update(table, key, record)
        for table in TABLES
        for key, record in snapshot.table(table).items()
    ]


def write(paths, snapshot):
    """Write the store of a node, with all records of a snapshot."""
    clock = SystemClock()
    db = store.open_master(paths.store_db, replicate=None, clock=clock, node="x")
    db.commit(updates(snapshot))
    db.close()


class FakeStore:
    """Snapshot and documents; changes of a body that fails are dropped."""

    def __init__(self, start, term=1):
        self.term = term
        self._snapshot = start
        self.documents = {}

    def snapshot(self):
        return self._snapshot

    @contextlib.contextmanager
    def writing(self):
        batch = FakeBatch(self._snapshot)
        yield batch
        self._take(batch.changes, batch.snapshot)

    def commit(self, changes):
        updates = [change for change in changes if isinstance(change, Update)]
        after = self._snapshot.apply(updates) if updates else self._snapshot
        self._take(changes, after)
        return self._snapshot.revision

    def commit_soon(self, changes, done=None, *, wait_s=0.0):
        revision = self.commit(changes)
        if done:
            done(revision, None)

    def may_use(self, _feature):
        return True

    def release_copy(self, _node, _seconds):
        return True

    def read(self, table, key):
        return self.documents.get((table, key))

    def scan(self, table, prefix=""):
        for (name, key), data in sorted(self.documents.items()):
            if name == table and key.startswith(prefix) and data is not None:
                yield key, data

    def close(self):
        pass

    def _take(self, changes, snapshot):
        for change in changes:
            if not isinstance(change, Update):
                self.documents[change.table, change.key] = change.data
        self._snapshot = snapshot


class FakeBatch:
    """Changes under way."""

    def __init__(self, start):
        self.snapshot = start
        self.changes = []

    def put(self, *changes):
        self.changes.extend(changes)
        updates = [change for change in changes if isinstance(change, Update)]
        self.snapshot = self.snapshot.apply(updates)


class StepStore:
    """Commits one request at a time in its own thread, and remembers each state.

    ``states[n]`` holds all documents after ``n`` commits; ``answered`` gets what a
    test wants to relate to them: `mark` notes it with the number of commits so far.
    """

    def __init__(self):
        self.states = [{}]
        self.marks = []
        self._todo = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def snapshot(self):
        return Snapshot()

    def may_use(self, _feature):
        return True

    def read(self, table, key):
        return self.states[-1].get((table, key))

    def scan(self, table, prefix=""):
        return iter(
            sorted(
                (key, data)
                for (where, key), data in self.states[-1].items()
                if where == table and key.startswith(prefix)
            )
        )

    def commit_soon(self, changes, done=None, *, wait_s=0.0):
        self._todo.put((list(changes), done))

    def mark(self, what):
        self.marks.append((len(self.states) - 1, what))

    def _run(self):
        while (item := self._todo.get()) is not None:
            changes, done = item
            state = dict(self.states[-1])
            for table, key, data in changes:
                if data is None:
                    state.pop((table, key), None)
                else:
                    state[table, key] = data
            self.states.append(state)
            if done is not None:
                done(len(self.states), None)

    def close(self):
        self._todo.put(None)
        self._thread.join()


def backend_with(state):
    """Return a backend that holds the documents of one state."""
    backend = MemoryBackend()
    store = open_memory(backend)
    store.commit([(table, key, data) for (table, key), data in state.items()])
    store.close()
    return backend
