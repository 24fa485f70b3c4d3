"""Devices of running guests: released before anything else is changed."""

import pytest

from fakes import clusters
from fakes.engine import Engine
from fakes.jobs import FakeCallbacks, KeepingCallbacks
from fakes.rpc import SUCCESSFUL_ACTS, failure
from ganeti.base import errors
from ganeti.master.jqueue.effects import Canceled

INFO = {"memory": 128, "vcpus": 1, "state": 0, "time": 1.0}
CREATE = {
    "OP_ID": "OP_INSTANCE_CREATE",
    "instance_name": "web1.example.com",
    "mode": "create",
    "disk_template": "file",
    "disks": [{"size": 1024}, {"size": 2048}],
    "nics": [{}],
    "os_type": "tiny",
    "pnode": "node1.example.com",
    "hypervisor": "kvm",
    "hvparams": {"kernel_path": "", "vnc_bind_address": ""},
}


def running_with_two_disks(**answers):
    """Return an engine with a guest that runs with two disks and a NIC."""
    script = {
        **SUCCESSFUL_ACTS,
        "node_info": ["boot", [], [{"memory_free": 4096, "hv_version": "7.2"}]],
        "instance_info": {},
        "blockdev_assemble": ["/dev/x", "/link", None],
        "hooks_runner": [],
    }
    eng = Engine(clusters.snapshot(instances=0), script)
    eng.run(CREATE | {"ignore_ipolicy": True})
    eng.rpc.script.update({"instance_info": INFO} | answers)
    return eng


def change_devices(**changes):
    return {
        "OP_ID": "OP_INSTANCE_SET_PARAMS",
        "instance_name": "web1",
        "ignore_ipolicy": True,
    } | changes


def only_instance(eng):
    (actual,) = eng.snapshot.instances.values()
    return actual


@pytest.mark.parametrize("word", ["remove", "detach"])
def test_a_guest_releases_a_disk_before_its_record_and_data_go(word):
    eng = running_with_two_disks()
    recorded = []

    def plug(_node, args):
        recorded.append((args[1], len(only_instance(eng).disks)))

    eng.rpc.script["hotplug_device"] = plug
    result = eng.run(change_devices(disks=[[word, 1, {}]]))
    assert recorded == [("hotremove", 2)]
    assert result == [("disk/1", word), ("disk/1", "hotplug:done")]
    order = [name for name, _node, _args in eng.rpc.calls if "dev" in name]
    wanted = ["hotplug_device", "blockdev_shutdown", "blockdev_remove"]
    assert order == wanted[: 3 if word == "remove" else 2]


def answer_by_action(**answers):
    return lambda _node, args: answers.get(f"{args[1]}_{args[2]}")


def test_a_disk_that_the_guest_keeps_stays_as_it_is():
    eng = running_with_two_disks(hotplug_device=failure("did not release it"))
    before = eng.snapshot
    with pytest.raises(errors.OpExecError, match="disk/1 is not removed, and nothing"):
        eng.run(change_devices(disks=[["remove", 1, {}]]))
    assert eng.snapshot is before
    assert not eng.rpc.called("blockdev_shutdown")
    assert not eng.rpc.called("blockdev_remove")


def test_a_guest_that_keeps_a_nic_gets_its_disk_back():
    refusal = answer_by_action(hotremove_nic=failure("did not release it"))
    eng = running_with_two_disks(hotplug_device=refusal)
    before = eng.snapshot
    request = change_devices(disks=[["remove", 1, {}]], nics=[["remove", 0, {}]])
    with pytest.raises(errors.OpExecError, match="nic/0 is not removed"):
        eng.run(request)
    assert eng.snapshot is before
    acts = [args[1:3] for _node, args in eng.rpc.called("hotplug_device")]
    assert acts == [("hotremove", "disk"), ("hotremove", "nic"), ("hotadd", "disk")]
    assert eng.rpc.called("hotplug_device")[-1][1][4] == ["/link", None]


def test_a_disk_that_cannot_be_created_gives_the_nic_its_previous_form():
    eng = running_with_two_disks(blockdev_create=failure("no space"))
    before = eng.snapshot
    request = change_devices(
        disks=[["add", -1, {"size": 1024}]], nics=[["modify", 0, {"ip": "192.0.2.77"}]]
    )
    with pytest.raises(errors.OpExecError, match="no space"):
        eng.run(request)
    assert eng.snapshot is before
    acts = [args for _node, args in eng.rpc.called("hotplug_device")]
    assert [(args[1], args[3].get("ip")) for args in acts] == [
        ("hotmod", "192.0.2.77"),
        ("hotmod", before.instances[only_instance(eng).uuid].nics[0].ip),
    ]


@pytest.mark.parametrize(
    ("hotplug", "text"),
    [(False, "hotplug is switched off"), (True, "some devices have no")],
)
def test_a_disk_is_not_removed_under_a_guest_that_cannot_release_it(hotplug, text):
    eng = running_with_two_disks(
        hotplug_supported=failure("some devices have no recorded bus address")
    )
    request = change_devices(disks=[["remove", 1, {}]], hotplug=hotplug)
    before = eng.snapshot
    with pytest.raises(
        errors.OpPrereqError,
        match=f"guest keeps disk/1, which therefore.*removed.*{text}",
    ):
        eng.run(request)
    assert eng.snapshot is before
    eng.run(request | {"force": True})
    assert len(only_instance(eng).disks) == 1
    assert "keeps disk/1 until its next start" in eng.callbacks.text()
    assert not eng.rpc.called("hotplug_device")


def test_a_new_nic_that_the_same_command_changes_is_added_once():
    eng = running_with_two_disks()
    mods = [["add", -1, {}], ["modify", -1, {"name": "eth1"}]]
    eng.run(change_devices(nics=mods))
    acts = [args for _node, args in eng.rpc.called("hotplug_device")]
    assert [(args[1], args[3]["name"]) for args in acts] == [("hotadd", "eth1")]


class Killed(FakeCallbacks):
    """A client kills the job at its first log line."""

    def log(self, kind, payload):
        super().log(kind, payload)
        if len(self.entries) == 1:
            raise Canceled("killed on request")


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_continued_change_plugs_the_devices_or_names_them(is_killed):
    eng = running_with_two_disks()
    keeping = KeepingCallbacks(eng)
    request = change_devices(disks=[["add", -1, {"size": 1024}]], hotplug=True)
    eng.run(request, callbacks=keeping)
    # The master daemon ends between the record and the guest.
    state, _before = keeping.kept[-1]
    again = Engine(eng.snapshot, eng.rpc.script)
    callbacks = (Killed if is_killed else FakeCallbacks)(resumption=state)
    if is_killed:
        with pytest.raises(Canceled):
            again.run(request, callbacks=callbacks)
    else:
        result = again.run(request, callbacks=callbacks)
        assert result[-1] == ("disk/2", "hotplug:done")
    text = "may lack disk/2 until gnt-instance reboot web1.example.com"
    assert (text in callbacks.text()) is is_killed
    assert bool(again.rpc.called("hotplug_device")) is not is_killed
