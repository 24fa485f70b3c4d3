"""Files below a directory: whatever others swap, nothing outside is opened."""

import contextlib
import os

import pytest

from ganeti.base import errors
from ganeti.base.filesystem import beneath

SECRET = b"of this node alone"


@pytest.fixture
def place(tmp_path):
    (tmp_path / "top" / "web1").mkdir(parents=True)
    (tmp_path / "top" / "web1" / "disk0").write_bytes(b"content")
    (tmp_path / "out" / "web1").mkdir(parents=True)
    for name in ("out/disk0", "out/web1/disk0"):
        (tmp_path / name).write_bytes(SECRET)
    return beneath.Place(str(tmp_path / "top"), "web1/disk0")


def swaps(tmp_path):
    """Return what another node can do: the file, or its directory, becomes a link."""
    top = tmp_path / "top"

    def file():
        os.unlink(top / "web1" / "disk0")
        os.symlink(tmp_path / "out" / "disk0", top / "web1" / "disk0")

    def directory():
        os.rename(top / "web1", top / "moved")
        os.symlink(tmp_path / "out", top / "web1")

    return {"file": file, "directory": directory}


def at_call(monkeypatch, name, number, swap):
    """Swap right before the n-th call of a function of `os`; return whether it was."""
    really, calls = getattr(os, name), []

    def hooked(*args, **options):
        calls.append(args)
        if len(calls) == number:
            swap()
        return really(*args, **options)

    monkeypatch.setattr(os, name, hooked)
    return calls


def opened(place, flags=os.O_RDWR):
    fd = place.open(flags)
    try:
        return os.pread(fd, 100, 0)
    finally:
        os.close(fd)


@pytest.mark.parametrize("what", ["file", "directory"])
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_a_swap_between_any_two_steps_opens_nothing_outside(
    place, tmp_path, monkeypatch, what, number
):
    """Open the directory, each name below it, then the file again by its number."""
    swap = swaps(tmp_path)[what]
    calls = at_call(monkeypatch, "open", number, swap)
    seen = b"refused"
    with contextlib.suppress(errors.FileStoragePathError):
        seen = opened(place)
    assert seen in (b"refused", b"content")
    assert len(calls) >= number
    # Once a name was opened, the swap comes too late to matter.
    assert seen == b"content" or number < 4


@pytest.mark.parametrize("what", ["file", "directory"])
def test_a_link_is_refused(place, tmp_path, what):
    swaps(tmp_path)[what]()
    with pytest.raises(errors.FileStoragePathError, match="symbolic link"):
        opened(place)


def test_a_link_that_stays_inside_is_refused_too(place, tmp_path):
    os.symlink("web1", tmp_path / "top" / "other")
    with pytest.raises(
        errors.FileStoragePathError, match="other is a symbolic link; below"
    ):
        opened(beneath.Place(place.top, "other/disk0"))


def test_the_directory_itself_may_be_a_link_of_the_administrator(place, tmp_path):
    os.symlink("top", tmp_path / "chosen")
    assert opened(beneath.Place(str(tmp_path / "chosen"), place.inside)) == b"content"


@pytest.mark.parametrize("name", ["..", ".", "", "web1/../../out/disk0", "a//b"])
def test_only_names_are_entered(place, name):
    with pytest.raises((errors.FileStoragePathError, FileNotFoundError)):
        opened(beneath.Place(place.top, name))


def test_a_pipe_or_a_directory_is_not_opened(place, tmp_path):
    os.mkfifo(tmp_path / "top" / "web1" / "pipe")
    for name in ("web1/pipe", "web1"):
        with pytest.raises(OSError, match="wanted a regular file"):
            beneath.Place(place.top, name).open(os.O_RDONLY)


def test_a_file_in_the_place_of_a_directory_is_named(place):
    below = beneath.Place(place.top, "web1/disk0/more")
    with pytest.raises(NotADirectoryError, match="Not a directory"):
        below.status()


def test_directories_are_made_only_below_real_ones(place, tmp_path):
    with beneath.Place(place.top, "a/b").directory(make_mode=0o750):
        pass
    assert (tmp_path / "top" / "a" / "b").is_dir()
    swaps(tmp_path)["directory"]()
    with (
        pytest.raises(errors.FileStoragePathError),
        beneath.Place(place.top, "web1/new").directory(make_mode=0o750),
    ):
        pass
    assert not (tmp_path / "out" / "new").exists()


def test_no_descriptor_is_left(place, tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    opened(place)
    swaps(tmp_path)["directory"]()
    for _ in range(3):
        with contextlib.suppress(errors.FileStoragePathError):
            opened(place)
    assert len(os.listdir("/proc/self/fd")) == before
