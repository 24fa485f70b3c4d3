"""gnt-node add: the preparation over SSH, and the opcode after it."""

import pytest

from fakes import commands
from fakes.luxi_master import FakeMaster
from ganeti.base import errors
from ganeti.bootstrap import node_add
from ganeti.bootstrap.options import Joined


class Joining:
    """Preparations of machines, which are only noted."""

    def __init__(self):
        self.requests, self.planned, self.undone = [], [], []
        self.joined = Joined(
            "n7.tst",
            "192.0.2.7",
            "198.51.100.7",
            ("ssh-ed25519 AA",),
            lambda: self.undone.append("n7.tst"),
        )
        self.asks = lambda request: None

    def join(self, paths, request, *, feedback):
        self.requests.append(request)
        self.asks(request)
        feedback("preparing n7.tst")
        if isinstance(self.joined, Exception):
            raise self.joined
        return self.joined

    def plan(self, paths, request):
        self.planned.append(request)
        return ["log in to n7 as root"]


@pytest.fixture
def joining(monkeypatch):
    made = Joining()
    monkeypatch.setattr(node_add, "join", made.join)
    monkeypatch.setattr(node_add, "plan", made.plan)
    return made


def master(*, changes_ssh=True):
    fake = FakeMaster()
    fake.values["modify_ssh_setup"] = changes_ssh
    return fake


def opcode(fake):
    (op,) = [args[0][0] for method, args in fake.calls if method == "SubmitJob"]
    return {k: v for k, v in op.items() if k not in ("reason", "debug_level")}


WARNING = (
    "-- WARNING --\nPerforming this operation makes the target machine (n7) a node"
)


def test_a_machine_is_prepared_and_becomes_a_node(joining):
    fake = master()
    done = commands.run("gnt-node add n7", fake)
    assert done.code == 0
    assert WARNING in done.err
    assert done.err.endswith("preparing n7.tst\n")
    (request,) = joining.requests
    asked = {
        key: getattr(request, key)
        for key in request.__dataclass_fields__
        if not key.startswith("ask_")
    }
    assert asked == {
        "name": "n7",
        "readd": False,
        "group": None,
        "secondary_ip": None,
        "ssh_key_check": True,
        "ssh_port": None,
        "create_bridge": False,
        "debug": False,
    }
    op = opcode(fake)
    assert (op["OP_ID"], op["node_name"]) == ("OP_NODE_ADD", "n7.tst")
    assert (op["secondary_ip"], op["readd"]) == ("198.51.100.7", False)
    assert op["ssh_host_keys"] == ["ssh-ed25519 AA"]


def test_options_reach_the_preparation_and_the_opcode(joining):
    joining.joined = Joined("n7.tst", "192.0.2.7", None)
    fake = master()
    done = commands.run(
        "gnt-node add --readd -g rack -s 198.51.100.9 --no-ssh-key-check"
        " --create-bridge --verbose --vm-capable=no --master-capable=no"
        " --node-parameters ssh_port=2022 n7",
        fake,
    )
    assert done.code == 0
    (request,) = joining.requests
    assert (request.readd, request.group) == (True, "rack")
    assert request.secondary_ip == "198.51.100.9"
    assert (request.ssh_key_check, request.create_bridge) == (False, True)
    assert request.debug is True
    op = opcode(fake)
    assert (op["readd"], op["group"]) == (True, "rack")
    assert (op["vm_capable"], op["master_capable"]) == (False, False)
    assert op["ndparams"] == {"ssh_port": "2022"}
    assert op.get("secondary_ip") is None
    assert op.get("ssh_host_keys") is None


@pytest.mark.parametrize(
    ("words", "changes_ssh"), [("--no-node-setup", True), ("", False)]
)
def test_without_a_change_of_ssh_there_is_no_warning(joining, words, changes_ssh):
    done = commands.run(f"gnt-node add {words} n7", master(changes_ssh=changes_ssh))
    assert WARNING not in done.err
    assert done.err.endswith("preparing n7.tst\n")


@pytest.mark.parametrize(("answer", "expected"), [("y\n", True), ("n\n", False)])
def test_an_unknown_host_key_is_shown_and_asked_for(joining, answer, expected):
    actual = []
    joining.asks = lambda request: actual.append(
        request.ask_host_key("n7.tst", "ED25519", "SHA256:abc")
    )
    done = commands.run("gnt-node add n7", master(), answers=[answer])
    assert actual == [expected]
    text = " ".join(done.terminal.split())
    assert text == (
        "The authenticity of host 'n7.tst' can't be established. ED25519 key"
        " fingerprint is SHA256:abc. Are you sure you want to continue connecting?"
        " y/[n]/?:"
    )


def test_a_machine_that_cannot_be_prepared_is_not_added(joining):
    joining.joined = errors.OpPrereqError("n7: no route to host", "environment_error")
    fake = master()
    done = commands.run("gnt-node add n7", fake)
    assert done.code == 1
    assert "n7: no route to host" in done.err
    assert [method for method, _ in fake.calls] == ["QueryConfigValues", "PlanJob"]


@pytest.mark.parametrize("words", ["", "--readd"])
def test_a_refused_request_prepares_nothing(joining, words):
    fake = master()
    text = "node n7: parameter nosuch: unknown"
    fake.results["OP_NODE_ADD"] = errors.OpPrereqError(text, "wrong_input")
    done = commands.run(f"gnt-node add {words} n7", fake)
    assert done.code == 1
    assert text in done.err
    assert (joining.requests, fake.jobs) == ([], {})


@pytest.mark.parametrize(
    ("error", "is_undone"),
    [
        (errors.OpExecError("n7: no"), True),
        (errors.OpPrereqError("n7: no", "wrong_state"), True),
        (errors.JobQueueDrainError("no"), True),
        # The job may still run, or have run.
        (errors.JobLost("no"), False),
        (errors.CommitUnknownError("no"), False),
    ],
)
def test_a_refused_job_undoes_the_preparation(joining, monkeypatch, error, is_undone):
    def fail(ctx, operation):
        raise error

    monkeypatch.setattr("ganeti.commands.cli.waiting.jobs.run", fail)
    assert commands.run("gnt-node add n7", master()).code == 1
    assert len(joining.requests) == 1
    assert bool(joining.undone) is is_undone


def test_a_plan_prepares_nothing(joining):
    fake = master()
    done = commands.run("gnt-node add --plan -s 198.51.100.9 n7", fake)
    assert done.code == 0
    first, second = done.out.splitlines()[1:]
    assert first == "  1. log in to n7 as root"
    assert second.startswith("  2. submit OP_NODE_ADD(")
    assert "node_name=n7" in second
    assert "secondary_ip=198.51.100.9" in second
    assert (joining.requests, len(joining.planned)) == ([], 1)
    assert [method for method, _ in fake.calls] == ["QueryConfigValues"]
