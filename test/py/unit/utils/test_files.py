"""Files are replaced whole or not at all; locks keep others out."""

import errno
import os
import stat

import pytest

from ganeti import errors
from ganeti.utils import files


def test_a_file_is_replaced_with_mode_and_times(tmp_path):
    path = str(tmp_path / "f")
    files.write_file(path, "old", mode=0o600)
    files.write_file(path, "new", mode=0o444, times=(1.0, 2.0))
    info = os.stat(path)
    assert files.read_file(path) == b"new"
    assert stat.S_IMODE(info.st_mode) == 0o444
    assert info.st_mtime == 2.0
    assert os.listdir(tmp_path) == ["f"]


def test_a_failed_write_leaves_the_old_content_and_no_rest(tmp_path, monkeypatch):
    path = str(tmp_path / "f")
    files.write_file(path, "old")

    def fail(_fd):
        raise OSError(5, "no disk")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no disk"):
        files.write_file(path, "new")
    assert files.read_file(path) == b"old"
    assert os.listdir(tmp_path) == ["f"]


def test_the_error_of_a_full_disk_names_the_file(tmp_path, monkeypatch):
    path = str(tmp_path / "file")

    def fsync(_fd):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match=f"No space left on device: '{path}'"):
        files.write_file(path, "text")
    assert os.listdir(tmp_path) == []


def test_the_longest_names_can_be_replaced(tmp_path):
    path = tmp_path / ("a" * 255)
    files.write_file(str(path), "x")
    assert path.read_text() == "x"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_replaced_and_not_followed(tmp_path):
    (tmp_path / "target").write_text("keep")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    files.write_file(str(tmp_path / "link"), "new")
    assert (tmp_path / "target").read_text() == "keep"
    assert not (tmp_path / "link").is_symlink()


def test_large_files_are_refused_when_a_size_is_given(tmp_path):
    (tmp_path / "f").write_bytes(b"x" * 11)
    with pytest.raises(errors.GenericError, match="larger than 10"):
        files.read_file(str(tmp_path / "f"), max_size=10)


def test_a_held_lock_is_not_had_again(tmp_path):
    path = str(tmp_path / "lock")
    with (
        files.locked(path),
        pytest.raises(errors.LockError, match="lock"),
        files.locked(path, timeout_s=0),
    ):
        pass
    with files.locked(path, timeout_s=0):
        pass


def test_the_directory_of_a_lock_is_made_and_private(tmp_path):
    path = tmp_path / "lock" / "a.lock"
    for _ in range(2):
        with files.locked(str(path), timeout_s=0):
            assert path.parent.stat().st_mode & 0o777 == 0o700


def test_readers_share_a_lock(tmp_path):
    path = str(tmp_path / "lock")
    with files.locked(path, shared=True), files.locked(path, timeout_s=0, shared=True):
        pass


def test_fingerprints_are_of_regular_files_only(tmp_path):
    (tmp_path / "f").write_text("")
    empty = "da39a3ee5e6b4b0d3255bfef95601890afd80709"
    assert files.fingerprint(str(tmp_path / "f")) == empty
    assert files.fingerprint(str(tmp_path)) is None
    assert files.fingerprint(str(tmp_path / "missing")) is None


def test_something_else_in_a_directorys_place_is_an_error(tmp_path):
    (tmp_path / "d").write_text("")
    with pytest.raises(errors.GenericError, match="wanted a directory"):
        files.make_dir(str(tmp_path / "d"), 0o755)


def test_a_backup_keeps_content_and_mode(tmp_path):
    path = str(tmp_path / "f")
    files.write_file(path, "data", mode=0o640)
    copy = files.backup_file(path, str(tmp_path / "backups"))
    assert files.read_file(copy) == b"data"
    assert stat.S_IMODE(os.stat(copy).st_mode) == 0o640


def test_a_mount_point_is_overwritten_in_place(tmp_path, monkeypatch):
    path = tmp_path / "hosts"
    path.write_text("old")
    inode = path.stat().st_ino

    def refuse(source, target):
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), source, None, target)

    monkeypatch.setattr(os, "rename", refuse)
    files.write_file(str(path), "new", mode=0o640)
    assert path.read_text() == "new"
    assert path.stat().st_ino == inode
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(tmp_path) == ["hosts"]
