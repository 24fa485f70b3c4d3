"""Pid files: the lock says who runs, the content is for people."""

import os
import pathlib

import pytest

from ganeti import errors
from ganeti.utils import pidfile


def test_holds_the_pid_until_removed(tmp_path):
    path = str(tmp_path / "x.pid")
    with pidfile.PidFile(path):
        assert pathlib.Path(path).read_text() == f"{os.getpid()}\n"
        assert os.stat(path).st_mode & 0o777 == 0o600
        assert pidfile.is_locked(path)
    assert not os.path.exists(path)
    assert not pidfile.is_locked(path)


def test_second_owner_is_refused(tmp_path):
    path = str(tmp_path / "x.pid")
    with pidfile.PidFile(path):
        with pytest.raises(errors.PidFileLockError, match=str(os.getpid())):
            pidfile.PidFile(path)
        assert pidfile.read_pid(path) == os.getpid()


def test_file_of_a_crashed_process_is_taken_over(tmp_path):
    path = tmp_path / "x.pid"
    path.write_text("123456789\n")
    with pidfile.PidFile(str(path)):
        assert pidfile.read_pid(str(path)) == os.getpid()
