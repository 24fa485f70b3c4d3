"""``gnt-cluster simulate``: options, queries, output, progress; a real simulation."""

import itertools
import json
import os
import pathlib
import subprocess
import sys

import jsonschema
import pytest

from fakes import commands
from fakes.luxi_master import FakeMaster
from ganeti.devel.sim import command as simulate
from ganeti.devel.sim.simulation import Report

SCHEMA = pathlib.Path(__file__).parents[5] / "doc/schema/gnt-cluster-simulate.json"
MIB = 4096


def node(number, **changes):
    return {
        "uuid": f"00000000-0000-4000-8000-0000000000{number:02x}",
        "name": f"node{number}.example.com",
        "group": "default",
        "tags": [],
        **dict.fromkeys(("master_candidate", "master_capable", "vm_capable"), True),
        **dict.fromkeys(("offline", "drained"), False),
        "powered": True,
        "bootid": "x",
        "mtotal": MIB,
        "mnode": 100,
        "dfree": 99999,
        "ctotal": 4,
        "ndp/oob_program": "/usr/lib/ganeti/oob",
        **changes,
    }


def instance(number, **changes):
    return {
        "uuid": f"00000000-0000-4000-8000-0000000001{number:02x}",
        "name": f"web{number}.example.com",
        "forthcoming": False,
        "pnode": "node3.example.com",
        "snodes": [],
        "disk_template": "sharedfile",
        "disk.sizes": [1024],
        "admin_state": "up",
        "oper_state": True,
        "be/maxmem": 512,
        "be/minmem": 512,
        "be/vcpus": 1,
        "tags": [],
        "be/always_failover": False,
        "be/auto_balance": True,
        **changes,
    }


class Master(FakeMaster):
    """The master of a cluster whose automation is off."""

    def __init__(self, nodes=3):
        super().__init__()
        self.objects = {
            "group": [
                {
                    "uuid": "00000000-0000-4000-8000-0000000000a0",
                    "name": "default",
                    "alloc_policy": "preferred",
                    "custom_ipolicy": {},
                    "tags": [],
                }
            ],
            "node": [node(number) for number in range(1, nodes + 1)],
            "instance": [
                instance(1),
                instance(2, tags=["ganeti:watcher:autorepair:suspend"]),
            ],
        }
        self.cluster = {
            "name": "cluster1",
            "software_version": "1",
            "tags": [],
            "ipolicy": {},
            "master": "node1.example.com",
            "candidate_pool_size": 3,
            "default_iallocator": "hail",
            "default_iallocator_params": {},
            "diagnose_data_collector_filename": "",
            "enabled_data_collectors": {},
            "data_collector_interval": {},
        }


def run(line, master=None, **options):
    words = ["gnt-cluster", "simulate", *line]
    return commands.run(words, master or Master(), table=simulate.PROGRAM, **options)


@pytest.fixture
def idle(monkeypatch):
    """Simulations in which nothing happens; their requests."""
    requests = []

    class Idle:
        def __init__(self, description, events, *, begin):
            assert begin
            self.description, self.events = description, events
            requests.append(self)

        def run(self, seconds, on_progress):
            for part in range(1, 101):
                on_progress(seconds * part / 100)
            return Report(lines=(), instances=(), count=2, problems=(), seconds=1.0)

    monkeypatch.setattr(simulate, "Simulation", Idle)
    return requests


KILL = ("--event", "1m kill node3", "--horizon", "20m")
POLICY = ("--policy", "node-death=yes", "--policy", "repair=failover")


def test_instances_of_a_dead_node_move_as_their_tags_permit():
    master = Master()
    done = run([*KILL, *POLICY], master)
    assert (done.code, done.err) == (0, "")
    head, timeline, summary = done.out.split("\n\n")
    first, *policies = head.splitlines()
    assert first.startswith("Simulation of cluster1: 3 nodes, 2 instances, 0:20:00; ")
    assert policies == [
        "Policy: node-death: yes instead of no",
        "Policy: repair: failover instead of none",
    ]
    lines = timeline.splitlines()
    assert lines[0] == "0:01:00 event simulation: kill node3.example.com"
    assert "node node3.example.com: is offline" in timeline
    assert summary.splitlines()[:2] == [
        "Summary:",
        "  1 of 2 instances run elsewhere, or again:",
    ]
    assert "web1.example.com: node3.example.com -> node" in summary
    assert "  1 of 2 instances stay down although they should run:" in summary
    assert "web2.example.com: node3.example.com -> nowhere, 0:01:00: " in summary
    assert "suspended without limit" in summary
    assert [method for method, _args in master.calls] == [
        *("Query", "Query", "Query", "QueryClusterInfo"),
        *("QueryAutomation", "QueryCopies"),
    ]


def test_without_automation_the_instances_stay_down():
    done = run(KILL)
    assert done.code == 0
    assert "  2 of 2 instances stay down although they should run:" in done.out
    assert "Policy" not in done.out


@pytest.mark.usefixtures("idle")
def test_nothing_happens_to_a_cluster_in_order():
    done = run(["--horizon", "1h"])
    assert "\nNothing happens.\n" in done.out
    assert done.out.endswith(
        "Summary:\n  All of 2 instances run, or are stopped, as before.\n"
    )


def test_json_has_the_promised_form_and_repeats_itself():
    first = run([*KILL, *POLICY, "--json", "--seed", "5"])
    value = json.loads(first.out)
    jsonschema.validate(value, json.loads(SCHEMA.read_text()))
    assert (value["seconds"], value["seed"], value["instance_count"]) == (1200, 5, 2)
    assert value["events"] == [{"at": 60.0, "event": "kill node3.example.com"}]
    (moved, down) = value["instances"]
    assert (moved["before"], moved["primary"]) == (
        ["node3.example.com"],
        *moved["after"],
    )
    assert (down["after"], down["at"]) == ([], 60.0)
    assert run([*KILL, *POLICY, "--json", "--seed", "5"]).out == first.out


def test_a_lying_helper_breaks_a_rule_and_the_exit_code_says_so():
    events = ("helper node3 lies", "1m cut node3 both")
    words = [word for text in events for word in ("--event", text)]
    done = run([*words, *POLICY, "--horizon", "20m"])
    assert done.code == 1
    assert "Rules that automation broke:\n    instance web1" in done.out


def test_a_policy_may_be_in_a_file(tmp_path, idle):
    path = tmp_path / "night"
    path.write_text("node-death=yes # at night\nfreeze=no\n")
    done = run(["--horizon", "1m", "--policy", str(path)])
    assert "Policy: node-death: yes instead of no" in done.out
    assert idle[0].description.node_death


@pytest.mark.usefixtures("idle")
def test_an_instance_that_is_left_out_is_named():
    master = Master()
    master.objects["instance"][0]["disk_template"] = "mixed"
    done = run(["--horizon", "1m"], master)
    assert done.err == (
        "Note: instance web1.example.com is left out: its disk template is mixed\n"
    )


WRONG = {
    "--event explode": "event 'explode': wanted one of kill, ",
    "--event kill": "event 'kill': wanted 1 argument; its form is: kill NODE",
    "--event kill,node9": "node9 is no node of the cluster; wanted one of node1.ex",
    "--event kill,web1": "web1 is no node of the cluster",
    "--event tag,group:rack,x": "rack is no group of the cluster; wanted one of def",
    "--event 2h,thaw": "wanted a time before the horizon of 2:00:00, found 2:00:00",
    "--horizon soon": "--horizon: wanted a time from 1s to 30d, such as 90m, found",
    "--horizon 0": "--horizon: wanted a time from 1s to 30d, such as 90m, found '0'",
    "--policy speed=1": "--policy: wanted one of node-death=yes|no, ",
    "--policy /absent": "wanted KEY=VALUE or a file, found '/absent': No such file",
    "--policy repair:instance:web9=none": "web9 is no instance of the cluster",
    "--policy freeze=x,node-death=yes": "node-death=yes contradicts freeze=x",
}


def test_events_name_objects_as_other_commands_do(idle):
    texts = (f"kill {node(3)['uuid']}", "kill-guest web1", "cut node3 in node2")
    words = [word for text in texts for word in ("--event", text)]
    assert run(words).code == 0
    assert [str(event) for event in idle[0].events] == [
        "kill node3.example.com",
        "kill-guest web1.example.com",
        "cut node3.example.com in node2.example.com",
    ]


@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize("line", WRONG)
def test_wrong_input_is_one_error(line):
    option, value = line.split()
    spaced = value.replace(",", " ") if option == "--event" else value
    done = run([option, spaced])
    assert (done.code, done.out) == (1, "")
    *_head, text = done.err.splitlines()
    assert WRONG[line] in text


def test_a_file_that_is_no_text_is_refused(tmp_path):
    for name, data in (("bytes", b"\xff"), ("long", b"#" * (simulate.MAX_FILE + 1))):
        path = tmp_path / name
        path.write_bytes(data)
        done = run(["--policy", str(path)])
        assert done.code == 1
        assert f"{path}: wanted " in done.err.splitlines()[-1]


@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize("tty", [True, False])
def test_progress_is_shown_on_a_terminal_after_two_seconds(tty):
    times = itertools.chain((0.0, 1.9), itertools.repeat(2.1))
    done = run(["--horizon", "100m"], tty=tty, monotonic=lambda: next(times))
    assert ("simulated 0:02:00 of 1:40:00" in done.err) is tty
    assert "simulated 0:01:00" not in done.err


def test_a_failure_of_the_simulator_is_reported_without_a_traceback(monkeypatch):
    monkeypatch.setattr(simulate, "Simulation", None)
    done = run(["--horizon", "1m"])
    assert (done.code, done.out) == (1, "")
    assert "TypeError" in done.err
    assert "Traceback" not in done.err


def test_the_command_becomes_the_simulator_with_the_same_words_and_the_seed(
    monkeypatch,
):
    """Its help and its errors are those of the same row of the table."""
    started = []

    class Replaced(Exception):
        pass

    def execve(program, words, environ):
        started.append((program, words, environ))
        raise Replaced

    monkeypatch.setattr(os, "execve", execve)
    words = ["gnt-cluster", "simulate", "--seed", "7", "--horizon", "soon"]
    monkeypatch.setattr(sys, "argv", words)
    assert commands.run(words, environ={"LANG": "C"}).code == 1
    ((program, given, environ),) = started
    assert environ == {"LANG": "C", "PYTHONHASHSEED": "7"}
    done = subprocess.run(
        [program, *given[1:]], capture_output=True, check=False, text=True
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "--horizon: wanted a time from 1s to 30d, such as 90m" in done.stderr


def test_a_seed_that_python_does_not_take_is_refused():
    done = commands.run("gnt-cluster simulate --seed -1")
    assert (done.code, done.out) == (1, "")
    assert "--seed: wanted 0 to 4294967295, found -1" in done.err
