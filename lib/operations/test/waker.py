"""A socket by which a test client ends a wait early.

The only logical units that open a socket: the wait itself is under test, and the
other end is a test client on the same machine.
"""

import os
import shutil
import socket
import tempfile
import time
from types import TracebackType
from typing import Self


class Waker:
    """A unix socket in a private directory, open within the ``with`` body."""

    def __enter__(self) -> Self:
        self._directory = tempfile.mkdtemp(prefix="ganeti-test-")
        self.path = os.path.join(self._directory, "wake")
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server.bind(self.path)
        self._server.listen(1)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def wait(self, timeout_s: float) -> bool:
        """Wait until a client connects; return false on time-out."""
        self._server.settimeout(timeout_s)
        try:
            connection, _ = self._server.accept()
        except TimeoutError:
            return False
        connection.close()
        return True

    def wait_for_answer(self, connect_s: float, answer_s: float) -> bool:
        """Wait until a client connects and then sends data or disconnects.

        Returns:
            False if one of the two waits timed out.
        """
        self._server.settimeout(connect_s)
        try:
            connection, _ = self._server.accept()
        except TimeoutError:
            return False
        with connection:
            deadline = time.monotonic() + answer_s
            connection.settimeout(max(0.0, deadline - time.monotonic()))
            try:
                connection.recv(1)
            except TimeoutError:
                return False
        return True
