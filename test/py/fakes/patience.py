"""Waiting in tests: for what becomes true some time, for jobs, for ends of processes.

`Background` is work that goes on beside a test until the end of a block.

Limits are for machines far slower than usual: they end a test that hangs and are never
part of what a test says.
"""

import contextlib
import pathlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

#: Seconds for what usually takes a moment.
PATIENCE_S = 90.0
#: Seconds that one call for a change of a job waits; shorter than the client's limit.
_CALL_S = 20
_PAUSE_STEP_S, _LONGEST_PAUSE_S = 0.0001, 0.02
_LONGEST_REST_S = 1.0
FINAL = ("success", "error", "canceled")


def until(what, condition, timeout_s=PATIENCE_S):
    """Poll until a condition holds; return what it returned.

    Often in the beginning, since most things take a moment only, then at leisure. A look
    that takes long, such as the run of a command, is followed by a pause as long: it
    takes the processor from what it waits for, and from other tests.
    """
    end, pause_s = time.monotonic() + timeout_s, 0.0
    while True:
        began = time.monotonic()
        if actual := condition():
            return actual
        now = time.monotonic()
        assert now < end, f"{what}: not within {timeout_s:g} s"
        time.sleep(max(pause_s, min(now - began, _LONGEST_REST_S)))
        pause_s = min(_LONGEST_PAUSE_S, pause_s + _PAUSE_STEP_S)


def despite(kind, condition):
    """Return a condition that does not hold as long as it raises errors of a kind.

    An emulator, for example, may refuse sessions at the end of a migration.
    """

    def calm():
        with contextlib.suppress(kind):
            return condition()
        return None

    return calm


def job_status(client, job_id, wanted=FINAL, timeout_s=PATIENCE_S):
    """Wait until a job has one of some states; return which."""
    return job_end(client, job_id, wanted, timeout_s)[0]


def job_end(client, job_id, wanted=FINAL, timeout_s=PATIENCE_S):
    """Wait until a job has one of some states; return it and the log until then."""
    end = time.monotonic() + timeout_s
    known, serial, log = None, None, []
    while known is None or known[0] not in wanted:
        assert time.monotonic() < end, f"job {job_id} is {known}, not yet {wanted}"
        answer = client.call(
            "WaitForJobChange", [job_id, ["status"], known, serial, _CALL_S]
        )
        if answer == "nochange":
            continue
        known, entries = answer
        log += entries
        serial = log[-1][0] if log else None
    return known[0], log


def has_ended(pid):
    """Return whether a process has ended, also if nobody has waited for it yet.

    A file in ``/proc`` whose process ends between its opening and its reading gives
    ESRCH, not ENOENT.
    """
    try:
        return not pathlib.Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return True


def start(function):
    """Run a function in a thread; return the future of its result."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(function)
    pool.shutdown(wait=False)
    return future


class Background:
    """Threads that run as long as the ``with`` block of this object.

    Attributes:
        stopping: set at the end of the block; the threads then end by themselves.
    """

    def __init__(self, runs):
        self.stopping = threading.Event()
        self._threads = [threading.Thread(target=run) for run in runs]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error):
        self.stopping.set()
        for thread in self._threads:
            thread.join()
