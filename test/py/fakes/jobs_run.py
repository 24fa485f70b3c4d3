"""A queue over a store in memory, with an executor that does what a test says."""

import contextlib
import threading

from fakes import patience
from fakes.store import MemoryBackend, open_memory
from ganeti.base import clock, errors
from ganeti.master import jqueue
from ganeti.model import opcodes

WAIT_S = patience.PATIENCE_S


def until(condition):
    """Give others time until something has come true."""
    patience.until("what other threads do", condition)


class Gate:
    """An opcode stops here until the test lets it go on."""

    def __init__(self):
        self.reached = threading.Event()
        self.opened = threading.Event()

    def stop(self):
        self.reached.set()
        assert self.opened.wait(WAIT_S)

    def wait(self):
        assert self.reached.wait(WAIT_S)

    def open(self):
        self.opened.set()


class ScriptedExecutor:
    """Runs the function that ``script`` has for an opcode's comment.

    A function gets (op, callbacks, timeout_s, priority). Without one, the opcode
    starts, logs ``messages``, and fails or returns ``result``.
    """

    def __init__(self):
        self.script = {}
        self.runs = []

    def execute(self, op, callbacks, *, timeout_s, priority):
        self.runs.append((op, callbacks.owner, timeout_s, priority))
        if op.comment in self.script:
            return self.script[op.comment](op, callbacks, timeout_s, priority)
        callbacks.started()
        for text in op.messages or ():
            callbacks.log("message", text)
        if op.fail:
            raise errors.decode(op.fail)
        return op.result


def dummy(comment=None, *, result=None, fail=None, messages=(), **params):
    return opcodes.TestDummy(
        comment=comment,
        result=result,
        fail=errors.encode(fail) if fail is not None else None,
        messages=list(messages),
        submit_jobs=None,
        **params,
    )


class Harness:
    """One life after another of a queue over the same backend."""

    def __init__(self, *, backend=None, executor=None, clk=None, **settings):
        self.backend = backend or MemoryBackend()
        self.store = open_memory(self.backend)
        self.executor = executor or ScriptedExecutor()
        self.failures = []
        settings.setdefault("on_failure", self.failures.append)
        self.queue = jqueue.JobQueue(
            self.store,
            self.executor,
            clk or clock.SystemClock(),
            jqueue.Settings(**settings),
            chance=lambda: 0.5,
        )
        self.queue.recover()

    def final(self, job_id):
        """Wait until a job has ended and return it."""
        previous, serial = None, 0
        while True:
            future = self.queue.wait_for_change(
                job_id,
                lambda job: [job.status],
                previous=previous,
                serial=serial,
                timeout_s=WAIT_S,
            )
            values, log = future.result(WAIT_S)
            serial = log[-1].serial if log else serial
            if jqueue.Status(values[0]).is_final:
                return self.queue.job(job_id)
            previous = [str(values[0])]

    def status(self, job_id):
        return str(self.queue.job(job_id).status)

    def settle(self):
        """Wait until everything asked of the store is durable."""
        self.store.commit([])

    def close(self):
        self.queue.stop(WAIT_S)
        self.store.close()


@contextlib.contextmanager
def running(**kwargs):
    harness = Harness(**kwargs)
    harness.queue.start()
    try:
        yield harness
    finally:
        harness.close()
