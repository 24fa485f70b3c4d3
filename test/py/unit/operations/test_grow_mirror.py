"""Growth of a mirrored disk: refused before anything changes, while it is copied."""

import pytest

from fakes import clusters
from fakes.engine import Engine
from fakes.jobs import FakeCallbacks
from fakes.rpc import SUCCESSFUL_ACTS, failure
from ganeti.base import errors

N1, N2 = clusters.node_uuid(1), clusters.node_uuid(2)
NAME = "inst1.example.com"
BUSY = "disk disk/0 (/dev/drbd0): cannot grow during a synchronisation; wait"


GROWTH = [
    (N2, "volume", 512, "real"),
    (N1, "volume", 512, "real"),
    (N1, "device", 512, "real"),
]
COMPLETE = {"dev_path": "/dev/drbd0", "is_degraded": False}
COPYING = {"dev_path": "/dev/drbd0", "is_degraded": True, "sync_percent": 50.0}


class Site:
    """An instance with one mirror; its device grows, or says why it does not."""

    def __init__(self, *, is_active=True, problem="", size_mib=1024):
        self.calls = []
        self.problem = problem
        disk = clusters.drbd_disk("d0", 1, 2).replace(iv_name="disk/0", size=1024)
        instance = clusters.instance(
            1, disks=[disk.uuid], admin_state="down", disks_active=is_active
        )
        start = clusters.snapshot(
            nodes=2, extra=[disk, instance], volume_group_name="xenvg"
        )
        self.engine = Engine(
            start,
            {
                **SUCCESSFUL_ACTS,
                "blockdev_assemble": ["/dev/drbd0", None, None],
                "blockdev_getmirrorstatus_multi": [
                    [True, {"dev_path": "/dev/drbd0", "is_degraded": False}]
                ],
                "blockdev_getdimensions": [[size_mib << 20, None]],
                "blockdev_grow": self.grow,
                "hooks_runner": [],
                "instance_info": {},
                "node_info": ["boot", [], []],
            },
        )

    def grow(self, node, args):
        _disk, amount, dryrun, backingstore, _exclusive = args
        what = "volume" if backingstore else "device"
        self.calls.append((node, what, amount, "trial" if dryrun else "real"))
        if self.problem and not backingstore:
            return failure(self.problem)
        return None

    def ask(self, resumption=None):
        self.engine.run(
            callbacks=FakeCallbacks(resumption=resumption),
            op={
                "OP_ID": "OP_INSTANCE_GROW_DISK",
                "instance_name": NAME,
                "disk": 0,
                "amount": 512,
                "ignore_ipolicy": True,
            },
        )

    @property
    def size(self):
        return self.engine.snapshot.disks["d0"].size


def test_an_active_device_is_asked_before_its_volumes_grow():
    site = Site()
    site.ask()
    assert site.size == 1536
    trials = [call for call in site.calls if call[3] == "trial"]
    assert trials == site.calls[: len(trials)]
    assert (N1, "device", 512, "trial") in trials
    assert site.calls[len(trials) :] == [
        (N2, "volume", 512, "real"),
        (N1, "volume", 512, "real"),
        (N1, "device", 512, "real"),
    ]


def test_no_volume_grows_while_the_device_cannot():
    site = Site(problem=BUSY)
    with pytest.raises(errors.OpPrereqError) as caught:
        site.ask()
    text, code = caught.value.args
    assert text == (
        f"instance {NAME}: disk 0 cannot grow: node node1.example.com: {BUSY}"
    )
    assert code == "wrong_state"
    assert {call[3] for call in site.calls} == {"trial"}
    assert site.size == 1024


def test_an_inactive_device_is_not_asked_on_trial():
    site = Site(is_active=False)
    site.ask()
    assert (N1, "device", 512, "trial") not in site.calls
    assert (N1, "device", 512, "real") in site.calls


@pytest.mark.parametrize(("size_mib", "grows"), [(1024, True), (1536, False)])
def test_a_device_that_has_grown_before_a_restart_does_not_grow_again(size_mib, grows):
    # It could not, as its new part is being copied.
    site = Site(size_mib=size_mib, problem="" if grows else BUSY)
    site.ask(
        {"disk_uuid": "d0", "target_mib": 1536, "offset_mib": 1024, "is_growing": True}
    )
    assert site.size == 1536
    assert ((N1, "device", 512, "real") in site.calls) is grows
    for node in (N1, N2):
        assert (node, "volume", 512, "real") in site.calls


def noted(site, states):
    """Note activations and looks at the device; the states follow one another."""

    def note(name, answer):
        def call(node, _args):
            site.calls.append((node, name))
            return answer

        return call

    def look(node, _args):
        state = states.pop(0) if states else COMPLETE
        site.calls.append((node, "copying" if state is COPYING else "complete"))
        return [[True, state]]

    site.engine.rpc.script["blockdev_assemble"] = note("on", ["/dev/drbd0", None, None])
    site.engine.rpc.script["blockdev_shutdown"] = note("off", None)
    site.engine.rpc.script["blockdev_getmirrorstatus_multi"] = look


ON, OFF = [(N2, "on"), (N1, "on")], [(N1, "off"), (N2, "off")]


def test_an_inactive_device_that_has_to_be_copied_first_is_waited_for():
    """Its activation begins the copy, during which it does not grow."""
    site = Site(is_active=False)
    noted(site, [COPYING, COPYING])
    site.ask()
    real = [call for call in site.calls if call[-1] != "trial"]
    copying, done = [(N1, "copying")] * 2, (N1, "complete")
    assert real == [*ON, *copying, done, *GROWTH, done, *OFF]


def test_a_device_that_did_not_grow_is_as_inactive_as_before():
    site = Site(is_active=False, problem="no space")
    noted(site, [])
    with pytest.raises(errors.OpExecError, match="no space"):
        site.ask()
    real = [call for call in site.calls if call[-1] != "trial"]
    assert real == [*ON, (N1, "complete"), *GROWTH, *OFF]
    assert site.size == 1024
