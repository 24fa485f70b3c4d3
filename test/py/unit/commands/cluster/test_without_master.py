"""Commands of gnt-cluster without a master: audit, getmaster, simulate."""

import gzip
import json
import os
import sys

import pytest

from fakes import commands
from fakes.luxi_master import FakeMaster
from ganeti.base.pathutils import Paths
from ganeti.base.text import audit_chain

TIME = "2026-03-01T10:00:0{}.000+00:00"
ROOT = {"via": "local", "uid": 0, "user": "root", "pid": 7}
ANN = {"via": "rapi", "user": "ann", "address": "192.0.2.1", "request": "0f"}


class Node:
    """The master's directories, with six lines in three files."""

    def __init__(self, root):
        self.environ = {"GANETI_ROOTDIR": str(root), "GANETI_HOSTNAME": "n1.tst"}
        self.data, self.logs = root / "var/lib/ganeti", root / "var/log/ganeti"
        self.data.mkdir(parents=True)
        self.logs.mkdir(parents=True)
        (self.data / "ssconf_master_node").write_text("n1.tst\n")
        previous, lines = audit_chain.NOTHING, []
        for number in range(1, 7):
            who = {**ROOT, "claimed_sudo_user": "bob\x1b"} if number % 2 else ANN
            record = {"n": number, "time": TIME.format(number), "event": "submit"}
            record |= {"job": number, "who": who, "ops": [], "prev": previous}
            lines.append(json.dumps(record).encode() + b"\n")
            previous = audit_chain.digest(lines[-1][:-1])
        (self.logs / "audit.log.2.gz").write_bytes(gzip.compress(b"".join(lines[:2])))
        (self.logs / "audit.log.1").write_bytes(b"".join(lines[2:4]))
        self.file = self.logs / "audit.log"
        self.file.write_bytes(b"".join(lines[4:]))
        (self.data / "audit-head").write_text(json.dumps([6, previous]))

    def run(self, *words):
        line = ["gnt-cluster", "audit", *words]
        return commands.run(line, FakeMaster(), environ=self.environ)


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path / "n1.tst")


def test_the_newest_changes_are_shown_on_one_line_each(node):
    lines = node.run().out.splitlines()
    assert [line.split()[0] for line in lines] == list("123456")
    assert "\x1b" not in lines[0]
    assert "root (claims to be bob" in lines[0]
    assert "by ann from 192.0.2.1 (rapi)" in lines[1]
    records = json.loads(node.run("-n", "2", "--json").out)
    assert [record["n"] for record in records] == [5, 6]
    assert node.run("--since", "2031-01-01").out == ""
    assert len(node.run("--since", "2026-02-01").out.splitlines()) == 6
    assert node.run("-n", "0").code == 1


def test_a_whole_log_is_verified(node):
    done = node.run("--verify")
    assert (done.code, done.out.splitlines()[-1]) == (0, "The audit log is whole.")
    (node.logs / "audit.log.2.gz").unlink()
    done = node.run("--verify")
    assert done.code == 0
    assert "Lines 1 to 2 are not here" in done.out


def test_what_was_done_to_the_log_is_named(node):
    whole = node.file.read_bytes()
    node.file.write_bytes(whole.splitlines(keepends=True)[0])
    done = node.run("--verify")
    assert done.code == 1
    assert "the end is cut: lines 6 to 6 are missing" in done.out
    node.file.write_bytes(whole.replace(b'"job": 5', b'"job": 8'))
    assert "line 5 was changed" in node.run("--verify").out
    node.file.write_bytes(whole)
    (node.logs / "audit.log.1").unlink()
    problems = json.loads(node.run("--verify", "--json").out)["problems"]
    assert problems == ["lines 3 to 4 are missing"]


def test_a_file_that_cannot_be_read_is_named(node):
    (node.logs / "audit.log.2.gz").write_bytes(b"x")
    done = node.run()
    assert done.code == 1
    assert "audit.log: cannot be read" in done.err


# getmaster prints the master from the files of this node, without any daemon.


@pytest.fixture
def environ(tmp_path):
    root = tmp_path / "n2.tst"
    paths = Paths(root=str(root), hostname="n2.tst")
    place = root / "var/lib/ganeti"
    assert str(place) == paths.data_dir
    place.mkdir(parents=True)
    (place / "ssconf_master_node").write_text("n1.tst\n")
    return {"GANETI_ROOTDIR": str(root), "GANETI_HOSTNAME": "n2.tst"}


def test_the_name_of_the_master_is_the_whole_output(environ):
    done = commands.run("gnt-cluster getmaster", environ=environ)
    assert (done.code, done.out, done.err) == (0, "n1.tst\n", "")


def test_programs_get_an_object(environ):
    done = commands.run("gnt-cluster getmaster --json", environ=environ)
    assert done.code == 0
    assert json.loads(done.out) == {"master_node": "n1.tst"}


def test_outside_of_a_cluster_there_is_no_master(tmp_path):
    root = str(tmp_path / "n2.tst")
    environ = {"GANETI_ROOTDIR": root, "GANETI_HOSTNAME": "n2.tst"}
    done = commands.run("gnt-cluster getmaster", environ=environ)
    assert (done.code, done.out) == (1, "")
    assert "cluster not initialized" in done.err
    assert "ssconf file for master_node" in done.err


# ``gnt-cluster simulate`` starts the simulator in its own place.


def test_only_the_seed_of_hashes_reaches_the_interpreter(monkeypatch):
    started = []

    def execve(program, words, environ):
        started.append((program, words, environ))
        raise SystemExit(0)

    monkeypatch.setattr(os, "execve", execve)
    given = {"PATH": "/bin", "TZ": "UTC", "PYTHONPATH": "/tmp/x", "PYTHONINSPECT": "1"}
    with pytest.raises(SystemExit):
        commands.run("gnt-cluster simulate --seed 7", environ=given)
    ((program, words, environ),) = started
    assert program == words[0] == sys.executable
    assert environ == {"PATH": "/bin", "TZ": "UTC", "PYTHONHASHSEED": "7"}
