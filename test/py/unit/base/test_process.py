"""The process interface: programs that are not trusted to end well."""

import itertools
import re

import pytest

from fakes import patience
from ganeti.base import errors, process
from ganeti.base.process import SAFE_PATH, SystemRunner

LIMIT = 1 << 16


def shell(text, **options):
    options = {"timeout_s": patience.PATIENCE_S, "max_output": LIMIT} | options
    return SystemRunner().run_bounded(["/bin/sh", "-c", text], **options)


def test_outputs_come_back_whole() -> None:
    text = "head -c 60000 /dev/zero | tr '\\0' a; echo err >&2; exit 3"
    result = shell(text)
    assert (result.code, result.stdout, result.stderr) == (3, "a" * 60000, "err\n")


@pytest.mark.parametrize("stream", ["1", "2"])
def test_a_program_that_prints_without_end_is_killed(stream: str) -> None:
    result = shell(f"yes >&{stream}")
    assert result.failed
    assert result.too_long
    assert re.fullmatch(
        rf"printed too much \(wanted at most {LIMIT} bytes, found \d+ or more\) and was"
        " killed",
        result.reason,
    )
    assert result.printed > LIMIT
    assert len(result.output) <= LIMIT


def test_a_program_that_hangs_is_killed() -> None:
    # On a busy machine it may not even have begun when its time is over.
    for limit_s in itertools.accumulate(itertools.repeat(0.3), lambda s, _: 3 * s):
        result = shell("echo started; sleep 600", timeout_s=limit_s)
        assert result.timed_out
        if result.stdout:
            break
    assert result.stdout == "started\n"


@pytest.mark.parametrize("redirect", ["", ">/dev/null 2>&1"])
def test_what_a_program_leaves_running_ends_with_it(redirect: str) -> None:
    result = shell(f"sleep 600 {redirect} & echo $!")
    assert not result.timed_out
    assert result.code == 0
    child = int(result.stdout)
    patience.until("the child to be ended", lambda: patience.has_ended(child))


def test_a_program_that_closes_its_outputs_is_waited_for() -> None:
    result = shell("exec >&- 2>&-; sleep 0.05; exit 7")
    assert (result.code, result.output) == (7, "")


def trimmed(text, limit):
    return SystemRunner().run_trimmed(
        ["/bin/sh", "-c", text], env={"PATH": SAFE_PATH}, max_output=limit
    )


def test_short_outputs_are_not_trimmed() -> None:
    result = trimmed("printf %s aaaabbbb; printf %s cccc >&2; exit 3", 8)
    assert (result.code, result.stdout, result.stderr) == (3, "aaaabbbb", "cccc")


@pytest.mark.parametrize("stream", ["1", "2"])
def test_the_middle_of_a_long_output_is_left_out(stream: str) -> None:
    size = 3_000_000
    result = trimmed(
        f"exec >&{stream}; echo first; head -c {size} /dev/zero | tr '\\0' a;"
        " echo; echo last; exit 4",
        LIMIT,
    )
    assert result.code == 4
    assert result.output.startswith("first\na")
    assert result.output.endswith("a\nlast\n")
    left_out = size + len("first\n\nlast\n") - LIMIT
    assert f"a\n[{left_out} bytes of output left out]\na" in result.output
    assert len(result.output) < LIMIT + 100


def test_trimming_keeps_no_more_than_three_halves_of_the_limit() -> None:
    kept = process.Trimmed(100)
    for number in range(1000):
        kept.add(b"%06d\n" % number)
        assert kept.size <= 150
    lines = kept.content().split(b"\n")
    assert lines[0] == b"000000"
    assert lines[-2] == b"000999"
    assert b"[6900 bytes of output left out]" in lines


def test_a_trimmed_program_that_cannot_be_started() -> None:
    with pytest.raises(errors.CommandError, match="/none: cannot be run"):
        SystemRunner().run_trimmed(["/none"], env={}, max_output=10)


def test_a_bounded_command_reads_its_input_to_the_end():
    text = "x=1\n" * 100_000
    result = shell("wc -c", timeout_s=60, max_output=100, stdin=text)
    assert int(result.stdout) == len(text)
    assert shell("wc -c", timeout_s=60, max_output=100).stdout.strip() == "0"


def test_a_log_keeps_the_end_of_an_output_without_end(tmp_path):
    """Also while the command runs, which goes on.

    What is written while the file is shortened may be lost, so the last line waits.
    """
    path = tmp_path / "log"
    script = """
        while [ "$(stat -c %s log)" -ge "${size:-0}" ]
        do size=$(stat -c %s log); head -c 300000 /dev/zero; done
        until [ "$(stat -c %s log)" -le 200000 ] && head -c 50 log | grep -q left
        do :; done
        echo the end"""
    argv = ("sh", "-c", script)
    options = {"output_file": str(path), "timeout_s": patience.PATIENCE_S}
    with process.kept_short(str(path), 200_000):
        result = SystemRunner().run(argv, cwd=str(tmp_path), **options)
    assert not result.failed, result
    text = path.read_bytes()
    assert b"bytes of output left out]\n" in text[:50]
    assert text.endswith(b"the end\n")


def test_a_long_log_is_shortened_at_the_end(tmp_path):
    path = tmp_path / "log"
    with process.kept_short(str(path), 200_000):
        path.write_bytes(bytes(300_000) + b"the end\n")
    text = path.read_bytes()
    assert len(text) < 51_000
    assert text.endswith(b"the end\n")


def test_a_short_log_is_left_alone(tmp_path):
    path = tmp_path / "log"
    path.write_text("before\n")
    with process.kept_short(str(path), 20):
        SystemRunner().run(("echo", "after"), output_file=str(path))
    assert path.read_text() == "before\nafter\n"
