"""The queue's side of one opcode."""

import contextlib
import copy

from ganeti.master.jqueue.effects import Canceled, CarriedLog, Document


class FakeCallbacks:
    """Records what an executor reports."""

    def __init__(self, owner="1/0", resumption=None):
        self.owner = owner
        self.submitted_at = float("inf")
        self.resumption = resumption
        self.entries = []
        self.saved = 0
        self.submitted = []
        self.is_started = False
        self.is_start_durable = None
        self.is_canceled = False

    def check_canceled(self):
        if self.is_canceled:
            raise Canceled("canceled")

    def started(self, *, durable=True):
        self.check_canceled()
        self.is_started = True
        self.is_start_durable = durable

    def on_interrupt(self, call):
        self.interrupt = call

    def on_kill(self, call):
        self.kill = call

    def log(self, kind, payload):
        self.entries.append((kind, payload))

    def save_log(self):
        self.saved = len(self.entries)

    @contextlib.contextmanager
    def carry_log(self):
        count = len(self.entries)
        lines = [Document("joblogs", f"1/{n}", b"") for n in range(self.saved, count)]
        carried = CarriedLog(lines)
        yield carried
        if carried.is_stored:
            self.saved = count

    def save_resumption(self, value):
        self.resumption = value

    def submit_jobs(self, jobs):
        first = len(self.submitted) + 101
        self.submitted.extend(list(job) for job in jobs)
        return [(True, first + index) for index in range(len(jobs))]

    def text(self):
        """Return the message lines as one text."""
        return "\n".join(payload for kind, payload in self.entries if kind == "message")


class KeepingCallbacks(FakeCallbacks):
    """Keeps each state that is saved, and the configuration of an engine at that time.

    Attributes:
        kept: states, each with its snapshot; None without an engine.
    """

    def __init__(self, engine=None):
        super().__init__()
        self._engine = engine
        self.kept = []

    @property
    def states(self):
        return [state for state, _snapshot in self.kept]

    def save_resumption(self, value):
        super().save_resumption(value)
        if value is not None:
            snapshot = None if self._engine is None else self._engine.snapshot
            self.kept.append((copy.deepcopy(value), snapshot))
