"""Exports that let a helper machine zero the free space of the disks."""

import copy
import re

import pytest

from fakes.exporting import NODE1, Guest, engine
from fakes.jobs import FakeCallbacks, KeepingCallbacks
from fakes.rpc import failure
from ganeti.base import errors
from ganeti.operations.backup import export_source

EXPORT = {
    "OP_ID": "OP_BACKUP_EXPORT",
    "instance_name": "inst1",
    "target_node": "node2.example.com",
    "zero_free_space": True,
}
IMAGE = "/srv/ganeti/images/zero.raw"
STEPS = (
    "helper_image_add",
    "instance_shutdown",
    "helper_start",
    "helper_end",
    "blockdev_snapshot",
    "instance_start",
    "export_start",
    "finalize_export",
)


class Helper(Guest):
    """Answers of a node whose helper machine runs for some questions."""

    def __init__(self, runs=True, questions=2):
        super().__init__(runs)
        self.questions = questions
        self.left = 0

    def answers(self):
        """Return the part of a script that concerns both guests."""
        return {
            **super().answers(),
            "instance_info": self._info,
            "helper_image_add": 64,
            "helper_start": self._start,
            "helper_end": self._end,
        }

    def _info(self, _node, _args):
        if self.left:
            self.left -= 1
            return {"memory": 512}
        return {"memory": 512} if self.runs else {}

    def _start(self, _node, _args):
        assert not self.runs
        self.left = self.questions

    def _end(self, _node, _args):
        self.left = 0


def cluster(template="plain", changes=None, image=IMAGE, **answers):
    """Return an engine; the instance has a hypervisor that boots images."""
    changes = {"hypervisor": "kvm"} | (changes or {})
    eng = engine(template, changes=changes, **answers)
    with eng.config.edit("test") as edit:
        edit.update(eng.snapshot.cluster.replace(zeroing_image=image))
    return eng


def order(eng):
    return [name for name, _node, _args in eng.rpc.calls if name in STEPS]


def test_the_free_space_is_zeroed_while_the_guest_is_stopped():
    eng = cluster(**Helper().answers())
    assert eng.run(EXPORT) == (True, [True])
    assert order(eng) == list(STEPS)
    ((node, (wire, image)),) = eng.rpc.called("helper_image_add")
    assert (node, image) == (NODE1, IMAGE)
    # The helper machine has the disks, and nothing else of the instance.
    ((_, (wire, installs, _reason)),) = eng.rpc.called("helper_start")
    assert installs is False
    assert [disk["uuid"] for disk in wire["disks_info"]] == ["d1"]
    assert (wire["nics"], wire["os"], wire["osparams"]) == ([], "", {})
    assert wire["hvparams"]["kernel_path"] == ""
    assert wire["hvparams"]["reboot_behavior"] == "exit"


def test_no_default_of_the_cluster_gives_the_helper_machine_more_than_disks():
    """Parameters that reach files, the TPM or the firmware of others are off."""
    eng = cluster(**Helper().answers())
    given = {
        "shared_directories": "a=/srv/a",
        "tpm": True,
        "firmware": "uefi",
        "kernel_path": "/boot/k",
        "cdrom_image_path": "/srv/cd",
        "usb_devices": "disk:x",
        "kvm_extra": "-virtfs local,path=/srv,mount_tag=srv,security_model=none",
    }
    hvparams = dict(eng.snapshot.cluster.hvparams)
    hvparams["kvm"] = {**hvparams.get("kvm", {}), **given}
    with eng.config.edit("test") as edit:
        edit.update(eng.snapshot.cluster.replace(hvparams=hvparams))
    eng.run(EXPORT)
    ((_, (wire, _installs, _reason)),) = eng.rpc.called("helper_start")
    own = {name: value for name, value in wire["hvparams"].items() if name in given}
    changed = {"firmware": "bios", "tpm": False, "kvm_extra": "-boot strict=on"}
    assert own == dict.fromkeys(given, "") | changed


def test_a_stopped_instance_is_zeroed_and_stays_stopped():
    eng = cluster(
        "file", changes={"admin_state": "down"}, **Helper(runs=False).answers()
    )
    eng.run(EXPORT)
    assert order(eng) == [
        name
        for name in STEPS
        if name not in ("instance_shutdown", "blockdev_snapshot", "instance_start")
    ]


def test_an_image_that_cannot_be_used_leaves_the_guest_running():
    answers = Helper().answers() | {"helper_image_add": failure("no such file")}
    eng = cluster(**answers)
    with pytest.raises(errors.OpExecError, match="no such file"):
        eng.run(EXPORT)
    assert order(eng) == ["helper_image_add", "helper_end"]


def test_a_helper_machine_that_goes_on_too_long_is_ended_and_the_guest_runs():
    guest = Helper(questions=10**6)
    eng = cluster(**guest.answers())
    text = r"did not power itself off in 10 s.*--zeroing-timeout-fixed"
    limits = {"zeroing_timeout_fixed": 10, "zeroing_timeout_per_mib": 0.0}
    with pytest.raises(errors.OpExecError, match=text):
        eng.run(EXPORT | limits)
    assert order(eng) == [*STEPS[:4], "instance_start"]
    assert guest.runs


def test_a_failed_export_is_undone_by_the_next_master_daemon_if_one_ends():
    """Until all is undone, the state says that it failed, and how."""
    limits = {"zeroing_timeout_fixed": 10, "zeroing_timeout_per_mib": 0.0}
    guest = Helper(questions=10**6)
    callbacks = FakeCallbacks()
    during = {}

    def noted(call, act):
        def answer(node, args):
            during[call] = copy.deepcopy(callbacks.resumption)
            return act(node, args) if callable(act) else act

        return answer

    answers = guest.answers()
    names = ("helper_end", "instance_start")
    eng = cluster(**answers | {name: noted(name, answers[name]) for name in names})
    with pytest.raises(errors.OpExecError) as failed:
        eng.run(EXPORT | limits, callbacks=callbacks)
    text = str(failed.value)
    assert [during[name]["failure"] for name in names] == [text, text]
    assert callbacks.resumption is None
    for state in during.values():
        again = FakeCallbacks()
        again.resumption = state
        guest = Helper(questions=10**6, runs=False)
        guest.left = 3
        eng = cluster(**guest.answers())
        with pytest.raises(errors.OpExecError, match=re.escape(text)):
            eng.run(EXPORT | limits, callbacks=again)
        assert order(eng) == ["helper_end", "instance_start"]
        assert guest.runs
        assert again.resumption is None


def test_a_guest_is_not_started_while_its_helper_machine_may_run():
    answers = Helper().answers() | {"helper_end": failure("still running")}
    eng = cluster(**answers)
    with pytest.raises(errors.OpExecError, match="still running"):
        eng.run(EXPORT)
    assert "instance_start" not in order(eng)
    assert "blockdev_snapshot" not in order(eng)


def test_a_zeroing_export_is_continued_after_each_step_that_was_made_durable():
    keeping = KeepingCallbacks()
    cluster(**Helper().answers()).run(EXPORT, callbacks=keeping)
    states = keeping.states
    assert {state["has_helper"] for state in states} == {True, False}
    for state in states:
        again = FakeCallbacks()
        again.resumption = state
        guest = Helper(runs=not state["has_helper"])
        guest.left = 3 if state["has_helper"] else 0
        eng = cluster(**guest.answers())
        assert eng.run(EXPORT, callbacks=again) == (True, [True])
        names = order(eng)
        assert names.count("helper_start") == (not state["is_zeroed"])
        if state["has_helper"]:
            assert names[0] == "helper_end"
        assert names.count("finalize_export") == 1


@pytest.mark.parametrize(
    ("setting", "changes", "text"),
    [
        ({"image": ""}, {}, "the cluster has none; set it with gnt-cluster modify"),
        ({"changes": {"hypervisor": "fake"}}, {}, "are kvm, xen-hvm; found fake"),
        ({}, {"shutdown": False}, "needs it to be stopped; leave out --noshutdown"),
        ({}, {"zeroing_timeout_fixed": -1}, "fixed: wanted 0 to .* found -1"),
        ({}, {"zeroing_timeout_per_mib": -0.5}, "per-mib: wanted 0 to .* found -0.5"),
        (
            {},
            {"zero_free_space": False, "zeroing_timeout_fixed": 1},
            "--zeroing-timeout-fixed: needs --zero-free-space",
        ),
    ],
)
def test_wrong_requests_are_refused_before_any_change(setting, changes, text):
    eng = cluster(**setting, **Helper().answers())
    with pytest.raises(errors.OpPrereqError, match=text):
        eng.run(EXPORT | changes)
    assert order(eng) == []


def test_the_time_limit_follows_the_size_of_the_disks():
    eng = cluster(**Helper().answers())
    eng.run(EXPORT)
    texts = [str(payload) for _kind, payload in eng.callbacks.entries]
    assert any("(1024 MiB, at most 351 s)" in text for text in texts)
    assert (export_source.FIXED_S, export_source.PER_MIB_S) == (300, 0.05)
