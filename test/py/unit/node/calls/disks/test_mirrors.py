"""Procedures for mirrored disks: steps of their driver, and how their states are read."""

import msgspec
import pytest

from fakes import nodes
from ganeti.base import errors
from ganeti.model.objects.filled import DiskX
from ganeti.node.calls.disks import blockdev
from ganeti.node.storage import drbd_commands
from ganeti.node.storage.drbd_device import DrbdDevice
from ganeti.node.storage.drbd_state import Mirror
from ganeti.node.storage.mirrors import MirrorDisk

UUIDS = [nodes.UUID.format(number) for number in (1, 2)]


def part(number, **more):
    wire = nodes.disk(number, dev_type="plain", logical_id=["xenvg", f"lv{number}"])
    return wire | more


def disk(number=0):
    return nodes.disk(
        number,
        dev_type="drbd",
        logical_id=[nodes.UUID.format(9), nodes.UUID.format(8), 11000, 4, 5, "secret"],
        children=[part(3), part(4)],
    )


class Driver(MirrorDisk):
    """A mirrored disk whose steps are noted; its state is set beforehand."""

    def __init__(self, record, state):
        self.disk, self.minor, self._state = record, 4, state
        self.done = state.done
        self.drbd = DrbdDevice(None, record, 4, ("", ""), self.error)
        self.drbd.mirror = lambda: state.mirror

    def needs_activation(self):
        return self._state.needs

    def exists(self):
        return self._state.exists

    def connect(self, *, two_primaries):
        self.done.append(("connect", self.disk.uuid, two_primaries))

    def disconnect(self):
        self.done.append(("disconnect", self.disk.uuid))

    def change_sync(self, *, pause):
        if self._state.mirror is None:
            raise self.error("is not active")
        self.done.append(("change_sync", self.disk.uuid, pause))

    def replace_parts(self):
        self.done.append(("replace_parts", self.disk.uuid))

    def detach(self):
        self.done.append(("detach", self.disk.uuid))


class State:
    def __init__(self):
        self.done, self.needs, self.mirror, self.exists = [], False, None, True


class Node:
    """A node with the states of two mirrored disks, by UUID."""

    def __init__(self, node, monkeypatch):
        self.states = {uuid: State() for uuid in UUIDS}
        self._node = node
        self.done = []
        for state in self.states.values():
            state.done = self.done
        monkeypatch.setattr(blockdev.storage, "device", self._device)
        #: Runners with which the states of all devices were read; there are no devices.
        self.looks = []
        monkeypatch.setattr(drbd_commands, "mirrors", self._mirrors)

    def _mirrors(self, process):
        self.looks.append(process)
        return {}

    def _device(self, paths, record, process):
        assert (paths, process) == (self._node.paths, self._node.process)
        return Driver(record, self.states[record.uuid])

    def call(self, name, *args):
        return nodes.call(self._node, name, *args)


@pytest.fixture
def node(tmp_path, monkeypatch):
    return Node(nodes.make_node(tmp_path), monkeypatch)


def test_only_disks_that_need_it_are_activated(node):
    node.states[UUIDS[1]].needs = True
    needing = node.call("drbd_needs_activation", [disk(0), disk(1)])
    assert needing == [UUIDS[1]]


def test_all_disks_are_connected_and_disconnected(node):
    node.call("drbd_attach_net", [disk(0), disk(1)], True)
    node.call("drbd_attach_net", [disk(1)], False)
    node.call("drbd_disconnect_net", [disk(0), disk(1)])
    assert node.done == [
        ("connect", UUIDS[0], True),
        ("connect", UUIDS[1], True),
        ("connect", UUIDS[1], False),
        ("disconnect", UUIDS[0]),
        ("disconnect", UUIDS[1]),
    ]


def test_an_inactive_mirror_without_volumes_has_no_status(node):
    """So it is not taken for one that can be activated."""
    node.states[UUIDS[1]].exists = False
    rows = node.call("blockdev_getmirrorstatus_multi", [disk(0), disk(1)])
    (is_known, inactive), missing = rows
    assert (is_known, inactive.dev_path, missing) == (True, "", [True, None])


def test_the_states_of_all_devices_are_read_once_per_call(node):
    wires = [disk(0), disk(1)]
    for calls in (1, 2):
        node.call("blockdev_getmirrorstatus_multi", wires)
        assert len(node.looks) == calls


GOOD = Mirror(4, "Connected", "Primary", "UpToDate", "UpToDate")


def syncing(percent):
    state = ("SyncSource", "Primary", "UpToDate", "Inconsistent")
    return Mirror(4, *state, sync_percent=percent)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (GOOD, GOOD, [True, 100.0]),
        (GOOD, syncing(40.5), [False, 40.5]),
        (syncing(12.5), syncing(40.5), [False, 12.5]),
        (syncing(40.5), syncing(12.5), [False, 12.5]),
        (syncing(99.0), GOOD, [False, 99.0]),
        (GOOD, syncing(None), [False, 0.0]),
    ],
)
def test_the_slowest_disk_is_reported(node, first, second, expected):
    for uuid, state in zip(UUIDS, (first, second), strict=True):
        node.states[uuid].mirror = state
    assert node.call("drbd_wait_sync", [disk(0), disk(1)]) == expected


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (None, r"disk disk/0 \(/dev/drbd4\): cannot reach the other node \(is not act"),
        (Mirror(4, "StandAlone", disk="UpToDate"), r"other node \(.*StandAlone"),
    ],
)
def test_a_disk_that_waits_for_nothing_is_an_error(node, state, text):
    node.states[UUIDS[0]].mirror = state
    with pytest.raises(errors.BlockDeviceError, match=text):
        node.call("drbd_wait_sync", [disk(0)])


@pytest.mark.parametrize("pause", [True, False])
def test_each_disk_is_paused_even_if_another_cannot(node, pause):
    node.states[UUIDS[1]].mirror = GOOD
    rows = node.call("blockdev_pause_resume_sync", [disk(0), disk(1)], pause)
    text = "Can't change sync: disk disk/0 (/dev/drbd4): is not active"
    assert rows == [[False, text], [True, None]]
    assert node.done == [("change_sync", UUIDS[1], pause)]


@pytest.mark.parametrize(
    ("procedure", "step"),
    [
        ("blockdev_addchildren", "replace_parts"),
        ("blockdev_removechildren", "detach"),
    ],
)
def test_a_disk_gains_and_loses_its_own_volumes_alone(node, procedure, step):
    node.call(procedure, disk(), [part(3), part(4)])
    assert node.done == [(step, UUIDS[0])]
    for wrong in ([part(4), part(3)], [part(3)], []):
        with pytest.raises(errors.BlockDeviceError) as caught:
            node.call(procedure, disk(), wrong)
        expected = "wanted its volumes [['xenvg', 'lv3'], ['xenvg', 'lv4']], found ["
        assert expected in str(caught.value)
    assert len(node.done) == 1


def test_a_disk_without_a_mirror_is_refused(tmp_path):
    plain = msgspec.to_builtins(msgspec.convert(part(0), DiskX))
    with pytest.raises(errors.BlockDeviceError) as caught:
        nodes.call(nodes.make_node(tmp_path), "drbd_disconnect_net", [plain])
    assert str(caught.value) == f"disk {UUIDS[0]}: type plain has no mirror"


def test_the_helper_of_the_kernel_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(blockdev.drbd_commands, "usermode_helper", lambda: "/bin/true")
    assert nodes.call(nodes.make_node(tmp_path), "drbd_helper") == "/bin/true"
