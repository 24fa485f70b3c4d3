"""Pid files: the lock says who runs, the content is for people."""

import os
import pathlib

import pytest

from ganeti.base import errors
from ganeti.base.filesystem import pidfile


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


def test_nobody_reads_the_pid_of_before_while_the_file_is_locked(tmp_path):
    path = tmp_path / "x.pid"
    path.write_text("123456789\n")
    seen = []
    owner = pidfile.PidFile(str(path), lambda: seen.append(path.read_text()))
    assert seen == [""]
    owner.remove()
    # Twice is fine, and does not close what another file may have got.
    owner.remove()
    assert not path.exists()


def test_an_owner_that_may_not_remove_the_file_empties_it(tmp_path, monkeypatch):
    path = tmp_path / "x.pid"
    owner = pidfile.PidFile(str(path))

    def refuse(_path):
        raise PermissionError

    monkeypatch.setattr(pidfile.os, "unlink", refuse)
    owner.remove()
    assert path.read_text() == ""
    assert not pidfile.is_locked(str(path))


def test_a_file_that_its_owner_removes_in_time_is_made_again(tmp_path, monkeypatch):
    path = tmp_path / "x.pid"
    flock, steps = pidfile.fcntl.flock, []

    def remove_before(descriptor, kind):
        # The previous owner ends between the opening of the file and the lock.
        if len(steps) < 2:
            path.unlink()
            if steps:
                path.write_text("another file")
        steps.append(kind)
        flock(descriptor, kind)

    monkeypatch.setattr(pidfile.fcntl, "flock", remove_before)
    owner = pidfile.PidFile(str(path))
    assert len(steps) == 3
    assert path.read_text() == f"{os.getpid()}\n"
    owner.remove()


@pytest.mark.parametrize("text", ["", "x", "12 13"])
def test_a_file_without_a_pid_has_none(tmp_path, text):
    (tmp_path / "x.pid").write_text(text)
    assert pidfile.read_pid(str(tmp_path / "x.pid")) is None


def test_a_living_process_counts_if_it_runs_the_program(tmp_path):
    path = tmp_path / "x.pid"
    assert pidfile.live_pid(str(path), "python") is None
    path.write_text(f" {os.getpid()}\n")
    own = pathlib.Path("/proc/self/cmdline").read_bytes().split(b"\0")[0].decode()
    assert pidfile.live_pid(str(path), own) == os.getpid()
    assert pidfile.live_pid(str(path), "no-such-program") is None
    for text in ("0", "-1", "999999999"):
        path.write_text(text)
        assert pidfile.live_pid(str(path), "") is None


def test_asking_for_a_lock_does_not_keep_it(tmp_path):
    path = str(tmp_path / "x.pid")
    assert not pidfile.is_locked(path)
    assert not os.path.exists(path)
    pathlib.Path(path).touch()
    assert not pidfile.is_locked(path)
    with pidfile.PidFile(path):
        assert pidfile.is_locked(path)


def test_only_the_first_line_of_a_pid_file_counts(tmp_path):
    path = tmp_path / "x.pid"
    path.write_text("123\n")
    os.truncate(path, 1_500_000_000)
    assert pidfile.read_pid(str(path)) == pidfile.pid_in(str(path)) == 123


def test_a_pid_file_that_is_a_pipe_or_a_link_has_no_pid(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "real").write_text("123\n")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for name in ("pipe", "link"):
        assert pidfile.read_pid(str(tmp_path / name)) is None
        with pytest.raises(OSError, match=r"regular file|symbolic links"):
            pidfile.pid_in(str(tmp_path / name))


@pytest.mark.parametrize("text", ["0", "-1", "+5", "1_0", "\uff11", "9" * 20, "1\x1d"])
def test_what_names_no_single_process_is_no_pid(tmp_path, text):
    path = tmp_path / "pid"
    path.write_text(f"{text}\n")
    assert pidfile.read_pid(str(path)) is None
    path.write_text("12\n-1\n")
    assert pidfile.read_pid(str(path)) == 12
