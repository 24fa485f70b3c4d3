"""Placement programs start with few threads and end at once, with all their output."""

import errno
import gc
import io
import os
import pathlib
import re
import signal
import site
import subprocess
import sys
import types

import pytest

import ganeti
from fakes.patience import until
from ganeti.commands.htools import launch

TOP = pathlib.Path(ganeti.__file__).parents[1]


class Ended(Exception):
    """Stands for the end of the process; nothing after it runs."""


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A program that ends with 3, in a process that cannot really be ended."""
    made = types.ModuleType("some_program")
    made.main = lambda: print("told") or 3
    monkeypatch.setitem(sys.modules, made.__name__, made)
    monkeypatch.setattr(os, "environ", {})
    threshold, enabled = gc.get_threshold(), gc.isenabled()

    def end(code: int) -> None:
        raise Ended(code)

    monkeypatch.setattr(os, "_exit", end)
    before = signal.getsignal(signal.SIGINT)
    yield made
    signal.signal(signal.SIGINT, before)
    gc.unfreeze()
    gc.set_threshold(*threshold)
    assert gc.isenabled() is enabled


def test_a_program_ends_with_its_code_after_its_output(program, capfd) -> None:
    with pytest.raises(Ended) as ended:
        launch.main(program.__name__)
    assert ended.value.args == (3,)
    assert capfd.readouterr().out == "told\n"


def test_threads_are_limited_unless_the_caller_chose(program, monkeypatch) -> None:
    seen = []
    program.main = lambda: seen.append(dict(os.environ)) or 0
    for given in ({}, {"OPENBLAS_NUM_THREADS": "2"}):
        monkeypatch.setattr(os, "environ", dict(given))
        with pytest.raises(Ended):
            launch.main(program.__name__)
    assert [one["OPENBLAS_NUM_THREADS"] for one in seen] == ["1", "2"]


@pytest.mark.parametrize(
    ("failure", "complaint"),
    [
        (BrokenPipeError(errno.EPIPE, "Broken pipe"), ""),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            "Error: standard output: No space left on device\n",
        ),
    ],
)
def test_output_that_cannot_be_written_is_a_failure(
    program, monkeypatch, capfd, failure, complaint
) -> None:
    class Full(io.StringIO):
        def flush(self) -> None:
            raise failure

    monkeypatch.setattr(sys, "stdout", Full())
    with pytest.raises(Ended) as ended:
        launch.main(program.__name__)
    assert ended.value.args == (1,)
    assert capfd.readouterr().err == complaint


def test_a_program_whose_reader_is_gone_says_nothing() -> None:
    complaint = run_hspace(closed_pipe())
    assert complaint == (1, b"")


def test_a_program_that_writes_to_a_full_disk_names_the_output() -> None:
    with open("/dev/full", "wb") as full:
        code, complaint = run_hspace(full)
    assert code == 1
    # Whether a write or the last flush fails depends on buffers.
    assert re.fullmatch(
        rb"Error: (standard output: )?No space left on device\n", complaint
    )


def closed_pipe():
    reading, writing = os.pipe()
    os.close(reading)
    return os.fdopen(writing, "wb")


def run_hspace(output):
    """Run hspace on a simulated cluster; return its exit code and what it says of errors."""
    words = f"import sys; sys.path.insert(0, {str(TOP)!r})"
    words += "; from ganeti.commands.htools.launch import main"
    words += "; main('ganeti.commands.htools.hspace')"
    argv = [sys.executable, "-c", words, "--simulate", "p,3,100g,8g,4"]
    with output:
        done = subprocess.run(argv, stdout=output, stderr=-1, check=False, timeout=60)
    return done.returncode, done.stderr


def test_a_program_that_fails_shows_how(program) -> None:
    def fail() -> int:
        raise KeyError("unexpected")

    program.main = fail
    with pytest.raises(KeyError):
        launch.main(program.__name__)


def test_packages_that_moved_are_looked_for(program, monkeypatch) -> None:
    monkeypatch.delitem(sys.modules, program.__name__)
    looked = []

    def find() -> None:
        looked.append("site")
        monkeypatch.setitem(sys.modules, program.__name__, program)

    monkeypatch.setattr(site, "main", find)
    with pytest.raises(Ended):
        launch.main(program.__name__)
    assert looked == ["site"]


def test_a_program_that_is_nowhere_is_named(program, monkeypatch) -> None:
    monkeypatch.delitem(sys.modules, program.__name__)
    monkeypatch.setattr(site, "main", lambda: None)
    with pytest.raises(ModuleNotFoundError, match=program.__name__):
        launch.main(program.__name__)
    gc.enable()


def test_an_interrupt_that_is_ignored_stays_so(program) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with pytest.raises(Ended):
        launch.main(program.__name__)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_an_interrupt_ends_a_program_without_a_word(tmp_path) -> None:
    pipe = tmp_path / "data"
    os.mkfifo(pipe)
    # Whoever runs the tests may ignore interrupts, which programs leave so.
    words = "import signal, sys; signal.signal(2, signal.default_int_handler)"
    words += f"; sys.path.insert(0, {str(TOP)!r})"
    words += "; from ganeti.commands.htools.launch import main"
    words += "; main('ganeti.commands.htools.hinfo')"
    argv = [sys.executable, "-I", "-c", words, "-t", str(pipe)]
    with subprocess.Popen(argv, stdout=-1, stderr=-1) as child:
        # It can be opened when the program reads, which is past its start.
        try:
            writing = until("the program reads", lambda: opened(pipe))
            child.send_signal(signal.SIGINT)
            reported = child.communicate(timeout=60)
            os.close(writing)
        finally:
            child.kill()
    assert child.returncode == -signal.SIGINT
    assert reported == (b"", b"")


def opened(pipe):
    """Return a pipe's writing end once somebody reads it."""
    try:
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None
