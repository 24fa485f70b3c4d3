"""Files of a group: locking, replacement, damage, merging."""

import errno
import os
import pathlib

import pytest

from ganeti.automation.watcher import group_files
from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths
from ganeti.decisions.watching.group_state import EMPTY, GroupState

STATE = GroupState({}, {"n1": "boot"})


@pytest.fixture
def paths(tmp_path):
    made = Paths(root=str(tmp_path), hostname=tmp_path.name)
    os.makedirs(made.data_dir)
    os.makedirs(made.run_dir)
    return made


def test_a_state_is_kept_between_runs(paths):
    with group_files.opened(paths, "g") as file:
        assert file.state == EMPTY
        file.save(STATE)
    with group_files.opened(paths, "g") as file:
        assert file.state == STATE


def test_two_runs_exclude_each_other_also_after_a_save(paths):
    def enter():
        with group_files.opened(paths, "g"):
            pytest.fail("entered twice")

    with group_files.opened(paths, "g") as file:
        for _ in range(2):
            with pytest.raises(errors.LockError, match="another watcher"):
                enter()
            file.save(STATE)
        with group_files.opened(paths, "other"):
            pass
    with group_files.opened(paths, "g"):
        pass


def test_the_error_of_a_full_disk_names_the_file(paths, monkeypatch):
    def fsync(_fd):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with group_files.opened(paths, "uuid") as file:
        monkeypatch.setattr(os, "fsync", fsync)
        with pytest.raises(OSError, match=r"No space left on device: '.*watcher"):
            file.save(STATE)


def test_an_unchanged_state_is_only_touched(paths):
    with group_files.opened(paths, "g") as file:
        file.save(STATE)
    path = pathlib.Path(group_files.state_path(paths, "g"))
    os.utime(path, (1, 1))
    inode = path.stat().st_ino
    with group_files.opened(paths, "g") as file:
        file.save(STATE)
    assert path.stat().st_ino == inode
    assert path.stat().st_mtime > 1


def test_a_damaged_state_counts_as_empty(paths, caplog):
    pathlib.Path(group_files.state_path(paths, "g")).write_bytes(b"{broken")
    with group_files.opened(paths, "g") as file:
        assert file.state == EMPTY
    assert "watcher.g.data" in caplog.text


def test_the_status_of_a_group_is_sorted_lines_without_a_last_newline(paths):
    group_files.write_status(paths, "g", {"b": "running", "a": "ERROR_down"}, ["g"])
    text = pathlib.Path(group_files.status_path(paths, "g")).read_text()
    assert text == "a ERROR_down\nb running"
    assert mode(group_files.status_path(paths, "g")) == 0o600
    assert mode(group_files.merged_path(paths)) == 0o644


def mode(path):
    return os.stat(path).st_mode & 0o777


def test_the_newest_file_of_a_known_group_counts(paths):
    for group, status in (("new", "running"), ("old", "ERROR_down"), ("gone", "x")):
        path = pathlib.Path(group_files.status_path(paths, group))
        path.write_text(f"a {status}\nonly-{group} {status}")
        os.utime(path, (1, 2 if group == "new" else 1))
    group_files.write_status(paths, "g", {"b": "running"}, ["old", "g", "new", "none"])
    text = pathlib.Path(group_files.merged_path(paths)).read_text()
    assert text.splitlines() == [
        "a running",
        "b running",
        "only-new running",
        "only-old ERROR_down",
    ]


def test_a_merge_that_hangs_elsewhere_does_not_stop_the_run(paths, caplog, monkeypatch):
    monkeypatch.setattr(group_files, "_MERGE_S", 0.0)
    with files.locked(f"{group_files.merged_path(paths)}.lock"):
        group_files.write_status(paths, "g", {"b": "running"}, ["g"])
    assert "not updated" in caplog.text
    assert not os.path.exists(group_files.merged_path(paths))
