"""``gnt-cluster status``: one screen, a verdict as exit code, and no answer at all."""

import json
import os
import re

import msgspec
import pytest

from fakes import commands
from fakes.luxi_master import FakeMaster
from ganeti.base import errors, pathutils
from ganeti.decisions.status.document import document
from ganeti.decisions.status.facts import (
    CopyFact,
    Facts,
    GuestFact,
    JobFact,
    NodeFact,
)

NOW = 1_700_000_000.0
FINE = Facts(
    now=NOW,
    cluster="cluster1.example.com",
    master="node1.example.com",
    release="3.1.1",
    term="7 (node1)",
    revision=1234,
    store="file",
    nodes=tuple(
        NodeFact(
            name=f"node{n}.example.com",
            release="3.1.1",
            memory_total=256 << 10,
            memory_free=100 << 10,
            cpus=64,
        )
        for n in range(1, 21)
    ),
    copies=(CopyFact(name="node2"), CopyFact(name="node3")),
    instances={"running": 4990, "ADMIN_down": 10},
    jobs={"running": 4, "waiting": 1},
    running=tuple(
        JobFact(id=n, summary=f"INSTANCE_MIGRATE(web{n}{'x' * 60})", time=NOW - 12)
        for n in range(4)
    ),
    certificates={"/var/lib/ganeti/server.pem": 320.5 * 86400},
    memory_promised=3 << 20,
    vcpus_promised=9000,
)


class Master(FakeMaster):
    """A master in some state."""

    def __init__(self, facts=FINE, **changes):
        super().__init__()
        self.facts = msgspec.structs.replace(facts, **changes)

    def _QueryStatus(self):
        return document(self.facts)


def test_a_healthy_cluster_fits_a_screen():
    done = commands.run("gnt-cluster status", Master())
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("cluster1.example.com: OK, 2023-11-1")
    assert lines[1:] == [
        "Master:       node1.example.com, term 7 (node1)",
        "Changes:      accepted, revision 1234; 3 of 3 candidates current; store: file",
        "Nodes:        20: 20 online",
        "Instances:    5000: 4990 running, 10 ADMIN_down",
        "Jobs:         4 running, 1 waiting, 0 queued, 0 failed within the last hour",
        *(f"  {n}:          INSTANCE_MIGRATE(web{n}{'x' * 42}..." for n in (1, 2, 3)),
        "Automation:   on, 0 incidents, 0 node deaths",
        "Memory:       3.0T promised of 5.0T, 2.0T free",
        "CPUs:         9000 virtual on 1280",
        "N+1:          yes",
        "Certificates: next end in 320 days: /var/lib/ganeti/server.pem",
        "Releases:     3.1.1 on 20 nodes",
    ]


def down(number):
    name = f"web{number}\x1b[2J"
    return GuestFact(name=name, node="node1", status="ERROR_down", wanted="up")


def test_findings_say_what_to_do_and_decide_on_the_exit_code():
    frozen = commands.run("gnt-cluster status", Master(freeze=("rack 2", NOW)))
    assert frozen.code == 1
    assert frozen.out.splitlines()[-2:] == [
        "WARNING: cluster cluster1.example.com: automation is frozen: rack 2",
        "  gnt-cluster thaw",
    ]
    assert "Automation:   frozen since 2023-" in frozen.out
    done = commands.run("gnt-cluster status", Master(guests=tuple(map(down, range(9)))))
    assert done.code == 2
    assert done.out.splitlines()[0].startswith("cluster1.example.com: CRITICAL, ")
    assert done.out.splitlines()[-3:] == [
        "CRITICAL: instance web4\\x1b[2J: should run on node1, and does not",
        "  gnt-instance startup web4\\x1b[2J",
        "and 4 more: gnt-cluster status --json",
    ]


def test_a_terminal_gets_the_same_text_with_colours():
    guests = tuple(map(down, range(2)))
    master = Master(guests=guests, instances={"running": 1, "ERROR_down": 2})
    piped = commands.run("gnt-cluster status", master)
    shown = commands.run("gnt-cluster status", master, tty=True)
    assert "\033[1;31mCRITICAL\033[0m: instance web0\\x1b[2J: " in shown.out
    assert "\033[32m1 running\033[0m, \033[1;31m2 ERROR_down\033[0m" in shown.out
    assert re.sub(r"\033\[[0-9;]*m", "", shown.out) == piped.out
    assert "\033" not in piped.out


def test_json_is_the_answer_of_the_master():
    master = Master(is_drained=True)
    done = commands.run("gnt-cluster status --json", master)
    assert done.code == 1
    assert json.loads(done.out) == document(master.facts)


def on_node(tmp_path, master="node1.example.com"):
    """Return the environment of node1, whose files name the master."""
    root = tmp_path / "node1.example.com"
    environ = {
        pathutils.ROOTDIR_ENV: str(root),
        pathutils.HOSTNAME_ENV: "node1.example.com",
    }
    paths = pathutils.from_environ(environ)
    for directory in (paths.data_dir, paths.run_dir, paths.log_dir):
        os.makedirs(directory)
    with open(paths.data("ssconf_master_node"), "w", encoding="utf-8") as stream:
        stream.write(f"{master}\n")
    return environ


@pytest.mark.parametrize("words", ["", " --json"])
@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            errors.NoMasterError("/socket"),
            "ganeti-masterd does not run on this node, which is the master",
        ),
        (
            errors.LuxiTimeoutError("QueryStatus: no answer within 3.5 seconds"),
            "QueryStatus: no answer within 3.5 seconds",
        ),
        (errors.LuxiPermissionError("/socket"), "only root may ask the master daemon"),
        (
            errors.RequestError("Failed to parse request: unknown method"),
            "the master daemon is of an earlier release; restart it",
        ),
        (errors.ConnectionClosedError("broke"), "broke"),
    ],
)
def test_no_answer_is_critical_and_one_sentence(tmp_path, error, text, words):
    master = Master()
    master.down = error
    environ = on_node(tmp_path)
    done = commands.run(f"gnt-cluster status{words}", master, environ=environ)
    assert (done.code, done.err) == (2, "")
    if words:
        (finding,) = json.loads(done.out)["findings"]
        assert (finding["object"], finding["text"]) == ("node1.example.com", text)
        return
    first, *command = done.out.splitlines()
    assert first == f"CRITICAL: cluster node1.example.com: {text}"
    assert all(line.startswith("  /") for line in command)


def test_on_another_node_the_master_is_named(tmp_path):
    master = Master()
    master.down = errors.NoMasterError("/socket")
    environ = on_node(tmp_path, "node7.example.com")
    done = commands.run("gnt-cluster status", master, environ=environ)
    assert done.code == 2
    assert "please connect to 'node7.example.com'" in done.out
    assert len(done.out.splitlines()) == 1
