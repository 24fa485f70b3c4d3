"""Logging: lines reach the file, also after a rotation; the console is last."""

import errno
import io
import logging
import os
import pathlib

import pytest

from ganeti.utils import log


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


def test_console_takes_what_the_file_does_not(tmp_path, monkeypatch):
    console = tmp_path / "console"
    monkeypatch.setattr(log, "CONSOLE", str(console))
    handler = log.set_up("ganeti-x", str(tmp_path / "x.log"), console=True)
    handler.stream.close()
    handler.stream = FullDisk()
    logging.getLogger("a").error("full disk")
    assert "full disk" in console.read_text()


def test_syslog_alone_must_exist(tmp_path, monkeypatch):
    monkeypatch.setattr(log, "SYSLOG_SOCKET", str(tmp_path / "none"))
    with pytest.raises(OSError):
        log.set_up("ganeti-x", str(tmp_path / "x.log"), syslog="only")
    assert log.set_up("ganeti-x", str(tmp_path / "x.log"), syslog="yes") is not None
