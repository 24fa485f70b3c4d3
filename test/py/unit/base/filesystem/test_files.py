"""Files are replaced whole or not at all; locks keep others out."""

import contextlib
import errno
import os
import stat
import tracemalloc

import pytest

from ganeti.base import errors
from ganeti.base.filesystem import files


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


def test_a_file_of_the_largest_size_is_read(tmp_path):
    (tmp_path / "f").write_bytes(b"x" * 10)
    assert files.read_file(str(tmp_path / "f"), max_size=10) == b"x" * 10


def test_content_owner_mode_and_times_are_set_before_the_file_is_in_place(
    tmp_path, monkeypatch
):
    path, order = str(tmp_path / "f"), []
    rename = os.rename

    def note(name, real=None):
        def call(*args):
            shown = [a for a in args if not isinstance(a, int) or a >= 1000]
            order.append((name, *shown))
            return real(*args) if real else None

        return call

    monkeypatch.setattr(files.os, "fchown", note("fchown"))
    monkeypatch.setattr(files.os, "fsync", note("fsync"))
    monkeypatch.setattr(files.os, "rename", note("rename", rename))
    files.write_file(path, "ä", uid=1001, gid=1002)
    temporary = order[2][1]
    assert order == [
        ("fchown", 1001, 1002),
        ("fsync",),
        ("rename", temporary, path),
        ("fsync",),
    ]
    assert os.path.basename(temporary).startswith(".f.")
    assert temporary.endswith(".new")
    assert files.read_file(path) == "ä".encode()
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    order.clear()
    # The owner stays unless one of both is given; the name may be made durable later.
    files.write_file(path, b"x", sync_name=False)
    assert [name for name, *_rest in order] == ["fsync", "rename"]
    files.write_file(path, b"x", gid=1002)
    assert order[2] == ("fchown", 1002)


def test_the_rest_of_a_killed_writer_is_removed(tmp_path):
    long = "n" * 150
    for name in (
        ".f[1].abc.new",
        ".f[1].abc.old",
        ".f1.abc.new",
        f".{long[:100]}.x.new",
    ):
        (tmp_path / name).touch()
    files.remove_unfinished(str(tmp_path / "f[1]"))
    assert not (tmp_path / ".f[1].abc.new").exists()
    files.remove_unfinished(str(tmp_path / long))
    assert sorted(os.listdir(tmp_path)) == [".f1.abc.new", ".f[1].abc.old"]


def test_another_error_of_the_last_step_is_not_hidden(tmp_path, monkeypatch):
    def refuse(source, target):
        raise OSError(errno.EACCES, "no", source, None, target)

    monkeypatch.setattr(files.os, "rename", refuse)
    with pytest.raises(PermissionError):
        files.write_file(str(tmp_path / "f"), "x")
    assert os.listdir(tmp_path) == []


def test_a_file_system_that_cannot_sync_directories_is_tolerated(tmp_path, monkeypatch):
    codes = [errno.EINVAL, errno.EIO]

    def fail(_fd):
        raise OSError(codes.pop(0), "no")

    monkeypatch.setattr(files.os, "fsync", fail)
    files.sync_dir(str(tmp_path))
    with pytest.raises(OSError, match="no"):
        files.sync_dir(str(tmp_path))


def test_a_file_is_synced_with_its_directory(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(
        files.os, "fsync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}"))
    )
    (tmp_path / "f").touch()
    files.sync_file(str(tmp_path / "f"))
    assert synced == [str(tmp_path / "f"), str(tmp_path)]


def test_removal_reports_whether_there_was_a_file(tmp_path):
    (tmp_path / "f").touch()
    assert files.remove_file(str(tmp_path / "f"))
    assert not files.remove_file(str(tmp_path / "f"))


def test_backups_are_named_by_time_private_and_removed_together(tmp_path, monkeypatch):
    path, folder = str(tmp_path / "f[1]"), tmp_path / "backups"
    files.write_file(path, "data")
    monkeypatch.setattr(files.time, "strftime", lambda form: f"<{form}>")
    copy = files.backup_file(path, str(folder))
    assert os.path.basename(copy).startswith("f[1].backup-<%Y-%m-%d_%H_%M_%S>.")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (folder / "f1.backup-x").touch()
    files.backup_file(path, str(folder))
    assert files.remove_backups(path, str(folder)) == 2
    assert os.listdir(folder) == ["f1.backup-x"]
    assert files.remove_backups(path, str(folder)) == 0


def test_a_directory_gets_mode_and_owner_whether_it_was_there_or_not(
    tmp_path, monkeypatch
):
    owners = []
    monkeypatch.setattr(files.os, "chown", lambda *args: owners.append(args))
    path = str(tmp_path / "a" / "b")
    for mode in (0o750, 0o700):
        files.make_dir(path, mode)
        assert stat.S_IMODE(os.stat(path).st_mode) == mode
    files.make_dir(path, 0o755, uid=5)
    files.make_dir(path, 0o755, gid=6)
    assert owners == [(path, 5, -1), (path, -1, 6)]


def test_a_version_differs_after_each_change(tmp_path):
    path = tmp_path / "f"
    path.write_text("a")
    os.utime(path, ns=(1, 1))
    first = files.version(str(path))
    assert first == (path.stat().st_ino, 1, 1)
    path.write_text("ab")
    os.utime(path, ns=(1, 1))
    assert files.version(str(path)) == (*first[:2], 2)


def test_a_lock_is_tried_until_its_time_is_over(tmp_path, monkeypatch):
    path, now, pauses = str(tmp_path / "lock"), [50.0], []

    class Time:
        @staticmethod
        def monotonic():
            return now[0]

        @staticmethod
        def sleep(seconds):
            pauses.append(seconds)
            now[0] += seconds

    monkeypatch.setattr(files, "time", Time)
    with (
        files.locked(path) as descriptor,
        pytest.raises(errors.LockError) as caught,
        files.locked(path, timeout_s=0.1, shared=True),
    ):
        pytest.fail("locked twice")
    assert caught.value.args == (f"{path}: not locked within 0.1 seconds",)
    assert 5 <= len(pauses) <= 6
    assert descriptor > 2
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(descriptor)


def test_a_link_is_no_lock_file(tmp_path):
    (tmp_path / "lock").symlink_to(tmp_path / "target")
    with (
        pytest.raises(OSError, match="symbolic links"),
        files.locked(str(tmp_path / "lock")),
    ):
        pytest.fail("it is followed")
    assert not (tmp_path / "target").exists()


# Files of other programs: they may be endless, pipes, or lead elsewhere
def huge(path, start=b""):
    """Make a file of 1.5 GB without data, as an emulator can."""
    path.write_bytes(start)
    os.truncate(path, 1_500_000_000)
    return str(path)


READERS = {
    "whole": lambda path: files.read_file(path, max_size=100),
    "start": lambda path: files.read_start(path, 100),
    "text": lambda path: files.text_of(path, 100),
    "end": lambda path: files.read_end(path, 100),
}


def peak_of(work):
    tracemalloc.start()
    try:
        with contextlib.suppress(errors.GenericError):
            work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("reader", READERS)
def test_a_huge_file_takes_no_memory(tmp_path, reader):
    path = huge(tmp_path / "f", b"12\n")
    assert peak_of(lambda: READERS[reader](path)) < 1_000_000


def test_a_file_is_read_up_to_its_bound(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"x" * 100)
    assert len(READERS["whole"](str(path))) == 100
    path.write_bytes(b"x" * 101)
    with pytest.raises(errors.GenericError, match="larger than 100 bytes"):
        READERS["whole"](str(path))
    assert files.read_start(str(path), 7) == b"x" * 7
    path.write_bytes(b"old " * 100 + b"the end")
    assert files.read_end(str(path), 7) == b"the end"
    assert files.read_end(str(path), 50, start=400) == b"the end"
    assert files.read_end(str(path), 50, start=4000) == b""


def test_a_limit_counts_where_none_is_given(tmp_path):
    with pytest.raises(errors.GenericError, match="larger than"):
        files.read_file(huge(tmp_path / "f"))


@pytest.mark.parametrize("reader", READERS)
def test_pipes_and_devices_are_no_files(tmp_path, reader):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (str(pipe), "/dev/zero"):
        with pytest.raises(OSError, match="wanted a regular file"):
            READERS[reader](path)


@pytest.mark.parametrize("reader", ["start", "text", "end"])
def test_a_link_to_another_file_is_not_followed(tmp_path, reader):
    (tmp_path / "secret").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="symbolic links"):
        READERS[reader](str(tmp_path / "link"))
    with pytest.raises(OSError, match="symbolic links"):
        files.read_file(str(tmp_path / "link"), follow=False)
    assert files.read_file(str(tmp_path / "link")) == b"x"


def test_files_of_the_kernel_are_read():
    assert "Name:" in files.text_of("/proc/self/status", files.MAX_PROC)
