"""Logging: lines reach the file, also after a rotation; the console is last."""

import contextlib
import errno
import io
import logging
import os
import pathlib
import threading

import pytest

from fakes.patience import until
from ganeti.base import log


@pytest.fixture(autouse=True)
def _clean_root():
    root = logging.getLogger()
    saved, level = list(root.handlers), root.level
    for handler in saved:
        root.removeHandler(handler)
    yield
    log.shut_down()
    root.setLevel(level)
    for handler in saved:
        root.addHandler(handler)


def test_line_names_program_and_level(tmp_path):
    path = str(tmp_path / "x.log")
    log.set_up("ganeti-x", path)
    logging.getLogger("a").warning("disk %d", 3)
    logging.getLogger("a").debug("unseen")
    text = pathlib.Path(path).read_text()
    assert f"ganeti-x pid={os.getpid()}/" in text
    assert text.endswith("WARNING disk 3\n")
    assert "unseen" not in text
    assert os.stat(path).st_mode & 0o777 == 0o600


def test_reopen_follows_a_rotation(tmp_path):
    path = tmp_path / "x.log"
    handler = log.set_up("ganeti-x", str(path))
    path.rename(tmp_path / "x.log.1")
    handler.reopen()
    logging.getLogger("a").info("new")
    assert "new" in path.read_text()


class FullDisk(io.StringIO):
    def write(self, _text):
        raise OSError(errno.ENOSPC, "full")


@pytest.fixture
def console(tmp_path, monkeypatch):
    path = tmp_path / "console"
    path.touch()
    monkeypatch.setattr(log, "CONSOLE", str(path))
    return path


def test_console_takes_what_the_file_does_not(tmp_path, monkeypatch, console):
    (tmp_path / "x.log").touch()
    monkeypatch.setattr(log.LogFileHandler, "_open", lambda _self: FullDisk())
    log.set_up("ganeti-x", str(tmp_path / "x.log"), console=True)
    logging.getLogger("a").error("full disk")
    until("the line", lambda: "full disk" in console.read_text())


class Pipe:
    """A log "file" that takes some lines, then hangs until it is read."""

    def __init__(self, path):
        os.mkfifo(path)
        self.path = str(path)
        self._fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        self.written = b""

    def holds(self, text):
        with contextlib.suppress(BlockingIOError):
            self.written += os.read(self._fd, 1 << 20)
        return text in self.written

    def end(self):
        log.shut_down()

        def is_over():
            self.holds(b"")
            return "log" not in [each.name for each in threading.enumerate()]

        until("the end of the writer", is_over)
        os.close(self._fd)


@pytest.fixture
def pipe(tmp_path):
    made = Pipe(tmp_path / "x.log")
    yield made
    made.end()


def test_a_hung_disk_stops_no_caller(pipe, monkeypatch, console):
    monkeypatch.setattr(log, "_WAITING_RECORDS", 5)
    monkeypatch.setattr(log, "_HUNG_S", 0)
    handler = log.set_up("ganeti-x", pipe.path, console=True)
    logging.getLogger("a").info("long %s", "x" * 200_000)
    logging.getLogger("a").info("line 0")

    def is_hung():
        logging.getLogger("a").info("line 1")
        return "line 1" in console.read_text()

    until("the console takes lines", is_hung)
    for _ in range(5):
        logging.getLogger("a").info("line 2")
    logging.getLogger("a").info("line 3")
    assert "could not be written" in console.read_text()
    until("the records that waited", lambda: pipe.holds(b"the disk did not take"))
    assert b"line 0\n" in pipe.written
    assert b"line 3\n" not in pipe.written
    handler.reopen()
    logging.getLogger("a").info("at last")
    until("the log goes on", lambda: pipe.holds(b"at last"))


def test_the_end_waits_for_the_disk_only_briefly(pipe, monkeypatch):
    monkeypatch.setattr(log, "_CLOSE_S", 0.01)
    log.set_up("ganeti-x", pipe.path, console=True)
    logging.getLogger("a").info("long %s", "x" * 200_000)
    log.shut_down()


def test_the_end_writes_what_waits(tmp_path):
    path = tmp_path / "x.log"
    log.set_up("ganeti-x", str(path), console=True)
    for number in range(100):
        logging.getLogger("a").info("line %d", number)
    log.shut_down()
    assert "line 99" in path.read_text()


def test_syslog_alone_must_exist(tmp_path, monkeypatch):
    monkeypatch.setattr(log, "SYSLOG_SOCKET", str(tmp_path / "none"))
    with pytest.raises(OSError):
        log.set_up("ganeti-x", str(tmp_path / "x.log"), syslog="only")
    assert log.set_up("ganeti-x", str(tmp_path / "x.log"), syslog="yes") is not None
