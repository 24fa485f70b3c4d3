"""Files that placement programs write: whole or not at all, links and rights kept."""

import os

import pytest

from ganeti.base.filesystem import files
from ganeti.commands.htools import output


def test_a_new_file_has_the_rights_of_the_mask(tmp_path):
    path = tmp_path / "plan.sh"
    before = os.umask(0o027)
    try:
        output.save_text(str(path), "echo\n")
    finally:
        os.umask(before)
    assert path.read_text() == "echo\n"
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_link_stays_and_rights_stay(tmp_path):
    path, link = tmp_path / "plan.sh", tmp_path / "link"
    path.write_text("old")
    path.chmod(0o750)
    link.symlink_to(path)
    output.save_text(str(link), "new")
    assert link.is_symlink()
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o750


def test_what_was_there_stays_when_the_disk_is_full(tmp_path, monkeypatch):
    path = tmp_path / "plan.sh"
    path.write_text("old")

    def full(_fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        output.save_text(str(path), "new")
    assert caught.value.filename == str(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["plan.sh"]


def test_what_is_no_ordinary_file_is_written_to():
    output.save_text("/dev/null", "x")
    with pytest.raises(OSError, match="/dev/full") as caught:
        output.save_text("/dev/full", "x")
    assert caught.value.strerror == "No space left on device"
    with pytest.raises(IsADirectoryError, match="/tmp"):
        output.save_text("/tmp", "x")


def test_a_pipe_is_written_to():
    reading, writing_end = os.pipe()
    try:
        output.save_text(f"/dev/fd/{writing_end}", "through")
        assert os.read(reading, 100) == b"through"
    finally:
        os.close(reading)
        os.close(writing_end)
