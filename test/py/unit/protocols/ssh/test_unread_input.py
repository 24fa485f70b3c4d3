"""Commands that end before they have read their input."""

import pytest

from ganeti.protocols.ssh import client


class Ended:
    """A channel that the server has closed before anything was written."""

    def __init__(self, exit_status):
        self.exit_status = exit_status
        self.errors = [b"env: no such file\n"]

    def sendall(self, data):
        raise OSError("Socket is closed")

    def shutdown_write(self):
        """Do nothing: it is closed."""

    def close(self):
        """Do nothing: it is closed."""

    def recv(self, size):
        return b""

    def recv_stderr(self, size):
        return self.errors.pop() if self.errors else b""

    def recv_exit_status(self):
        return self.exit_status


def test_the_exit_code_and_the_error_of_the_command_count():
    result = client._converse(Ended(127), ("absent",), "input", None)
    assert result.code == 127
    assert result.stderr == "env: no such file\n"


def test_a_lost_connection_is_one():
    with pytest.raises(OSError, match="Socket is closed"):
        client._converse(Ended(-1), ("absent",), "input", None)
