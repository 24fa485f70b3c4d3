"""Out-of-band helpers, as real programs."""

import os
import time

import pytest

from fakes import nodes, patience
from ganeti.base import errors
from ganeti.node.calls import scripts


@pytest.fixture
def node(tmp_path):
    return nodes.make_node(tmp_path, time=nodes.CountedClock())


def program(path, text, mode=0o755):
    with open(path, "w") as stream:
        stream.write(f"#!/bin/sh\n{text}\n")
    os.chmod(path, mode)
    return str(path)


def run(node, text, command="power-status", timeout=patience.PATIENCE_S):
    path = program(f"{node.paths.root}/oob", text)
    return nodes.call(node, "run_oob", path, command, "n2.tst", timeout)


def test_helpers_answer_json_or_nothing(node):
    assert run(node, """echo '{"powered": true}'""") == {"powered": True}
    assert run(node, "true", "power-on") is None
    assert run(node, """echo "[[\\"$1 $2\\", \\"OK\\"]]" """, "health") == [
        ["health n2.tst", "OK"]
    ]


def test_helpers_of_virtual_nodes_know_their_cluster(node, monkeypatch):
    monkeypatch.setenv("LEAK", "from the daemon")
    answer = run(node, 'echo "\\"$GANETI_ROOTDIR $GANETI_HOSTNAME$LEAK\\""')
    assert answer == f"{node.paths.root} {node.paths.hostname}"


@pytest.mark.parametrize(
    ("text", "timeout", "message"),
    [
        ("echo out; echo broken >&2; exit 1", 60, r"failed \(broken\)$"),
        ("echo out; exit 1", 60, r"failed \(out\)$"),
        ("exit 3", 60, r"failed \(exited with code 3\)$"),
        ("kill -9 $$", 60, r"failed \(was ended by signal 9\)$"),
        (
            "sleep 600",
            0.2,
            "execution timeout exceeded, OOB program execution aborted$",
        ),
        ("yes", 60, r"failed \(printed too much \(.*\) and was killed\)$"),
        ("yes >&2", 60, r"failed \(printed too much \(.*\) and was killed\)$"),
        ("echo nonsense", 60, "not JSON"),
        ("head -c 60000 /dev/zero | tr '\\0' '['", 60, "not JSON"),
        ("printf '\\377\\376'", 60, "not JSON"),
    ],
)
def test_failures(node, text, timeout, message):
    with pytest.raises(errors.OpExecError, match=message) as caught:
        run(node, text, timeout=timeout)
    assert len(str(caught.value)) < 1200


def test_a_program_that_cannot_be_started(node):
    path = program(f"{node.paths.root}/oob", "")
    with open(path, "w") as stream:
        stream.write("#!/nonexistent/interpreter\n")
    with pytest.raises(errors.OpExecError, match=r"execution failed .*cannot be run"):
        nodes.call(node, "run_oob", path, "health", "n2.tst", 60)


def test_only_the_end_of_a_long_error_is_shown(node):
    with pytest.raises(errors.OpExecError, match="the reason") as caught:
        run(
            node, "head -c 9000 /dev/zero | tr '\\0' a >&2; echo the reason >&2; exit 1"
        )
    assert len(str(caught.value)) < 1200


@pytest.mark.parametrize(
    ("command", "timeout"), [("explode", 60), ("health", 0), ("health", -1)]
)
def test_wrong_requests_are_refused(node, command, timeout):
    with pytest.raises(errors.OpExecError, match=r"explode|time limit"):
        run(node, "true", command, timeout=timeout)


def test_the_time_limit_ends_the_whole_process_group(node, tmp_path):
    pids = tmp_path / "pids"
    text = f"sleep 600 & echo $! >>{pids}; sleep 600 & echo $! >>{pids}; wait"
    # On a busy machine the time may be over before both are started.
    for limit_s in (1, 5, 25):
        pids.write_text("")
        with pytest.raises(errors.OpExecError, match="timeout exceeded"):
            run(node, text, timeout=limit_s)
        numbers = [int(line) for line in pids.read_text().split()]
        if len(numbers) == 2:
            break
    assert len(numbers) == 2
    for number in numbers:
        patience.until(
            "the child to be ended", lambda number=number: patience.has_ended(number)
        )


def test_a_power_state_waits_for_helpers_that_outlive_their_daemon(
    node, tmp_path, monkeypatch
):
    """A helper leaves its session, as one whose daemon was killed."""
    monkeypatch.setattr(scripts, "_OOB_END_S", 0.0)
    begun, end = tmp_path / "begun", tmp_path / "end"
    left = f"setsid sh -c ': >{begun}; until [ -e {end} ]; do sleep 0.05; done'"
    helper = f"{left} >/dev/null 2>&1 & until [ -e {begun} ]; do sleep 0.05; done"
    assert run(node, helper, "power-off") is None
    text = """echo '{"powered": true}'"""
    with pytest.raises(errors.OpExecError, match=r"still switches node n2\.tst off"):
        run(node, text, timeout=0.2)
    end.touch()
    assert run(node, text) == {"powered": True}


def test_a_name_that_is_no_name_of_a_node_is_refused(node, tmp_path):
    path = program(tmp_path / "oob", "")
    with pytest.raises(errors.OpExecError, match="invalid name of a node"):
        nodes.call(node, "run_oob", path, "power-off", "../x", 60)


def test_helpers_run_in_parallel_and_each_has_its_result(node, tmp_path):
    """Each helper waits until all have begun: one after the other would never end."""
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    text = f"""
        : >{meeting}/$2
        while [ $(ls {meeting} | wc -l) -lt 20 ]; do sleep 0.05; done
        [ $2 != n7 ] || {{ echo $2 is ill >&2; exit 1; }}
        echo "{{\\"powered\\": true, \\"name\\": \\"$2\\"}}"
    """
    path = program(tmp_path / "oob", text)
    helpers = [[path, f"n{number}"] for number in range(20)]
    helpers.insert(3, [f"{path}.gone", "n20"])
    rows = nodes.call(
        node, "run_oob_many", helpers, "power-status", patience.PATIENCE_S, 0.0
    )
    expected = [(True, {"powered": True, "name": f"n{n}"}) for n in range(20)]
    expected[7] = (False, "OOB program execution failed (n7 is ill)")
    gone = f"OOB program is not run: {path}.gone does not exist"
    expected.insert(3, (False, gone))
    assert rows == expected


def test_a_pause_lies_between_two_starts(node, tmp_path):
    path = program(tmp_path / "oob", f"date +%s.%N >>{tmp_path}/times")
    helpers = [[path, f"n{number}"] for number in range(3)]
    began = time.monotonic()
    rows = nodes.call(node, "run_oob_many", helpers, "power-on", 60, 0.3)
    assert rows == [(True, None)] * 3
    assert time.monotonic() - began >= 0.6


def test_a_hanging_helper_does_not_delay_the_others(node, tmp_path):
    path = program(tmp_path / "oob", '[ $2 != n0 ] || sleep 600; echo "{}"')
    helpers = [[path, f"n{number}"] for number in range(3)]
    rows = nodes.call(node, "run_oob_many", helpers, "power-status", 5, 0.0)
    assert [succeeded for succeeded, _ in rows] == [False, True, True]
    assert "timeout exceeded" in rows[0][1]
