"""The command line of virtual clusters: from words to calls and output."""

import os
import sys

import pytest

from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.devel.drill import runner
from ganeti.devel.vcluster import (
    agent,
    commands,
    etcd,
    isolation,
    lifecycle,
    network,
    nodes,
    serial,
)
from ganeti.devel.vcluster import layout as lay
from ganeti.protocols.ssh import account


class Control:
    """Records what a command does with nodes."""

    def __init__(self):
        self.calls = []
        self.warning = ""

    def call(self, node, words, extra):
        self.calls.append(("call", node.short, tuple(words), extra.get("PS1")))
        return 7

    def kill(self, node, daemon):
        self.calls.append(("kill", node.short, daemon))
        return 5

    def pause(self, node):
        self.calls.append(("pause", node.short))
        return 3

    def resume(self, node):
        self.calls.append(("resume", node.short))
        return 2

    def power_on(self, node):
        self.calls.append(("power_on", node.short))
        return self.warning

    def start_daemon(self, node, daemon):
        self.calls.append(("start_daemon", node.short, daemon))


@pytest.fixture
def control(monkeypatch):
    made = Control()
    monkeypatch.setattr(commands, "NodeControl", lambda _layout, _runner: made)
    return made


def make(tmp_path, monkeypatch, *, isolated=False):
    """Make the layout of a cluster of three nodes; commands load it."""
    layout = lay.plan(
        str(tmp_path), count=3, isolated=isolated, network="127.9", bindir="/opt/bin"
    )

    def load(directory):
        assert directory == str(tmp_path)
        return layout

    monkeypatch.setattr(lay.Layout, "load", load)
    return layout


@pytest.fixture
def layout(tmp_path, monkeypatch):
    return make(tmp_path, monkeypatch)


@pytest.fixture
def run(tmp_path, monkeypatch):
    def run(*words):
        monkeypatch.setattr(sys, "argv", ["vcluster", "-C", str(tmp_path), *words])
        return commands.main()

    return run


@pytest.mark.usefixtures("layout")
@pytest.mark.parametrize(
    ("words", "code", "call", "output"),
    [
        ("exec node2 ls -l", 7, ("call", "node2", ("ls", "-l"), None), ""),
        ("exec node2 -- ls --", 7, ("call", "node2", ("ls", "--"), None), ""),
        (
            *("shell node1", 7),
            ("call", "node1", ("/bin/bash", "--norc", "-i"), "node1# "),
            "",
        ),
        ("kill node3", 0, ("kill", "node3", None), "node3: 5 processes killed\n"),
        (
            *("kill node3 ganeti-noded", 0, ("kill", "node3", "ganeti-noded")),
            "node3: 5 processes killed\n",
        ),
        ("pause node1", 0, ("pause", "node1"), "node1: 3 processes paused\n"),
        ("resume node1", 0, ("resume", "node1"), "node1: 2 processes resumed\n"),
        ("start node1", 0, ("power_on", "node1"), ""),
        (
            *("start node1 ganeti-confd", 0),
            ("start_daemon", "node1", "ganeti-confd"),
            "",
        ),
    ],
)
def test_commands_about_nodes(
    run, control, monkeypatch, capsys, words, code, call, output
):
    monkeypatch.delenv("PS1", raising=False)
    assert run(*words.split()) == code
    assert control.calls == [call]
    assert capsys.readouterr() == (output, "")


def test_a_drill_has_its_numbers_from_the_command_line(run, monkeypatch):
    wanted = {"drills": ["kill"], "rounds": 2, "pairs": 3, "seed": 4, "goal": 5.5}
    seen = []
    monkeypatch.setattr(
        runner, "run_drills", lambda args, *_more: seen.append(vars(args)) or 0
    )
    numbers = ("--rounds=2", "--pairs=3", "--seed=4", "--goal=5.5")
    assert run("drill", "kill", *numbers) == 0
    assert run("drill") == 0
    defaults = {"drills": [], "rounds": 1, "pairs": 0, "seed": 0, "goal": None}
    for actual, expected in zip(seen, (wanted, defaults), strict=True):
        assert {name: actual[name] for name in expected} == expected


@pytest.mark.usefixtures("layout")
def test_a_start_with_trouble_warns(run, control, capsys):
    control.warning = "ganeti-mond did not start"
    assert run("start", "node1") == 0
    wanted = "vcluster: warning: ganeti-mond did not start\n"
    assert capsys.readouterr().err == wanted


@pytest.mark.usefixtures("layout", "control")
@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("exec node1", "vcluster: exec: wanted a command, found none\n"),
        ("kill node9", "vcluster: node node9: not in the virtual cluster"),
        ("heal", "vcluster: heal: the nodes of this cluster share the machine's"),
        ("partition node1 node2", "vcluster: partition: the nodes of this cluster"),
    ],
)
def test_refusals_are_one_line(run, capsys, words, text):
    assert run(*words.split()) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(text)
    assert captured.err.count("\n") == 1


@pytest.mark.usefixtures("control")
@pytest.mark.parametrize(
    ("words", "action"),
    [
        ("power status node2", "status"),
        ("power cycle node2", "cycle"),
        ("oob power-off node2", "off"),
        ("oob power-status node2", "status"),
    ],
)
def test_power_is_switched_here_or_by_the_agent(
    run, tmp_path, monkeypatch, capsys, words, action
):
    make(tmp_path, monkeypatch)
    monkeypatch.setattr(nodes, "power_act", lambda _l, _c, *rest: f"here {rest}\n")
    assert run(*words.split()) == 0
    assert capsys.readouterr() == (f"here {(action, 'node2')}\n", "")
    make(tmp_path, monkeypatch, isolated=True)
    monkeypatch.setattr(
        agent,
        "ask",
        lambda _layout, *rest: {"code": 4, "stdout": f"{rest}", "stderr": "trouble"},
    )
    assert run(*words.split()) == 4
    assert capsys.readouterr() == (f"{(action, 'node2')}", "trouble")


@pytest.mark.usefixtures("control")
def test_a_partition_cuts_both_sides_off_from_each_other(run, tmp_path, monkeypatch):
    layout = make(tmp_path, monkeypatch, isolated=True)
    done = []
    addresses = [node.address for node in layout.nodes]
    monkeypatch.setattr(isolation, "require_holder", lambda _l, node: node.short)
    monkeypatch.setattr(
        isolation, "holder", lambda _l, n: None if n.short == "node3" else n.short
    )
    monkeypatch.setattr(network, "cut", lambda pid, others: done.append((pid, others)))
    monkeypatch.setattr(network, "join", lambda pid, rest: done.append((pid, rest)))
    assert run("partition", "node1", "node2,node3") == 0
    first, second, third = addresses
    assert done == [
        ("node1", [second, third]),
        ("node2", [first]),
        ("node3", [first]),
    ]
    done.clear()
    assert run("heal") == 0
    assert done == [("node1", [second, third]), ("node2", [first, third])]


@pytest.mark.usefixtures("layout", "control")
def test_servers_of_etcd_have_numbers_from_1(run, monkeypatch):
    done = []
    for name in ("start", "kill", "signal_member"):
        monkeypatch.setattr(
            etcd, name, lambda _l, *rest, name=name: done.append((name, *rest))
        )
    for words in ("start 1", "kill 3", "pause 2", "resume 2"):
        assert run("etcd", *words.split()) == 0
    assert [row[:2] for row in done] == [
        ("start", 0),
        ("kill", 2),
        ("signal_member", 1),
        ("signal_member", 1),
    ]
    assert [row[2].name for row in done[2:]] == ["SIGSTOP", "SIGCONT"]


@pytest.mark.usefixtures("control")
def test_a_server_of_etcd_is_cut_off_from_everyone_else(
    run, tmp_path, monkeypatch, capsys
):
    make(tmp_path, monkeypatch)
    assert run("etcd", "cut", "2") == 1
    assert "isolated" in capsys.readouterr().err
    layout = make(tmp_path, monkeypatch, isolated=True)
    done = []
    for name in ("cut", "join"):
        monkeypatch.setattr(
            etcd, name, lambda _l, *rest, name=name: done.append((name, *rest))
        )
    assert run("etcd", "cut", "2") == run("etcd", "join", "2") == 0
    others = [etcd.address(layout, 0), etcd.address(layout, 2)]
    others += [node.address for node in layout.nodes]
    assert done == [("cut", 1, others), ("join", 1, others)]


@pytest.mark.usefixtures("layout", "control")
def test_the_serial_line_is_shown_until_a_prompt(run, monkeypatch):
    done = []

    def listen(_layout, instance, *, until, timeout_s, say):
        assert callable(say)
        done.append((instance, until, timeout_s))

    monkeypatch.setattr(serial, "listen", listen)
    assert run("serial", "web1") == 0
    assert run("serial", "web1", "--until", "# $", "--timeout", "5") == 0
    assert done == [("web1", "login: ?$", 60.0), ("web1", "# $", 5.0)]


@pytest.mark.usefixtures("control")
def test_logs_show_the_ends_of_files_that_have_lines(run, layout, capsys):
    folder = layout.host_path(layout.node("node1"), "/var/log/ganeti")
    os.makedirs(f"{folder}/kvm")
    for name, text in (("b.log", "1\n2\n3\n"), ("a.log", "x\n"), ("empty.log", "")):
        with open(f"{folder}/{name}", "w") as out:
            out.write(text)
    assert run("logs", "node1", "-n", "2") == 0
    assert capsys.readouterr().out == (
        f"==> {folder}/a.log <==\nx\n\n==> {folder}/b.log <==\n2\n3\n\n"
    )


def test_without_a_cluster_there_is_nothing_to_end(run, tmp_path, capsys):
    assert run("down") == 0
    wanted = f"{tmp_path}: no virtual cluster, nothing to do\n"
    assert capsys.readouterr().out == wanted


@pytest.mark.parametrize("keep", [False, True])
def test_down_prints_how_many_processes_it_ended(
    run, layout, tmp_path, monkeypatch, capsys, keep
):
    monkeypatch.setattr(lay.Layout, "exists", lambda _directory: True)

    def down(ended, _runner, **options):
        assert ended is layout
        assert options == {"keep": keep}
        return 9

    monkeypatch.setattr(lifecycle, "down", down)
    assert run("down", *(["--keep"] if keep else [])) == 0
    assert capsys.readouterr().out == f"{tmp_path}: down, 9 processes ended\n"


def test_an_existing_cluster_is_not_replaced(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(lay.Layout, "exists", lambda _directory: True)
    assert run("up") == 1
    assert f"{tmp_path}: a virtual cluster exists already" in capsys.readouterr().err


def test_the_directory_is_that_of_the_environment_or_of_the_user(monkeypatch):
    monkeypatch.setenv("VCLUSTER_DIR", "/srv/vc")
    assert commands.default_directory() == "/srv/vc"
    monkeypatch.delenv("VCLUSTER_DIR")
    assert commands.default_directory().startswith("/tmp/vcluster-")


def test_a_user_without_an_account_gets_one_sentence(monkeypatch):
    def getpwuid(uid):
        raise KeyError(uid)

    monkeypatch.setattr("pwd.getpwuid", getpwuid)
    monkeypatch.delenv("VCLUSTER_DIR", raising=False)
    assert commands.default_directory() == f"/tmp/vcluster-{os.getuid()}"
    with pytest.raises(errors.OpPrereqError, match="has no account with this number"):
        account.login_user(Paths("/srv/n1", "n1"))


@pytest.mark.usefixtures("layout", "control")
def test_an_interrupt_is_a_line_and_a_failure(run, monkeypatch, capsys):
    def interrupted(*_args, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(serial, "listen", interrupted)
    assert run("serial", "web1") == 1
    assert capsys.readouterr().err == "\nvcluster: serial: interrupted\n"
