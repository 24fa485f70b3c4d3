"""An interrupt ends a command wherever it arrives."""

import os
import signal
import subprocess
import sys
import weakref

import pytest

from ganeti.devel.vcluster.interrupts import Interrupts


def interrupt():
    signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def usual_handler():
    # Whoever runs the tests may ignore interrupts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_ends_the_block_at_once():
    with pytest.raises(KeyboardInterrupt), Interrupts():
        interrupt()
        pytest.fail("the block went on")


#: Runs a command that fails, and presses Ctrl-C when its error is written.
ENDING = """
import signal, sys
from ganeti.devel.vcluster import commands
signal.signal(signal.SIGINT, signal.default_int_handler)
class Interrupted:
    def write(self, text):
        sys.stderr = sys.__stderr__
        sys.stderr.write(text)
        signal.raise_signal(signal.SIGINT)
    def flush(self):
        pass
sys.argv = ["vcluster", "-C", sys.argv[1], "status"]
sys.stderr = Interrupted()
commands.main()
"""


def test_an_interrupt_while_a_command_ends_prints_no_traceback(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", ENDING, str(tmp_path / "none")],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.stderr.startswith("vcluster: ")
    assert "Traceback" not in done.stderr
    assert done.returncode == -signal.SIGINT


#: Is interrupted in a callback of the interpreter, and goes on without any check.
DROPPED = """
import signal, time, weakref
from ganeti.devel.vcluster.interrupts import Interrupts
signal.signal(signal.SIGINT, signal.default_int_handler)
class Something:
    pass
try:
    with Interrupts():
        something = Something()
        reference = weakref.ref(
            something, lambda _reference: signal.raise_signal(signal.SIGINT)
        )
        del something
        time.sleep(300)
except KeyboardInterrupt:
    print("interrupted")
"""


#: The interrupt that is sent again arrives while the hook still starts the thread.
EARLY = DROPPED.replace(
    "try:",
    """
import threading
start = threading.Thread.start
def started(thread):
    start(thread)
    signal.raise_signal(signal.SIGINT)
threading.Thread.start = started
try:""",
)


@pytest.mark.parametrize("program", [DROPPED, EARLY])
def test_a_dropped_interrupt_is_sent_again_and_not_printed(program):
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("interrupted\n", "")


def test_other_exceptions_that_are_dropped_are_printed(capsys):
    def fail(_reference):
        raise ValueError("broken")

    class Something:
        pass

    before = sys.unraisablehook
    sys.unraisablehook = lambda about: print("dropped", about.exc_value)
    try:
        with Interrupts():
            something = Something()
            reference = weakref.ref(something, fail)
            del something
        assert reference() is None
    finally:
        sys.unraisablehook = before
    assert capsys.readouterr().out == "dropped broken\n"


def test_an_interrupt_that_the_interpreter_drops_is_noticed_at_the_next_check():
    class Something:
        pass

    with Interrupts() as interrupts:
        something = Something()
        reference = weakref.ref(something, lambda _reference: interrupt())
        interrupts.check()
        del something  # calls the function; the interpreter drops its exception
        assert reference() is None
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()


def test_a_deferred_interrupt_is_raised_at_the_end():
    reached = []
    with Interrupts() as interrupts:
        with pytest.raises(KeyboardInterrupt), interrupts.deferred():
            interrupt()
            reached.append("end")
        assert reached == ["end"]
    with Interrupts() as interrupts, interrupts.deferred():
        pass


def test_a_failure_of_a_deferred_block_stays_that_failure():
    with (
        Interrupts() as interrupts,
        pytest.raises(ValueError, match="broken"),
        interrupts.deferred(),
    ):
        interrupt()
        raise ValueError("broken")


def test_interrupts_are_not_deferred_after_the_block():
    with Interrupts() as interrupts:
        with interrupts.deferred():
            pass
        with pytest.raises(KeyboardInterrupt):
            interrupt()


def test_a_second_interrupt_does_not_end_the_removal_after_the_first():
    reached = []
    with (
        Interrupts() as interrupts,
        pytest.raises(KeyboardInterrupt),
        interrupts.once(),
    ):
        try:
            interrupt()
        finally:
            interrupt()
            reached.append("removed")
    assert reached == ["removed"]
    with Interrupts() as interrupts:
        with interrupts.once():
            pass
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                interrupt()


def test_a_program_that_ignores_interrupts_goes_on_ignoring_them():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Interrupts() as interrupts:
        interrupt()
        interrupts.check()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
