"""Installations of untrusted operating systems by a helper machine."""

import contextlib
import copy

import pytest

from fakes import clusters
from fakes.engine import Engine, creation
from fakes.jobs import FakeCallbacks, KeepingCallbacks
from fakes.rpc import SUCCESSFUL_ACTS, failure
from ganeti.base import errors
from ganeti.base.constants.parameters import hvparams
from ganeti.master.jqueue.effects import Canceled
from ganeti.operations.instance.create import helper_install

IMAGE = "/srv/ganeti/images/install.raw"
NODE = "node1.example.com"
STEPS = (
    "blockdev_create",
    "blockdev_assemble",
    "helper_image_add",
    "os_export",
    "helper_start",
    "helper_end",
    "blockdev_shutdown",
    "instance_start",
)
INSTALLED = list(STEPS[:6])
REINSTALL = {
    "OP_ID": "OP_INSTANCE_REINSTALL",
    "instance_name": "web1",
    "osparams_secret": {"token": "hidden"},
}


def node_info(free=4096):
    return ["boot", [], [{"memory_free": free, "hv_version": "7.2"}]]


def script(**changes):
    answers = {
        **SUCCESSFUL_ACTS,
        "node_info": node_info(),
        "blockdev_assemble": ["/dev/x", "/link", None],
        "hooks_runner": [],
    }
    return answers | changes


def only_instance(eng):
    (actual,) = eng.snapshot.instances.values()
    return actual


class Machine:
    """A helper machine that begins, works for some questions, and ends.

    Args:
        begins: questions until it begins; None for never.
        works: questions from then until it has powered itself off; None for never.
        result: result at the end.
    """

    def __init__(self, begins=1, works=2, result=("ended", 0, [])):
        self.begins, self.works = begins, works
        self.result = list(result)
        self.asked = 0
        self.is_up = self.has_files = False
        self.starts = []

    def answers(self):
        return {
            "instance_info": self._info,
            "helper_image_add": self._add,
            "os_export": self._export,
            "helper_start": self._start,
            "helper_result": self._result,
            "helper_end": self._end,
            "os_validate": lambda _node, args: "install" not in args[2],
        }

    def _add(self, _node, _args):
        self.has_files = True
        return 64

    def _export(self, _node, _args):
        self.has_files = True
        return "/archive"

    def _start(self, _node, args):
        assert not self.is_up
        self.is_up = True
        self.asked = 0
        self.starts.append(args)

    def _info(self, _node, _args):
        if not self.is_up:
            return {}
        self.asked += 1
        times = (self.begins, self.works)
        if None not in times and self.asked > sum(times):
            self.is_up = False
        return {"memory": 128, "state": 0} if self.is_up else {}

    def _result(self, _node, _args):
        if not self.is_up:
            return self.result
        if self.begins is None or self.asked <= self.begins:
            return ["none", None, []]
        return ["started", None, []]

    def _end(self, _node, _args):
        self.is_up = self.has_files = False


def cluster(machine=None, image=IMAGE, **answers):
    """Return an engine without instances whose only OS is untrusted."""
    machine = machine or Machine()
    policy = copy.deepcopy(clusters.EXAMPLE["cluster"]["ipolicy"])
    policy["minmax"][0]["min"]["nic-count"] = 0
    policy["disk-templates"] = ["file"]
    start = clusters.snapshot(instances=0, ipolicy=policy, install_image=image)
    return Engine(start, script(**machine.answers() | answers))


def request(**changes):
    more = {"osparams": {"owner": "me"}, "osparams_secret": {"token": "hidden"}}
    return creation(**more | {"start": False} | changes)


def order(eng):
    return [name for name, _node, _args in eng.rpc.calls if name in STEPS]


def texts(callbacks):
    return [str(payload) for _kind, payload in callbacks.entries]


def test_a_creation_installs_by_a_helper_machine():
    machine = Machine()
    eng = cluster(machine)
    assert eng.run(request()) == [NODE]
    assert order(eng) == INSTALLED
    assert not eng.rpc.called("instance_os_add")
    assert only_instance(eng).creation == ""
    assert only_instance(eng).admin_state == "down"
    assert not machine.has_files
    ((_, args),) = eng.rpc.called("helper_image_add")
    assert args[1] == IMAGE
    ((_, (wire, env)),) = eng.rpc.called("os_export")
    assert wire["osparams_secret"] == {"token": "hidden"}
    assert env == {
        "DEBUG_LEVEL": "0",
        "DISK_0_PATH": "/dev/vdd",
        "DISK_0_URI": None,
        "DISK_0_BACKEND_TYPE": "block",
    }
    # The machine itself has the disks, and nothing else of the instance.
    ((wire, installs, _reason),) = machine.starts
    assert installs is True
    assert (wire["nics"], wire["os"], wire["osparams"]) == ([], "", {})
    assert "osparams_secret" not in wire
    hvp = wire["hvparams"]
    assert (hvp["disk_type"], hvp["disk_cache"]) == ("paravirtual", "default")
    assert (hvp["shared_directories"], hvp["tpm"]) == ("", False)
    assert hvp["reboot_behavior"] == "exit"


def test_it_is_started_after_the_installation():
    eng = cluster()
    eng.run(request(start=True))
    assert order(eng) == [*INSTALLED, "instance_start"]
    assert only_instance(eng).admin_state == "up"


def test_disks_that_a_guest_only_reads_are_written_by_the_installation():
    machine = Machine()
    eng = cluster(machine)
    eng.run(request(disks=[{"size": 1024, "mode": "ro"}, {"size": 1024}]))
    ((wire, _installs, _reason),) = machine.starts
    assert [disk["mode"] for disk in wire["disks_info"]] == ["rw", "rw"]
    ((_, (_wire, env)),) = eng.rpc.called("os_export")
    assert env["DISK_1_PATH"] == "/dev/vde"


@pytest.mark.parametrize(
    ("changes", "image", "text"),
    [
        ({}, "", "the cluster has none; set it with gnt-cluster modify --install-im"),
        ({"hypervisor": "fake", "hvparams": {}}, IMAGE, "kvm, xen-hvm; found fake"),
        (
            {"helper_startup_timeout": 0},
            IMAGE,
            "startup-timeout: wanted 1 to .* found 0",
        ),
        (
            {"helper_shutdown_timeout": -1},
            IMAGE,
            "shutdown-timeout: wanted .* found -1",
        ),
    ],
)
def test_requests_that_cannot_be_met_are_refused_before_any_change(
    changes, image, text
):
    eng = cluster(image=image)
    with pytest.raises(errors.OpPrereqError, match=text):
        eng.run(request(**changes))
    assert order(eng) == []
    assert not eng.snapshot.instances


def test_memory_for_the_helper_machine_is_needed_by_a_stopped_instance_too():
    eng = cluster(node_info=node_info(free=64))
    with pytest.raises(errors.OpPrereqError, match="64 MiB free"):
        eng.run(request())
    assert order(eng) == []


def test_an_import_script_needs_no_helper_machine():
    eng = cluster(image="")
    eng.run(request(no_install=True))
    assert order(eng) == ["blockdev_create", "blockdev_assemble"]


@pytest.mark.parametrize(
    ("machine", "limits", "text"),
    [
        (
            Machine(result=("ended", 3, ["cannot", "do it"])),
            {},
            "wanted exit code 0, found 3, last lines: cannot / do it; the author of",
        ),
        (Machine(result=("ended", 1, [])), {}, "found 1, it wrote nothing"),
        (Machine(result=("none", None, [])), {}, "wanted the exit code of .* none;"),
        (
            Machine(result=("started", None, [])),
            {},
            f"only the mark .* has begun; the administrator can .* image {IMAGE}",
        ),
        (Machine(result=("wrong", None, ["<x>"])), {}, "that starts with '<x>'"),
        (
            Machine(begins=None),
            {"helper_startup_timeout": 20},
            "did not begin its work in 20 s; allow more with --helper-startup-timeout",
        ),
        (
            Machine(works=None),
            {"helper_shutdown_timeout": 30},
            "did not power itself off in 30 s; allow more with --helper-shutdown-tim",
        ),
    ],
)
def test_a_failed_installation_has_one_error_and_leaves_nothing(machine, limits, text):
    """As after a create script that failed, the instance stays, stopped."""
    eng = cluster(machine)
    where = r"instance web1\S*: cannot install OS tiny on node node1\S*: .*"
    with pytest.raises(errors.OpExecError, match=where + text):
        eng.run(request(start=True, **limits))
    assert order(eng) == INSTALLED
    assert (machine.is_up, machine.has_files) == (False, False)
    made = only_instance(eng)
    assert (made.creation, made.admin_state) == ("", "down")


def test_the_time_limits_are_the_documented_ones_by_default():
    limits = helper_install.Limits()
    assert (limits.startup_s, limits.shutdown_s) == (300, 7200)
    assert hvparams.HELPER_VM_STARTUP == 300
    assert hvparams.HELPER_VM_SHUTDOWN == 7200


@pytest.mark.parametrize("step", ["helper_image_add", "os_export", "helper_start"])
def test_a_step_that_fails_is_cleaned_up(step):
    eng = cluster(**{step: failure("no such thing")})
    with pytest.raises(errors.OpExecError, match="no such thing"):
        eng.run(request())
    assert order(eng)[-1] == "helper_end"
    assert only_instance(eng).creation == ""


def test_a_machine_that_cannot_be_ended_leaves_the_mark():
    eng = cluster(Machine(works=None), helper_end=failure("still running"))
    with pytest.raises(errors.OpExecError, match=r"did not power .* still running"):
        eng.run(request(helper_shutdown_timeout=10))
    assert only_instance(eng).creation == "interrupted"


@pytest.mark.parametrize("force", [True, False])
def test_a_machine_that_is_left_is_not_taken_for_the_instance(force):
    machine = Machine(works=None)
    eng = cluster(machine, helper_end=failure("still running"))
    with pytest.raises(errors.OpExecError):
        eng.run(request(helper_shutdown_timeout=10))
    start = {"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": "web1", "force": force}
    with pytest.raises(errors.OpPrereqError, match="end that with gnt-instance shut"):
        eng.run(start)
    made = only_instance(eng)
    assert (made.creation, made.admin_state) == ("interrupted", "down")
    machine.is_up = False
    eng.run(start | {"force": True})
    assert only_instance(eng).admin_state == "up"


def test_a_node_that_is_restarted_meanwhile_is_asked_again():
    machine = Machine()
    silent = {"helper_end": 3, "helper_result": 2}
    answers = machine.answers()

    def flaky(name):
        def answer(node, args):
            if silent[name] and (name == "helper_end" or not machine.is_up):
                silent[name] -= 1
                return failure("no answer", is_silent=True)
            return answers[name](node, args)

        return answer

    eng = cluster(machine, **{name: flaky(name) for name in silent})
    eng.run(request())
    assert not any(silent.values())
    assert not machine.has_files
    assert only_instance(eng).creation == ""


def kill_at_work(eng, machine, callbacks):
    """Have a client kill the job while the helper machine works."""
    result = machine.answers()["helper_result"]

    def killed(node, args):
        callbacks.is_canceled = True
        callbacks.kill()
        return result(node, args)

    eng.rpc.script["helper_result"] = killed


def test_a_killed_job_leaves_no_machine():
    machine = Machine(works=None)
    callbacks = FakeCallbacks()
    eng = cluster(machine)
    kill_at_work(eng, machine, callbacks)
    with pytest.raises(Canceled):
        eng.run(request(), callbacks=callbacks)
    assert (machine.is_up, machine.has_files) == (False, False)
    assert only_instance(eng).creation == "interrupted"


def states_of(op, machine, prepare=(), *, is_killed=False):
    """Run an opcode; return each state that was made durable, with its snapshot."""
    eng = cluster()
    for before in prepare:
        eng.run(before)
    eng.rpc.script.update(machine.answers())
    keeping = KeepingCallbacks(eng)
    if is_killed:
        kill_at_work(eng, machine, keeping)
    with contextlib.suppress(errors.OpExecError, Canceled):
        eng.run(op, callbacks=keeping)
    return keeping.kept


def resumed(op, state, snapshot, machine):
    again = FakeCallbacks()
    again.resumption = copy.deepcopy(state)
    eng = Engine(snapshot, script(**machine.answers()))
    return eng, lambda: eng.run(op, callbacks=again)


@pytest.mark.parametrize("is_up", [True, False])
@pytest.mark.parametrize("secrets", [None, {"token": "<redacted>"}])
def test_a_creation_is_continued_after_each_durable_step(is_up, secrets):
    op = request(osparams_secret=secrets)
    kept = states_of(op, Machine())
    assert [state["has_begun"] for state, _ in kept] == [False, True, True]
    # The queue continues such a job although secrets are never stored.
    assert all(state["without_secrets"] for state, _ in kept)
    for state, snapshot in kept:
        machine = Machine(begins=0)
        # A machine whose start was not made durable may run, too.
        machine.is_up = is_up
        machine.has_files = True
        eng, run = resumed(op, state, snapshot, machine)
        if not state["has_begun"] and secrets:
            with pytest.raises(errors.OpExecError, match="secret parameters are not"):
                run()
            assert machine.starts == []
        else:
            run()
            assert len(machine.starts) == (not state["has_begun"])
        assert (machine.is_up, machine.has_files) == (False, False)
        assert only_instance(eng).creation == ""


@pytest.mark.parametrize("former", [[], [request()]])
def test_a_success_remains_one_if_the_master_ends_during_the_cleanup(former):
    op = REINSTALL | {"osparams_secret": None} if former else request()
    state, snapshot = states_of(op, Machine(), former)[-1]
    # The node has removed the result with all the rest.
    machine = Machine(result=("none", None, []))
    _eng, run = resumed(op, state, snapshot, machine)
    run()
    assert machine.starts == []


@pytest.mark.parametrize("former", [[], [request()]])
@pytest.mark.parametrize(
    ("machine", "text"),
    [
        (Machine(result=("ended", 3, ["broken"])), "exit code 0, found 3, .* broken;"),
        (Machine(result=("wrong", None, ["<x>"])), "that starts with '<x>'"),
    ],
)
def test_a_failure_remains_the_same_if_the_master_ends_during_the_cleanup(
    former, machine, text
):
    op = REINSTALL | {"osparams_secret": None} if former else request()
    state, snapshot = states_of(op, machine, former)[-1]
    # The node has removed the result with all the rest.
    machine = Machine(result=("none", None, []))
    eng, run = resumed(op, state, snapshot, machine)
    with pytest.raises(errors.OpExecError, match=text):
        run()
    assert machine.starts == []
    assert order(eng)[0] == "helper_end"
    assert only_instance(eng).creation == ""


@pytest.mark.parametrize("former", [[], [request()]])
def test_a_killed_installation_is_unfinished_if_the_master_ends_during_the_cleanup(
    former,
):
    op = REINSTALL | {"osparams_secret": None} if former else request()
    kept = states_of(op, Machine(works=None), former, is_killed=True)
    # The clean-up has ended the machine, and removed the result.
    machine = Machine(result=("none", None, []))
    eng, run = resumed(op, *kept[-1], machine)
    with pytest.raises(
        errors.OpExecError, match=r"was killed.* gnt-instance reinstall"
    ):
        run()
    assert machine.starts == []
    assert order(eng)[0] == "helper_end"
    assert only_instance(eng).creation == "interrupted"


def test_a_reinstallation_says_so_and_shuts_the_disks_down():
    machine = Machine()
    eng = cluster(machine)
    eng.run(request())
    eng.run(REINSTALL)
    assert order(eng) == [*INSTALLED[1:], "blockdev_shutdown"]
    ((_, (wire, env)),) = eng.rpc.called("os_export")
    assert env["INSTANCE_REINSTALL"] == "1"
    assert wire["osparams_secret"] == {"token": "hidden"}
    assert only_instance(eng).creation == ""


@pytest.mark.parametrize("image", ["", IMAGE])
def test_a_reinstallation_is_refused_before_any_change(image):
    eng = cluster(node_info=node_info(free=4096))
    eng.run(request())
    with eng.config.edit("test") as edit:
        edit.update(eng.snapshot.cluster.replace(install_image=image))
    eng.rpc.script["node_info"] = node_info(free=64)
    text = "64 MiB free" if image else "--install-image"
    with pytest.raises(errors.OpPrereqError, match=text):
        eng.run(REINSTALL)
    assert order(eng) == []


def test_a_reinstallation_that_failed_names_no_option_that_it_lacks():
    machine = Machine()
    eng = cluster(machine)
    eng.run(request())
    machine.begins = None
    with pytest.raises(errors.OpExecError, match="in 300 s; have the admin") as failed:
        eng.run(REINSTALL)
    assert "--helper" not in str(failed.value)
    assert order(eng)[-2:] == ["helper_end", "blockdev_shutdown"]
    assert only_instance(eng).creation == ""


def test_a_reinstallation_is_continued_after_each_durable_step():
    op = REINSTALL | {"osparams_secret": None}
    kept = states_of(op, Machine(), [request()])
    assert [state["has_begun"] for state, _ in kept] == [False, True, True]
    for state, snapshot in kept:
        machine = Machine(begins=0)
        machine.is_up = True
        eng, run = resumed(op, state, snapshot, machine)
        run()
        assert len(machine.starts) == (not state["has_begun"])
        assert not machine.is_up
        assert order(eng)[-1] == "blockdev_shutdown"
        assert only_instance(eng).creation == ""
