"""Memory of a process: which calls of the C library are made, and when."""

import os

import pytest

from ganeti.base import memory


class Library:
    """The calls of the C library that a test expects."""

    def __init__(self, code=0):
        self.calls = []
        self._code = code

    def mlockall(self, flags):
        self.calls.append(("mlockall", flags))
        return self._code

    def munlockall(self):
        self.calls.append(("munlockall",))

    def mallopt(self, parameter, value):
        self.calls.append(("mallopt", parameter, value))
        return 1

    def malloc_trim(self, pad):
        self.calls.append(("malloc_trim", pad))


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Return a function that puts a library and the status of the process in place."""
    status = tmp_path / "status"
    monkeypatch.setattr(memory, "_STATUS", str(status))

    def put(library, locked="0 kB"):
        status.write_text(f"Name:\tnoded\nVmLck:\t     {locked}\nodd line\n")
        monkeypatch.setattr(memory.ctypes, "CDLL", lambda _name, **_options: library)
        return library

    return put


def test_the_status_of_a_process_is_read_by_field(load):
    load(Library(), "12 kB")
    assert memory.status() == {"Name": "noded", "VmLck": "12 kB"}


def test_the_real_status_has_the_field_for_locked_memory():
    assert memory.status()["VmLck"].endswith(" kB")


def test_memory_is_locked_now_and_later(load):
    # MCL_CURRENT, MCL_FUTURE and MCL_ONFAULT of sys/mman.h are 1, 2 and 4.
    library = load(Library())
    memory.lock()
    memory.lock(read_all=False)
    assert library.calls == [("mlockall", 3), ("mlockall", 7)]


def test_memory_that_cannot_be_locked_is_an_error(load, monkeypatch):
    load(Library(code=-1))
    monkeypatch.setattr(memory.ctypes, "get_errno", lambda: 12)
    with pytest.raises(OSError, match=os.strerror(12)) as caught:
        memory.lock()
    assert caught.value.errno == 12
    load(object())
    with pytest.raises(OSError, match="no mlockall"):
        memory.lock()


def test_freed_memory_is_returned(load):
    library = load(Library())
    memory.trim()
    assert library.calls == [("malloc_trim", 0)]


def test_locked_memory_is_unlocked_while_it_is_returned(load):
    library = load(Library(), "64 kB")
    memory.trim()
    assert library.calls == [("munlockall",), ("malloc_trim", 0), ("mlockall", 7)]


def test_memory_that_cannot_be_locked_again_is_a_warning(load, caplog):
    load(Library(code=-1), "64 kB")
    memory.trim()
    assert "memory is not locked any more" in caplog.text


def test_another_library_returns_nothing(load):
    load(object(), "64 kB")
    memory.trim()


def test_one_arena_is_asked_for_where_there_are_arenas(load):
    library = load(Library())
    memory.use_one_arena()
    assert library.calls == [("mallopt", -8, 1)]
    load(object())
    memory.use_one_arena()
