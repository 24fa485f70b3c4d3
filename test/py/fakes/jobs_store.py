"""A store for the queue that keeps the state after every single commit."""

import queue
import threading

from ganeti.objects import Snapshot
from ganeti.store.memory import MemoryBackend, open_memory


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

    def commit_soon(self, changes, done=None):
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
