"""Work that goes on beside a test until the end of a block."""

import threading
from concurrent.futures import ThreadPoolExecutor


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
