"""``take-over`` from its words to the steps on nodes, and the ways to other nodes."""

import contextlib
import json
import os
import pathlib
import sys

import pytest

from fakes import cluster, ganeti2
from ganeti.base import errors
from ganeti.base.constants import versions
from ganeti.base.pathutils import Paths
from ganeti.base.process import RunResult
from ganeti.migration import old_config
from ganeti.migration.takeover import access, main, steps
from ganeti.migration.takeover import journal as record
from ganeti.migration.takeover import node as node_module
from ganeti.migration.takeover.journal import Target
from ganeti.node.hypervisor.registry import DRIVERS
from ganeti.protocols import ssconf

MASTER, OTHER = "node1.vc.test", "node2.vc.test"


class Node:
    """A node that keeps its steps and reports what a test says."""

    def __init__(self, target, reports):
        self.target, self.reports, self.ran = target, reports, []

    def run(self, step):
        self.ran.append(step)
        more = self.reports.get(self.target.name, {})
        values = {"release": versions.RELEASE_VERSION, "running": ()} | more
        return node_module.Report(**values)


class Program:
    """A master's directories, and runs of the program there."""

    def __init__(self, tmp_path, monkeypatch, capsys):
        self.paths = Paths(root=str(tmp_path / MASTER), hostname=MASTER)
        self.reports, self.logins, self.done = {}, [], []
        self.monkeypatch, self.capsys = monkeypatch, capsys
        for path in (self.paths.data("queue"), self.paths.run_dir, self.paths.lock_dir):
            os.makedirs(path, exist_ok=True)
        config = pathlib.Path(self.paths.data("config.data"))
        config.write_text(ganeti2.DEBIAN.read_text())
        name = json.loads(config.read_text())["cluster"]["cluster_name"]
        values = {
            "cluster_name": name,
            "master_node": MASTER,
            "online_nodes": f"{OTHER}\n{MASTER}",
            "node_primary_ips": f"{MASTER} 192.0.2.1\n{OTHER} 192.0.2.2",
            "ssh_ports": f"{MASTER}=22",
            "master_candidates": MASTER,
        }
        ssconf.write(self.paths, values)
        # A node where the program of a daemon is not installed.
        monkeypatch.setattr(Paths, "daemons_dir", str(tmp_path))
        monkeypatch.setattr(main.common, "own_paths", lambda: self.paths)
        monkeypatch.setattr(main.access, "connected", self.connected)
        monkeypatch.setattr(main, "findings_of_configuration", self.findings)
        program = self

        def run(made):
            program.run_steps(made)

        monkeypatch.setattr(main.steps.Steps, "run", run)
        self.obstacles, self.notes = (), ()

    def findings(self, _snapshot, _drivers):
        return main.Findings(self.obstacles, self.notes)

    @contextlib.contextmanager
    def connected(self, _paths, _process, targets, daemon_util, *, check_host_keys):
        self.logins.append((daemon_util, check_host_keys))
        self.nodes = [Node(target, self.reports) for target in targets]
        yield self.nodes

    def run_steps(self, made):
        self.done.append((made.journal.todo, made.journal.is_back))
        self.guests = made.journal.guests

    def run(self, *words, answer=""):
        """Run it; return exit status, lines of output, and of errors."""
        self.monkeypatch.setattr(sys, "argv", ["take-over", *words])
        self.monkeypatch.setattr(sys, "stdin", _Lines(answer))
        status = main.main()
        out, err = self.capsys.readouterr()
        return status, out.splitlines(), err.splitlines()


class _Lines:
    def __init__(self, text):
        self.text = text

    def readline(self):
        return self.text


@pytest.fixture
def program(tmp_path, monkeypatch, capsys):
    return Program(tmp_path, monkeypatch, capsys)


def store(program, journal):
    path = steps.journal_path(program.paths)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    record.save(path, journal)


def test_a_plan_lists_the_steps_and_changes_nothing(program):
    status, out, err = program.run("--plan")
    assert (status, err, program.done) == (0, [], [])
    assert out[0] == "Steps:"
    assert out[1].startswith("  1. ")
    assert out[-5].startswith("The way back, take-over --undo, is possible until")
    assert program.logins == [("/usr/lib/ganeti/daemon-util", True)]
    assert [node.ran for node in program.nodes] == [["look"], ["look"]]
    assert [(n.target.name, n.target.port) for n in program.nodes] == [
        (MASTER, 22),
        (OTHER, 22),
    ]
    assert [n.target.is_candidate for n in program.nodes] == [True, False]


@pytest.mark.parametrize("answer", ["y\n", "YES\n", " yes \n"])
def test_a_take_over_runs_after_a_yes(program, answer):
    program.reports = {OTHER: {"guests": {"web1": 77}}}
    words = ("--daemon-util", "/old/daemon-util", "--no-ssh-key-check")
    status, out, _err = program.run(*words, answer=answer)
    assert status == 0
    assert program.logins == [("/old/daemon-util", False)]
    ((todo, is_back),) = program.done
    assert (len(todo) > 3, is_back) == (True, False)
    assert program.guests == {"web1": (OTHER, 77)}
    assert any(line.startswith("Continue? [y/N] Cluster ") for line in out)


@pytest.mark.parametrize("answer", ["", "n\n", "\n", "yess\n"])
def test_without_a_yes_nothing_is_changed(program, answer):
    status, _out, err = program.run(answer=answer)
    assert (status, err, program.done) == (1, ["take-over: nothing was changed"], [])


def test_force_does_not_ask(program):
    status, out, _err = program.run("-f")
    assert (status, len(program.done)) == (0, 1)
    assert not any("Continue?" in line for line in out)


def test_obstacles_are_listed_and_end_the_take_over(program):
    program.obstacles, program.notes = ("no such template",), ("a note",)
    program.reports = {
        MASTER: {"problems": ("x" * 600,), "running": ("ganeti-rapi",)},
        OTHER: {"release": "0.1"},
    }
    pathlib.Path(program.paths.store_db).touch()
    status, out, err = program.run("--force")
    assert (status, program.done) == (1, [])
    own = versions.RELEASE_VERSION
    assert out == [
        "  note: a note",
        (
            f"  note: node {MASTER}: ganeti-rapi is not offered, and does not run"
            " afterwards"
        ),
        "  obstacle: no such template",
        (
            f"  obstacle: {program.paths.store_db} exists: this node has a store of this"
            " implementation"
        ),
        f"  obstacle: node {MASTER}: {'x' * 500}",
        (
            f"  obstacle: node {OTHER}: has release 0.1 of this implementation, this"
            f" node has {own}"
        ),
    ]
    assert err[0].endswith(
        "cannot be taken over: 4 obstacles, listed above; nothing was changed"
    )


def test_jobs_that_have_not_ended_are_an_obstacle(program, monkeypatch):
    monkeypatch.setattr(main.old_jobs, "unfinished", lambda _folder: ["12 (running)"])
    status, out, _err = program.run("--force")
    assert status == 1
    assert out == [
        (
            "  obstacle: job 12 (running) has not ended; let the queue become empty"
            " (gnt-cluster queue drain), or cancel it"
        )
    ]


def test_an_interrupted_take_over_continues_without_new_checks(program):
    journal = main._new_journal(program.paths, "/old/daemon-util")
    store(program, journal.replace(over=journal.todo[:2]))
    status, out, _err = program.run("--force", "--daemon-util", "/other")
    title = steps.title(journal.todo[2], journal)
    assert (status, out[0]) == (0, f"Continuing at the step: {title}")
    assert program.done == [(journal.todo[2:], False)]
    assert program.logins == [("/old/daemon-util", True)]
    assert [node.ran for node in program.nodes] == [[], []]


def test_a_finished_one_is_not_repeated(program):
    journal = main._new_journal(program.paths, "/old/daemon-util")
    store(program, journal.replace(over=record.OVER))
    status, _out, err = program.run("--force")
    assert status == 1
    assert err == [f"take-over: cluster {journal.cluster} is taken over already"]


def test_the_way_back_must_be_finished_first(program):
    journal = main._new_journal(program.paths, "/old/daemon-util")
    store(program, journal.replace(over=record.OVER).turned())
    status, _out, err = program.run("--force")
    assert status == 1
    assert err == [
        (
            "take-over: the way back was begun and not finished; finish it with take-over"
            " --undo"
        )
    ]


def test_the_way_back_needs_a_record(program):
    status, _out, err = program.run("--undo")
    assert status == 1
    assert err == ["take-over: this node has no record of a take-over"]


def test_the_way_back_runs_its_steps(program, monkeypatch):
    monkeypatch.setattr(steps, "incompatible_changes", lambda *_: [])
    journal = main._new_journal(program.paths, "/old/daemon-util").replace(
        over=record.OVER
    )
    store(program, journal)
    status, out, _err = program.run("--undo", "--plan")
    assert (status, out[0], program.done) == (0, "Steps:", [])
    status, _out, err = program.run("--undo", answer="no\n")
    assert (status, err) == (1, ["take-over: nothing was changed"])
    status, out, _err = program.run("--undo", "--no-ssh-key-check", answer="y\n")
    assert status == 0
    assert out[-1].endswith(
        f"Cluster {journal.cluster} runs under the other Ganeti again."
    )
    assert program.done == [(journal.turned().todo, True)]
    assert program.logins == [("/old/daemon-util", False)]


def test_changes_that_the_other_cannot_read_stop_the_way_back(program, monkeypatch):
    monkeypatch.setattr(steps, "incompatible_changes", lambda *_: ["a", "b"])
    store(
        program, main._new_journal(program.paths, "/old/util").replace(over=record.OVER)
    )
    status, out, err = program.run("--undo", "--force")
    assert (status, out, program.done) == (
        1,
        ["  cannot go back: a", "  cannot go back: b"],
        [],
    )
    assert err == [
        (
            "take-over: the other Ganeti cannot read 2 changes, listed above; nothing was"
            " changed"
        )
    ]
    assert program.run("--undo", "--plan")[0] == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "no such file: the cluster does not run under another Ganeti"),
        ("{", "truncated or damaged"),
        ("[]", "truncated or damaged"),
        ('{"version": "x"}', "truncated or damaged"),
    ],
)
def test_a_machine_without_a_configuration_has_nothing_to_take_over(
    program, text, reason
):
    path = pathlib.Path(program.paths.data("config.data"))
    path.unlink()
    if text is not None:
        path.write_text(text)
    status, _out, err = program.run("--plan")
    assert (status, err) == (1, [f"take-over: {path}: {reason}"])


# The ways to the nodes
class Shell:
    """In the place of `ssh.client.Client`."""

    made = []

    def __init__(self, *place, **options):
        self.place, self.options, self.calls = place, options, []
        self.answer = None
        Shell.made.append(self)

    def __enter__(self):
        self.calls.append("in")

    def __exit__(self, *_):
        self.calls.append("out")

    def run(self, words, *, stdin, timeout_s):
        self.calls.append((words, json.loads(stdin), timeout_s))
        return self.answer

    def put_file(self, path, data, *, mode):
        self.calls.append((path, data, mode))


@pytest.fixture
def shell():
    return Shell()


@pytest.fixture
def other(shell):
    target = Target(name=OTHER, address="192.0.2.2", port=2222, is_candidate=True)
    return access.OtherNode(Paths("", MASTER), target, shell, "/old/daemon-util")


def result(stdout="", code=0, stderr=""):
    return RunResult(("x",), code, None, stdout, stderr)


def test_a_step_of_another_node_is_a_program_there(shell, other):
    shell.answer = result('{"release": "1", "running": ["x"], "guests": {"a": 5}}')
    report = other.run("look")
    assert (report.release, report.running, report.guests) == ("1", ("x",), {"a": 5})
    program = f"{Paths('', MASTER).tools_dir}/{node_module.NAME}"
    message = {"step": "look", "daemon_util": "/old/daemon-util"}
    assert shell.calls == [([program], message, 400.0)]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (result("first\nlast\n", code=3), "exited with code 3: last"),
        (result("", code=3), "exited with code 3: no output"),
        (result("", code=3, stderr="y" * 600), f"exited with code 3: {'y' * 500}"),
        (result(" " * (1024 * 1024 + 1)), "answers too much"),
        (result("{"), "Input data was truncated"),
    ],
)
def test_failures_of_another_node_name_it(shell, other, answer, reason):
    shell.answer = answer
    with pytest.raises(errors.OpExecError) as caught:
        other.run("stop")
    text = str(caught.value)
    assert text.startswith(f"node {OTHER}: ")
    assert text.endswith(reason)


def test_files_are_put_on_the_other_node(shell, other):
    other.put("/etc/x", b"data", mode=0o640)
    assert shell.calls == [("/etc/x", b"data", 0o640)]


def test_steps_of_this_node_run_here(tmp_path, monkeypatch):
    target = Target(name=MASTER, address="192.0.2.1", port=22, is_candidate=True)
    node = access.ThisNode(Paths("", MASTER), "runner", target, "/old/util")
    calls = []

    def run_step(*arguments):
        calls.append(arguments)
        if len(calls) > 1:
            raise OSError("disk full")
        return "report"

    monkeypatch.setattr(node_module, "run_step", run_step)
    assert node.run("look") == "report"
    message = {"step": "look", "daemon_util": "/old/util"}
    assert calls == [(Paths("", MASTER), "runner", message)]
    with pytest.raises(errors.OpExecError, match=f"^node {MASTER}: disk full$"):
        node.run("look")
    path = tmp_path / "file"
    node.put(str(path), b"data", mode=0o640)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"data", 0o640)


@pytest.mark.parametrize("check_host_keys", [True, False])
def test_other_nodes_are_logged_in_to_at_their_address(
    program, monkeypatch, check_host_keys
):
    monkeypatch.undo()
    Shell.made.clear()
    asked = []
    monkeypatch.setattr(access.client, "Client", Shell)

    def identity(paths, cluster):
        asked.append((paths, cluster))
        return access.client.Identity(user="root", key_files=())

    monkeypatch.setattr(access.client, "cluster_identity", identity)
    journal = main._new_journal(program.paths, "/old/util")
    with access.connected(
        program.paths, None, journal.nodes, "/old/util", check_host_keys=check_host_keys
    ) as nodes:
        assert [type(node) for node in nodes] == [access.ThisNode, access.OtherNode]
        assert [node.target.name for node in nodes] == [MASTER, OTHER]
        (shell,) = Shell.made
        assert shell.calls == ["in"]
    assert shell.calls == ["in", "out"]
    assert asked == [(program.paths, journal.cluster)]
    name, port, used = shell.place
    assert (name, port, used.check_host_key) == (OTHER, 22, check_host_keys)
    assert shell.options["address"] == "192.0.2.2"


# Parts of a cluster that this release does not offer.


def of(data, drivers=DRIVERS):
    changes = old_config.parse(data, "config.data", check=False)
    return main.findings_of_configuration(old_config.snapshot_of(changes), drivers)


def test_a_cluster_with_a_network_is_offered() -> None:
    data = ganeti2.debian()
    assert data["networks"]
    assert of(data) == main.Findings([], [])


@pytest.mark.parametrize("hypervisor", ["chroot", "lxc"])
def test_instances_whose_runs_would_not_be_noticed_are_obstacles(hypervisor) -> None:
    data = cluster.example_data()
    data["cluster"]["enabled_hypervisors"] = ["kvm", hypervisor]
    (instance,) = data["instances"].values()
    instance["hypervisor"] = hypervisor
    instance["admin_state"] = "up"
    (obstacle,) = of(data).obstacles
    assert obstacle.startswith(f"instance web1.example.com: hypervisor {hypervisor}: ")
    assert "gnt-instance shutdown" in obstacle
    instance["admin_state"] = "down"
    assert of(data).obstacles == []


def test_disks_and_hypervisors_that_are_not_offered_are_obstacles() -> None:
    data = cluster.example_data()
    data["cluster"]["enabled_hypervisors"] = ["xen-pvm", "kvm"]
    data["cluster"]["instance_communication_network"] = "comm"
    (instance,) = data["instances"].values()
    instance["hypervisor"] = "xen-pvm"
    next(iter(data["nodes"].values()))["offline"] = True
    others = {name: driver for name, driver in DRIVERS.items() if name != "xen-pvm"}
    obstacles, notes = of(data, others)
    assert [line.partition(";")[0] for line in obstacles] == [
        "cluster: hypervisor xen-pvm is enabled but not offered",
        "instance web1.example.com: hypervisor xen-pvm is not offered",
    ]
    texts = " ".join(notes)
    for part in (
        "instance communication",
        "is offline and is not taken over",
    ):
        assert part in texts


@pytest.mark.parametrize("uuid", ["disks", "networks"])
def test_an_inconsistent_configuration_is_no_crash(uuid) -> None:
    data = ganeti2.debian()
    data[uuid] = {}
    assert of(data).obstacles == []
