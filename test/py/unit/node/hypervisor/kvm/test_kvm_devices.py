"""A running guest: devices added and removed, its size, its end.

The emulator is a small model of QEMU's: it keeps devices, block nodes and network ends,
refuses what QEMU refuses, and knows no other commands. Real QEMU takes part in the tests
of daemons.
"""

import contextlib
import dataclasses
import errno
import os
import pathlib
import tempfile
import threading

import msgspec
import pytest

from fakes import guests, nodes
from fakes.patience import until
from fakes.processes import FakeRunner
from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.model.objects.filled import DiskX, InstanceX, NicX
from ganeti.node.hypervisor import NodeEffects, networks
from ganeti.node.hypervisor.base import AttachedDisk, GuestState
from ganeti.node.hypervisor.kvm import driver, files, launch, qmp, runtime
from ganeti.node.hypervisor.kvm.devices import hotplug, taps
from ganeti.node.hypervisor.kvm.moving import arriving, progress

MIB = 1024 * 1024
MEMORY_MIB = 256


class Emulator:
    """The state of one emulator, and its sessions.

    Attributes:
        keeps: device that the guest does not release.
        refuses: command that fails.
        loses: device that is missing after it was added.
    """

    def __init__(self):
        self.devices, self.blocks, self.netdevs, self.fdsets = {}, {}, {}, {}
        self.named_fds = []
        self.status = "running"
        self.executed = []
        self.keeps = self.refuses = self.loses = None
        self.has_quit = False
        self.balloon_bytes = MEMORY_MIB * MIB

    def __call__(self, path, name):
        assert (os.path.basename(path).split(".")[0], name) == ("web1", "web1")
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        return None

    def add_fd(self, fd):
        number = len(self.fdsets) + 1
        self.fdsets[number] = os.fstat(fd).st_ino
        return f"/dev/fdset/{number}"

    def send_fd(self, fd, name):
        os.fstat(fd)
        self.named_fds.append(name)

    def wait_event(self, event, _timeout_s, *, device):
        assert event == "DEVICE_DELETED"
        return device not in self.devices

    def execute(self, command, arguments=None):
        self.executed.append(command)
        if command == self.refuses:
            raise errors.HypervisorError(f"{command}: refused")
        method = getattr(self, command.replace("-", "_"), None)
        assert method is not None, command
        return method(**{k.replace("-", "_"): v for k, v in (arguments or {}).items()})

    # Commands
    def qom_list(self, path):
        assert path == "/machine/peripheral"
        return [{"name": name} for name in self.devices]

    def device_add(self, **device):
        assert device["id"] not in self.devices
        if device["id"] != self.loses:
            self.devices[device["id"]] = device

    def device_del(self, **device):
        if device["id"] != self.keeps:
            del self.devices[device["id"]]

    def blockdev_add(self, **block):
        assert block["node_name"] not in self.blocks
        self.blocks[block["node_name"]] = block

    def blockdev_del(self, node_name):
        assert node_name not in self.devices, "in use"
        del self.blocks[node_name]

    def netdev_add(self, **netdev):
        assert netdev["id"] not in self.netdevs
        self.netdevs[netdev["id"]] = netdev

    def netdev_del(self, **netdev):
        assert netdev["id"] not in self.devices, "in use"
        if self.netdevs.pop(netdev["id"], None) is None:
            raise qmp.QmpNotFoundError(f"Device '{netdev['id']}' not found")

    def remove_fd(self, fdset_id):
        del self.fdsets[fdset_id]

    def query_fdsets(self):
        return [
            {"fdset-id": number, "fds": [{"fd": 9, "opaque": opaque}, {"fd": 10}]}
            for number, opaque in self.fdsets.items()
        ]

    def query_status(self):
        return {"status": self.status}

    def query_balloon(self):
        return {"actual": self.balloon_bytes}

    def balloon(self, value):
        self.balloon_bytes = value

    def quit(self):
        self.has_quit = True

    def cont(self):
        self.status = "running"

    def migrate_set_capabilities(self, capabilities):
        rows = {row["capability"]: row["state"] for row in capabilities}
        self.capabilities = rows

    def set_action(self, shutdown):
        assert shutdown == "poweroff"

    def system_powerdown(self):
        self.status = "powering off"

    def query_named_block_nodes(self, flat):
        assert flat is True
        return [
            {"node-name": name, "image": {"virtual-size": block.get("size", 0)}}
            for name, block in self.blocks.items()
        ] + [{"image": {"virtual-size": 1}}]

    def block_resize(self, node_name, size):
        self.blocks[node_name]["size"] = size


@dataclasses.dataclass
class Guest:
    """A guest that runs, its files, its emulator, and a driver for it."""

    effects: NodeEffects
    files: files.Files
    emulator: Emulator
    driver: driver.KvmHypervisor
    record: InstanceX
    ended: list

    @property
    def plan(self):
        return runtime.load(self.files)


def uuid_of(number):
    # Names of devices in the emulator have only the first digits.
    return f"{number:08x}-4a5b-4c6d-8e7f-000000000000"


def disk(number):
    return msgspec.convert(nodes.disk(number, uuid=uuid_of(number)), DiskX)


def nic(number, mode="bridged", link="br0", **more):
    params = {"mode": mode, "link": link, "vlan": ""}
    mac = f"aa:00:00:00:00:0{number}"
    return NicX(mac=mac, uuid=uuid_of(number), nicparams=params | more)


@pytest.fixture
def guest(monkeypatch):
    emulator = Emulator()
    for module in (driver, hotplug, launch):
        monkeypatch.setattr(module, "Qmp", emulator)
    ended = []
    with tempfile.TemporaryDirectory(prefix="gv-", dir="/tmp") as root:
        runner = FakeRunner(ovs_vsctl=FakeRunner.DONE, kvm_vif_bridge=FakeRunner.DONE)
        effects = NodeEffects(Paths(root, "n1"), runner, nodes.CountedClock())
        of_guest = files.Files(effects.paths, "web1")
        of_guest.make_directories()
        pathlib.Path(of_guest.pid).write_text("1\n")
        script = f"{effects.paths.conf_dir}/kvm-vif-bridge"
        os.makedirs(effects.paths.conf_dir)
        with open(script, "w") as out:
            out.write("#!/bin/sh\n")
        os.chmod(script, 0o755)
        monkeypatch.setattr(files.Files, "alive_pid", lambda _self: os.getpid())
        monkeypatch.setattr(
            files, "end_process", lambda _effects, which: ended.append(which.name)
        )
        monkeypatch.setattr(networks, "check_link", lambda _nic, _instance: None)
        monkeypatch.setattr(taps, "open_tap", open_tap)
        params = guests.kvm_params()
        beparams = {"maxmem": MEMORY_MIB, "minmem": 128, "vcpus": 2}
        wire = guests.kvm_instance("web1", params, beparams=beparams)
        record = msgspec.convert({**wire, "network_port": 11005}, InstanceX)
        plan = runtime.Runtime(("/usr/bin/kvm",), (), dict(params), ())
        runtime.save(of_guest, plan)
        kvm = driver.KvmHypervisor(effects)
        yield Guest(effects, of_guest, emulator, kvm, record, ended)


def open_tap(_nic, _hvparams, _instance):
    return taps.Tap("gnt7", (os.open("/dev/null", os.O_RDWR),))


def path_of(guest, number):
    path = f"{guest.effects.paths.root}/disk{number}"
    with open(path, "w") as out:
        out.write("content")
    return path


def add_disk(guest, number=1):
    guest.driver.hot_add(
        guest.record, disk(number), [path_of(guest, number), None], number
    )


def test_an_added_disk_is_the_guests_and_survives_its_next_start(guest):
    add_disk(guest)
    [(name, device)] = guest.emulator.devices.items()
    assert name.startswith("disk-")
    assert device["driver"] == "virtio-blk-pci"
    assert set(guest.emulator.blocks) == {name}
    # The block node keeps the file open; the emulator's descriptor is closed.
    assert guest.emulator.fdsets == {}
    [(plugged, path, uri)] = guest.plan.disks
    assert (plugged.uuid, path, uri) == (disk(1).uuid, path_of(guest, 1), None)
    assert plugged.hvinfo is not None
    add_disk(guest, 2)
    assert [row[0].uuid for row in guest.plan.disks] == [disk(1).uuid, disk(2).uuid]
    assert len({str(info) for info in guest.plan.hvinfos()}) == 2


def test_a_master_of_an_earlier_release_sends_device_and_link(guest):
    extra = ["/dev/device", path_of(guest, 1), None]
    guest.driver.hot_add(guest.record, disk(1), extra, 1)
    [(_plugged, path, uri)] = guest.plan.disks
    assert (path, uri) == (path_of(guest, 1), None)


def test_a_disk_is_not_added_twice(guest):
    add_disk(guest)
    before = list(guest.emulator.executed)
    add_disk(guest)
    assert guest.emulator.executed == before
    assert len(guest.plan.disks) == 1
    for changes in ({"mode": "ro"}, {"logical_id": ("loop", "/other")}):
        other = disk(1).replace(**changes)
        with pytest.raises(errors.HotplugError, match="attached in another form"):
            guest.driver.hot_add(guest.record, other, [path_of(guest, 1), None], 1)


def test_one_change_of_devices_follows_the_other(guest):
    path = path_of(guest, 1)
    with files.turn(guest.files):
        first = threading.Thread(
            target=guest.driver.hot_add, args=(guest.record, disk(1), [path, None], 1)
        )
        first.start()
        inode = f":{os.stat(guest.files.pid).st_ino} "
        until("the call waits", lambda: _is_waited_for(inode))
        assert guest.emulator.executed == []
    first.join()
    assert len(guest.plan.disks) == 1
    os.unlink(guest.files.pid)
    with pytest.raises(errors.HypervisorError, match="web1: not running"):
        add_disk(guest)


def _is_waited_for(inode):
    with open("/proc/locks", encoding="ascii") as locks:
        return any("->" in line and inode in line for line in locks)


def test_a_removed_disk_of_the_start_leaves_no_open_file(guest):
    add_disk(guest)
    [name] = guest.emulator.devices
    guest.emulator.fdsets = {1: "disk-of-another", 2: name}
    guest.driver.hot_remove(guest.record, disk(1))
    assert guest.emulator.fdsets == {1: "disk-of-another"}


@pytest.mark.parametrize("how", ["refuses", "loses"])
def test_a_disk_that_the_guest_does_not_take_leaves_nothing(guest, how):
    name = "device_add"
    if how == "loses":
        add_disk(guest)
        [name] = guest.emulator.devices
        guest.driver.hot_remove(guest.record, disk(1))
    setattr(guest.emulator, how, name)
    with pytest.raises(errors.HypervisorError, match=r"refused|missing after it was"):
        add_disk(guest)
    emulator = guest.emulator
    assert (emulator.devices, emulator.blocks, emulator.fdsets) == ({}, {}, {})
    assert guest.plan.disks == ()


def test_a_disk_without_a_file_is_an_error_that_names_both(guest):
    with pytest.raises(
        errors.HotplugError, match=r"web1: disk .*: /none: No such file"
    ):
        guest.driver.hot_add(guest.record, disk(1), ["/none", None], 1)
    assert guest.emulator.executed == []


def test_disks_of_other_types_cannot_be_added(guest):
    changed = guest.plan.hvparams | {"disk_type": "ide"}
    runtime.save(guest.files, guest.plan.replace(hvparams=changed))
    with pytest.raises(errors.HotplugError, match="type ide cannot be hotplugged"):
        add_disk(guest)


def test_a_removed_disk_is_gone_from_the_guest_and_its_file(guest):
    add_disk(guest, 1)
    add_disk(guest, 2)
    guest.driver.hot_remove(guest.record, disk(1))
    assert len(guest.emulator.devices) == len(guest.emulator.blocks) == 1
    assert [row[0].uuid for row in guest.plan.disks] == [disk(2).uuid]
    before = list(guest.emulator.executed)
    guest.driver.hot_remove(guest.record, disk(1))
    assert guest.emulator.executed == before


def test_a_disk_that_the_guest_keeps_stays_recorded(guest):
    add_disk(guest)
    [guest.emulator.keeps] = guest.emulator.devices
    with pytest.raises(errors.HotplugError, match="did not release it within 15 s"):
        guest.driver.hot_remove(guest.record, disk(1))
    assert len(guest.plan.disks) == len(guest.emulator.blocks) == 1


def test_devices_without_an_address_cannot_be_changed(guest):
    plugged = runtime.plugged_nic(nic(1), None)
    runtime.save(guest.files, guest.plan.replace(nics=(plugged,)))
    for action in (
        lambda: add_disk(guest),
        lambda: guest.driver.hot_remove(guest.record, nic(1)),
        lambda: guest.driver.hot_modify(guest.record, nic(1), 0),
        lambda: guest.driver.hotplug_check(guest.record),
    ):
        with pytest.raises(errors.HotplugError, match="no recorded bus address"):
            action()
    assert guest.emulator.executed == []


def add_nic(guest, *args, index=0, **more):
    guest.driver.hot_add(guest.record, nic(*args, **more), None, index)


@pytest.mark.parametrize(
    ("queues", "accelerated", "wanted"),
    [
        (1, 0, {"fd": "{0}-fd0"}),
        (1, 1, {"fd": "{0}-fd0", "vhostfd": "{0}-vhostfd0", "vhost": True}),
        (2, 0, {"fds": "{0}-fd0:{0}-fd1"}),
        (
            2,
            2,
            {
                "fds": "{0}-fd0:{0}-fd1",
                "vhostfds": "{0}-vhostfd0:{0}-vhostfd1",
                "vhost": True,
            },
        ),
    ],
)
def test_an_added_nic_has_all_its_queues(
    guest, monkeypatch, queues, accelerated, wanted
):
    def opened(count):
        return tuple(os.open("/dev/null", os.O_RDWR) for _ in range(count))

    monkeypatch.setattr(
        taps,
        "open_tap",
        lambda *_: taps.Tap("gnt7", opened(queues), opened(accelerated)),
    )
    add_nic(guest, 1, index=0)
    [(name, netdev)] = guest.emulator.netdevs.items()
    expected = {
        key: value.format(name) if isinstance(value, str) else value
        for key, value in wanted.items()
    }
    assert netdev == {"type": "tap", "id": name} | expected
    given = [names for key, names in expected.items() if key != "vhost"]
    assert guest.emulator.named_fds == ":".join(given).split(":")


def test_an_added_nic_is_connected_and_recorded(guest):
    add_nic(guest, 1, index=3)
    [(name, device)] = guest.emulator.devices.items()
    assert device["netdev"] == name
    netdev = guest.emulator.netdevs[name]
    assert (netdev["type"], netdev["fd"]) == ("tap", f"{name}-fd0")
    assert guest.emulator.named_fds == [f"{name}-fd0"]
    [(_argv, options)] = guest.effects.process.commands
    env = options["env"]
    assert (env["INTERFACE"], env["INTERFACE_INDEX"]) == ("gnt7", "3")
    assert (env["LINK"], env["BRIDGE"], env["MODE"]) == ("br0", "br0", "bridged")
    for key in ("3", nic(1).uuid):
        assert taps.read_name(guest.files, key) == "gnt7"
    assert [item.uuid for item in guest.plan.nics] == [nic(1).uuid]
    before = list(guest.emulator.executed)
    add_nic(guest, 1, index=3)
    assert guest.emulator.executed == before
    for args in ((1, "bridged", "br1"), (1, "routed")):
        with pytest.raises(errors.HotplugError, match="attached in another form"):
            add_nic(guest, *args)


def test_a_nic_that_cannot_be_connected_is_not_added(guest):
    guest.effects.process.answers["kvm-vif-bridge"] = (1, "", "no bridge")
    with pytest.raises(errors.HypervisorError, match=r"gnt7: .*no bridge"):
        add_nic(guest, 1)
    assert guest.emulator.devices == guest.emulator.netdevs == {}
    assert guest.plan.nics == ()


def test_a_nic_that_the_guest_does_not_take_leaves_nothing(guest):
    guest.emulator.refuses = "device_add"
    with pytest.raises(errors.HypervisorError, match="refused"):
        add_nic(guest, 1)
    assert guest.emulator.netdevs == {}
    assert guest.plan.nics == ()
    assert taps.read_name(guest.files, nic(1).uuid) is None


def test_a_removed_nic_leaves_its_switch_and_its_files(guest):
    add_nic(guest, 1, "openvswitch", "sw0", index=0)
    guest.driver.hot_remove(guest.record, nic(1, "openvswitch", "sw0"))
    assert guest.emulator.devices == guest.emulator.netdevs == {}
    assert guest.effects.process.lines[-1] == "ovs-vsctl --if-exists del-port gnt7"
    assert guest.plan.nics == ()
    assert os.listdir(guest.files.nics) == []
    guest.driver.hot_remove(guest.record, nic(1))


@pytest.mark.parametrize("step", ["kvm-vif-bridge", "device_add"])
def test_a_nic_that_is_not_added_leaves_its_switch(guest, step):
    guest.emulator.refuses = step
    if step == "kvm-vif-bridge":
        guest.effects.process.answers[step] = (1, "", "joined, but failed")
    with pytest.raises(errors.HypervisorError):
        add_nic(guest, 1, "openvswitch", "sw0")
    assert guest.effects.process.lines[-1] == "ovs-vsctl --if-exists del-port gnt7"
    assert os.listdir(guest.files.nics) == []


def test_a_nic_whose_addition_was_cut_off_leaves_its_switch(guest):
    taps.write_names(guest.files, {0: (nic(1).uuid, taps.Tap("gnt3", ()))})
    add_nic(guest, 1, "openvswitch", "sw0")
    left, joined = guest.effects.process.lines
    assert left == "ovs-vsctl --if-exists del-port gnt3"
    assert joined == "kvm-vif-bridge"


def test_a_bridged_nic_is_in_no_switch(guest):
    add_nic(guest, 1)
    guest.driver.hot_remove(guest.record, nic(1))
    assert [line.split()[0] for line in guest.effects.process.lines] == [
        "kvm-vif-bridge"
    ]


def test_a_modified_nic_replaces_the_old_one(guest):
    add_nic(guest, 1)
    guest.driver.hot_modify(guest.record, nic(1, link="br1"), 0)
    assert [item.nicparams["link"] for item in guest.plan.nics] == ["br1"]
    assert len(guest.emulator.devices) == 1


def test_a_nic_that_cannot_be_modified_is_as_before(guest):
    add_nic(guest, 1)

    def answer(_argv):
        env = guest.effects.process.commands[-1][1]["env"]
        return (int(env["LINK"] == "br1"), "", "no br1")

    guest.effects.process.answers["kvm-vif-bridge"] = answer
    with pytest.raises(errors.HypervisorError, match=r"no br1$"):
        guest.driver.hot_modify(guest.record, nic(1, link="br1"), 0)
    assert [item.nicparams["link"] for item in guest.plan.nics] == ["br0"]
    guest.effects.process.answers["kvm-vif-bridge"] = (1, "", "none")
    with pytest.raises(errors.HotplugError, match=r"could not be added again: .*none"):
        guest.driver.hot_modify(guest.record, nic(1, link="br1"), 0)
    assert guest.plan.nics == ()


# Repetitions, after a step was cut off or failed
@pytest.fixture
def cannot_save(monkeypatch):
    """Return a context in which the runtime file cannot be written."""

    @contextlib.contextmanager
    def failing():
        def refuse(_guest, _plan):
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(runtime, "save", refuse)
            with pytest.raises(OSError, match="No space left"):
                yield

    return failing


def test_a_removal_of_a_disk_that_was_not_recorded_can_be_repeated(guest, cannot_save):
    add_disk(guest)
    with cannot_save():
        guest.driver.hot_remove(guest.record, disk(1))
    guest.driver.hot_remove(guest.record, disk(1))
    assert guest.plan.disks == ()
    assert guest.emulator.devices == guest.emulator.blocks == {}


def test_a_removal_of_a_nic_that_was_not_recorded_can_be_repeated(guest, cannot_save):
    add_nic(guest, 1, "openvswitch", "sw0")
    with cannot_save():
        guest.driver.hot_remove(guest.record, nic(1, "openvswitch", "sw0"))
    guest.driver.hot_remove(guest.record, nic(1, "openvswitch", "sw0"))
    assert guest.plan.nics == ()
    assert guest.emulator.netdevs == {}


def test_a_removal_of_a_nic_that_did_not_leave_its_switch_can_be_repeated(guest):
    add_nic(guest, 1, "openvswitch", "sw0")
    answers = guest.effects.process.answers
    answers["ovs-vsctl"] = (1, "", "no database")
    with pytest.raises(errors.HypervisorError, match=r"gnt7: ovs-vsctl .*no database"):
        guest.driver.hot_remove(guest.record, nic(1, "openvswitch", "sw0"))
    answers["ovs-vsctl"] = FakeRunner.DONE
    guest.driver.hot_remove(guest.record, nic(1, "openvswitch", "sw0"))
    assert guest.effects.process.lines[-1] == "ovs-vsctl --if-exists del-port gnt7"
    assert guest.plan.nics == ()
    assert os.listdir(guest.files.nics) == []


@pytest.mark.parametrize("lost", ["nothing", "device"])
def test_an_addition_of_a_disk_that_was_not_recorded_can_be_repeated(
    guest, cannot_save, lost
):
    with cannot_save():
        add_disk(guest)
    if lost == "device":
        guest.emulator.devices.clear()
    add_disk(guest)
    assert [row[0].uuid for row in guest.plan.disks] == [disk(1).uuid]
    assert len(guest.emulator.devices) == len(guest.emulator.blocks) == 1
    assert guest.emulator.fdsets == {}


@pytest.mark.parametrize("lost", ["nothing", "device"])
def test_an_addition_of_a_nic_that_was_not_recorded_can_be_repeated(
    guest, cannot_save, lost
):
    with cannot_save():
        add_nic(guest, 1)
    if lost == "device":
        guest.emulator.devices.clear()
    add_nic(guest, 1, index=2)
    assert [item.uuid for item in guest.plan.nics] == [nic(1).uuid]
    assert len(guest.emulator.devices) == len(guest.emulator.netdevs) == 1
    assert sorted(os.listdir(guest.files.nics)) == [nic(1).uuid, "2"]


def test_a_removed_nic_leaves_the_port_of_another_guest(guest, monkeypatch):
    add_nic(guest, 1, "openvswitch", "sw0")
    monkeypatch.setattr(networks, "exists", lambda tap: tap == "gnt7")
    guest.driver.hot_remove(guest.record, nic(1, "openvswitch", "sw0"))
    assert guest.effects.process.lines == ["kvm-vif-bridge"]
    assert guest.plan.nics == ()


def test_removed_nics_leave_no_names_of_their_taps(guest, monkeypatch):
    for number in range(3):
        made = taps.Tap(f"gnt{number}", (os.open("/dev/null", os.O_RDWR),))
        monkeypatch.setattr(taps, "open_tap", lambda *_, made=made: made)
        add_nic(guest, number, index=number)
    guest.driver.hot_remove(guest.record, nic(0))
    guest.driver.hot_remove(guest.record, nic(2))
    assert sorted(os.listdir(guest.files.nics)) == [nic(1).uuid, "1"]
    assert taps.names(guest.files) == {"gnt1"}


# Size and state
def test_memory_of_a_running_guest_changes_in_mib(guest):
    guest.driver.balloon(guest.record, 200)
    assert guest.emulator.balloon_bytes == 200 * MIB
    info = guest.driver.info("web1")
    assert (info.memory_mib, info.state) == (200, GuestState.RUNNING)
    assert info.hv_id == str(os.getpid())


def test_a_disk_grows_and_never_shrinks(guest):
    add_disk(guest)
    [block] = guest.emulator.blocks.values()
    block["size"] = 10
    guest.driver.resize_disk(guest.record, disk(1), 12)
    assert block["size"] == 12
    with pytest.raises(errors.HypervisorError, match="12 bytes; a size of 11 bytes"):
        guest.driver.resize_disk(guest.record, disk(1), 11)
    assert block["size"] == 12


def test_a_guest_that_is_stuck_lacks_progress(guest, monkeypatch):
    monkeypatch.setattr(progress, "stuck_s", lambda *_facts: 240.0)
    # Most guests have no note; verification does not ask their emulators.
    assert guest.driver.lost_parts("web1") == []
    pathlib.Path(guest.files.progress_note).touch()
    assert guest.driver.lost_parts("web1") == ["stuck"]
    monkeypatch.setattr(progress, "stuck_s", lambda *_facts: 0.0)
    assert guest.driver.lost_parts("web1") == []


def test_a_guest_that_shut_itself_down_is_ended_and_remembered(guest, monkeypatch):
    gone = []
    monkeypatch.setattr(files, "wait_gone", lambda _e, pid, _s: gone.append(pid))
    guest.emulator.status = "shutdown"
    assert guest.driver.info("web1").state is GuestState.SHUTDOWN
    assert guest.emulator.has_quit
    assert gone == [os.getpid()]
    monkeypatch.setattr(files.Files, "alive_pid", lambda _self: None)
    assert guest.driver.info("web1").state is GuestState.SHUTDOWN
    assert guest.driver.list_names() == ["web1"]
    guest.driver.cleanup("web1")
    assert guest.driver.list_names() == []
    assert guest.driver.info("web1") is None


def stop(guest, *, force=False, **hvparams):
    guest.driver.stop("web1", hvparams=hvparams, force=force)


def test_a_stop_presses_the_power_button(guest):
    stop(guest)
    assert guest.emulator.executed == ["query-status", "set-action", "system_powerdown"]
    assert guest.ended == []


def test_a_guest_that_has_shut_down_already_is_only_ended(guest):
    guest.emulator.status = "shutdown"
    stop(guest, acpi=True)
    assert guest.emulator.executed == ["query-status", "quit"]


def test_a_guest_without_a_power_button_is_ended_at_once(guest):
    stop(guest, force=True)
    stop(guest, acpi=False)
    assert guest.ended == ["web1", "web1"]
    assert guest.emulator.executed == []


def test_a_guest_that_does_not_run_can_be_neither_stopped_nor_changed(
    guest, monkeypatch
):
    monkeypatch.setattr(files.Files, "alive_pid", lambda _self: None)
    for action in (
        lambda: stop(guest),
        lambda: guest.driver.balloon(guest.record, 1),
        lambda: guest.driver.resize_disk(guest.record, disk(1), 1),
        lambda: add_disk(guest),
        lambda: guest.driver.reboot(guest.record),
    ):
        with pytest.raises(errors.HypervisorError, match="web1: not running"):
            action()
    assert guest.ended == []


def test_a_guest_that_runs_is_neither_started_nor_cleaned_up(guest):
    with pytest.raises(errors.HypervisorError, match="already running"):
        guest.driver.start(guest.record, [], paused=False)
    with pytest.raises(errors.HypervisorError, match="the instance is running"):
        guest.driver.cleanup("web1")
    assert os.path.exists(guest.files.runtime)


# Start
@pytest.fixture
def executed(guest, monkeypatch):
    """Replace the process of the emulator; return the starts, as (plan, how)."""
    starts = []
    monkeypatch.setattr(
        launch,
        "_execute",
        lambda _e, _g, plan, start: starts.append((plan, start.how)),
    )
    monkeypatch.setattr(launch, "linux_node_info", lambda: {"memory_free": 200})
    return starts


def test_a_reboot_uses_the_parameters_of_the_last_start(guest, executed):
    add_disk(guest)
    plan = guest.plan
    guest.driver.reboot(guest.record)
    assert guest.ended == ["web1"]
    assert [start[0] for start in executed] == [plan]
    assert guest.plan == plan
    assert guest.emulator.executed[-1] == "cont"


def test_a_reboot_opens_each_disk_by_its_present_link(guest, executed, tmp_path):
    link = str(tmp_path / "web1:0")
    os.symlink("/dev/null", link)
    add_disk(guest, 1)
    add_disk(guest, 2)
    # The first one was removed from the record; the guest has not released it.
    given = [AttachedDisk(disk(2), link, None)]
    guest.driver.set_disk_paths(guest.record, given)
    guest.driver.reboot(guest.record)
    ((plan, _how),) = executed
    rows = [(each.uuid, path, uri) for each, path, uri in plan.disks]
    assert rows == [(disk(2).uuid, link, None)]


def run(guest, plan=None, **how):
    launch.launch(guest.effects, guest.record, plan or guest.plan, launch.Launch(**how))


def test_a_start_gives_the_free_memory_and_continues(guest, executed):
    run(guest)
    assert guest.emulator.executed == ["balloon", "cont"]
    assert guest.emulator.balloon_bytes == 200 * MIB


def test_a_paused_start_does_not_continue_and_a_migration_changes_nothing(
    guest, executed, monkeypatch
):
    monkeypatch.setattr(launch, "linux_node_info", lambda: {"memory_free": 9999})
    run(guest, paused=True)
    assert guest.emulator.executed == []
    run(guest, incoming="tcp:192.0.2.1:9")
    assert guest.emulator.executed == []


@pytest.mark.parametrize(("free", "wanted"), [(1, 128), (200, 200), (9999, 256)])
def test_the_memory_at_start_lies_between_minimum_and_maximum(
    guest, executed, monkeypatch, free, wanted
):
    monkeypatch.setattr(launch, "linux_node_info", lambda: {"memory_free": free})
    assert launch.start_memory_mib(guest.record) == wanted


def test_a_start_that_fails_leaves_no_process(guest, executed):
    guest.emulator.refuses = "cont"
    with pytest.raises(errors.HypervisorError, match="refused"):
        run(guest)
    assert guest.ended == ["web1"]


def remains(guest):
    """Return the files of a guest, without the directories of all guests."""
    return sorted(
        os.path.relpath(os.path.join(top, name), guest.files.root)
        for top, _dirs, names in os.walk(guest.files.root)
        for name in names
    )


def start(guest):
    hvparams = guest.record.hvparams | {"machine_version": "pc"}
    guest.driver.start(guest.record.replace(hvparams=hvparams), [], paused=False)


def test_a_start_removes_what_the_last_one_left(guest, executed, monkeypatch):
    monkeypatch.setattr(files.Files, "alive_pid", lambda _self: None)
    for kind in ("qmp", "serial", "shutdown"):
        pathlib.Path(guest.files.control(kind)).touch()
    taps.write_names(guest.files, {4: ("old", taps.Tap("gnt9", ()))})
    start(guest)
    assert remains(guest) == ["conf/web1.runtime"]
    assert [start[0] for start in executed] == [guest.plan]
    assert guest.emulator.executed == ["balloon", "cont"]


def test_a_start_that_fails_leaves_no_files(guest, executed, monkeypatch):
    monkeypatch.setattr(files.Files, "alive_pid", lambda _self: None)
    guest.emulator.refuses = "cont"
    with pytest.raises(errors.HypervisorError, match="refused"):
        start(guest)
    assert (remains(guest), guest.ended) == ([], ["web1"])


def test_a_start_that_fails_leaves_its_switches(guest, executed, monkeypatch):
    monkeypatch.setattr(files.Files, "alive_pid", lambda _self: None)
    guest.emulator.refuses = "cont"
    guest.record = guest.record.replace(nics=(nic(1, "openvswitch", "sw0"),))
    with pytest.raises(errors.HypervisorError, match="refused"):
        start(guest)
    joined, left = guest.effects.process.lines
    assert joined == "kvm-vif-bridge"
    assert left == "ovs-vsctl --if-exists del-port gnt7"


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_guest_that_ended_leaves_switches_unless_its_tap_is_anothers(
    guest, executed, monkeypatch, is_taken
):
    monkeypatch.setattr(files.Files, "alive_pid", lambda _self: None)
    guest.record = guest.record.replace(nics=(nic(1, "openvswitch", "sw0"),))
    start(guest)
    monkeypatch.setattr(networks, "exists", lambda name: is_taken and name == "gnt7")
    guest.effects.process.commands.clear()
    guest.driver.cleanup("web1")
    wanted = [] if is_taken else ["ovs-vsctl --if-exists del-port gnt7"]
    assert guest.effects.process.lines == wanted


def accept(guest, **caps):
    params = guest.plan.hvparams | {"migration_port": 18102} | caps
    plan = guest.plan.replace(hvparams=params)
    arriving.accept(guest.effects, guest.files, guest.record, plan, "192.0.2.1")


def test_an_emulator_waits_for_a_guest_with_the_capabilities(
    guest, executed, monkeypatch
):
    monkeypatch.setattr(arriving, "Qmp", guest.emulator)
    pathlib.Path(guest.files.marker("shutdown")).touch()
    accept(guest, migration_caps="postcopy-ram:xbzrle")
    [(plan, how)] = executed
    assert how == launch.Launch(incoming="tcp:192.0.2.1:18102")
    assert plan == guest.plan
    # Its disks belong to the source until it goes on.
    own = {"return-path": True, "late-block-activate": True}
    assert guest.emulator.capabilities == own | {"postcopy-ram": True, "xbzrle": True}
    assert remains(guest) == ["conf/web1.runtime", "ctrl/web1.arrival"]
    assert guest.ended == []
    guest.emulator.capabilities.clear()
    accept(guest, migration_caps="")
    assert guest.emulator.capabilities == own


def test_an_emulator_that_cannot_wait_is_ended_and_leaves_nothing(
    guest, executed, monkeypatch
):
    monkeypatch.setattr(arriving, "Qmp", guest.emulator)
    guest.emulator.refuses = "migrate-set-capabilities"
    with pytest.raises(errors.HypervisorError, match="refused"):
        accept(guest, migration_caps="xbzrle")
    assert guest.ended == ["web1"]
    assert remains(guest) == []


def test_a_nic_that_cannot_be_connected_ends_the_start(guest, executed):
    guest.effects.process.answers["kvm-vif-bridge"] = (1, "", "no bridge")
    plan = guest.plan.replace(nics=(runtime.plugged_nic(nic(1), None),))
    with pytest.raises(errors.HypervisorError, match="no bridge"):
        run(guest, plan)
    assert (executed, guest.ended) == ([], ["web1"])


def test_a_routed_nic_of_a_migration_is_connected_later(guest, executed):
    both = (nic(1, "routed", "100"), nic(2))
    plan = guest.plan.replace(
        nics=tuple(runtime.plugged_nic(item, None) for item in both)
    )
    run(guest, plan, incoming="tcp:192.0.2.1:9")
    modes = [
        options["env"]["MODE"] for _argv, options in guest.effects.process.commands
    ]
    assert modes == ["bridged"]
    run(guest, plan)
    modes = [
        options["env"]["MODE"] for _argv, options in guest.effects.process.commands
    ]
    assert modes[1:] == ["routed", "bridged"]


def test_files_of_a_guest_that_is_gone_are_removed_and_its_chroot_kept_aside(guest):
    add_nic(guest, 1, "openvswitch", "sw0")
    os.makedirs(guest.files.chroot)
    with open(f"{guest.files.chroot}/core", "w") as out:
        out.write("evidence")
    for name in ("qmp", "shutdown"):
        with open(guest.files.control(name), "w"):
            pass
    launch.remove_remains(guest.effects, guest.files)
    assert guest.effects.process.lines[-1] == "ovs-vsctl --if-exists del-port gnt7"
    left = [
        os.path.join(top, name)
        for top, _dirs, names in os.walk(guest.files.root)
        for name in names
    ]
    assert [os.path.basename(path) for path in left] == ["core"]
    assert "chroot-quarantine" in left[0]
    assert not os.path.exists(guest.files.nics)
    launch.remove_remains(guest.effects, guest.files)
