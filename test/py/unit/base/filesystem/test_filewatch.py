"""Watching directories: every change is reported, a wrong directory is named."""

import os
import threading

import pytest

from ganeti.base import errors
from ganeti.base.filesystem import filewatch


@pytest.fixture
def watched(tmp_path):
    """Return (directory, iterator) with the watch set."""
    actual = filewatch.changes([str(tmp_path)])
    assert next(actual) == ""
    yield tmp_path, actual
    actual.close()


def test_new_changed_and_moved_files_are_reported(watched):
    directory, actual = watched
    (directory / "new").write_text("x")
    assert next(actual) == str(directory / "new")
    other = directory / "moved"
    os.replace(directory / "new", other)
    while (path := next(actual)) != str(other):
        assert path == str(directory / "new")


def test_waiting_ends_when_something_happens(watched):
    directory, actual = watched
    thread = threading.Thread(target=(directory / "later").touch)
    thread.start()
    assert next(actual) == str(directory / "later")
    thread.join()


def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(errors.InotifyError, match="nowhere: cannot be watched"):
        next(filewatch.changes([str(tmp_path / "nowhere")]))
