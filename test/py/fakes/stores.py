"""A store in memory that is durable at once."""

import contextlib

from ganeti.objects import Update


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
        self._take(changes, self._snapshot.apply(updates))
        return self._snapshot.revision

    def commit_soon(self, changes, done=None):
        revision = self.commit(changes)
        if done:
            done(revision, None)

    def read(self, table, key):
        return self.documents.get((table, key))

    def scan(self, table, prefix=""):
        for (name, key), data in sorted(self.documents.items()):
            if name == table and key.startswith(prefix):
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
