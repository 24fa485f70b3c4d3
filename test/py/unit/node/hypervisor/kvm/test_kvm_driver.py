"""Commands of the driver to the emulator of a running guest, and facts about the node."""

import contextlib
import errno
import json
import os
import pathlib
import tempfile

import msgspec
import pytest

from fakes import guests, nodes
from fakes.clocks import FakeClock
from fakes.emulators import Emulator
from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.base.process import RunResult
from ganeti.model.objects.filled import DiskX, InstanceX, NicX
from ganeti.node.hypervisor.base import AttachedDisk, GuestState, NodeEffects
from ganeti.node.hypervisor.kvm import argv, driver, emulator, files, runtime
from ganeti.node.hypervisor.kvm.devices import disks_and_nics as devices
from ganeti.node.hypervisor.kvm.devices import hotplug
from ganeti.node.hypervisor.kvm.moving import (
    arriving,
    departure,
    layout,
    progress,
    sending,
)

MIB = 2**20


class Runner:
    """Runs nothing; answers command lines, refuses others."""

    def __init__(self):
        self.answers = {}

    def run(self, command, **_options):
        result = self.answers[tuple(command)]
        if isinstance(result, Exception):
            raise result
        return result


def printed(text, code=0):
    return RunResult((), code, None, text, "")


@pytest.fixture
def node():
    with tempfile.TemporaryDirectory(prefix="gd-", dir="/tmp") as root:
        effects = NodeEffects(Paths(root, "n1"), Runner(), FakeClock())
        made = driver.KvmHypervisor(effects)
        made._files("web1").make_directories()
        yield made


@pytest.fixture
def runs(monkeypatch):
    """Let guests run by name; empty at first."""
    pids = {}
    monkeypatch.setattr(files.Files, "alive_pid", lambda self: pids.get(self.name))
    return pids


def record(**params):
    wire = guests.kvm_instance("web1", guests.kvm_params(**params))
    return msgspec.convert(wire, InstanceX)


DISK = msgspec.convert(nodes.disk(), DiskX)
NIC = NicX(mac="aa:00:00:00:00:01", uuid=nodes.UUID.format(7), nicparams={})


@pytest.mark.parametrize(
    "act",
    [
        lambda node: node.balloon(record(), 256),
        lambda node: node.resize_disk(record(), DISK, 1),
        lambda node: node.hotplug_check(record()),
        lambda node: node.hot_add(record(), DISK, ["/dev/x", None], 1),
        lambda node: node.hot_remove(record(), DISK),
        lambda node: node.hot_modify(record(), NIC, 1),
        lambda node: node.migration_info(record()),
        lambda node: node.migrate(record(), "192.0.2.2", live=True),
        lambda node: node.reboot(record()),
        lambda node: node.stop("web1", hvparams={}, force=True),
    ],
)
def test_a_guest_that_does_not_run_is_not_asked(node, runs, act):
    with pytest.raises(errors.HypervisorError, match="instance web1: not running"):
        act(node)


def test_the_memory_of_a_guest_is_given_in_bytes(node, runs, monkeypatch):
    runs["web1"] = 5
    asked = Emulator(balloon={})
    monkeypatch.setattr(driver, "Qmp", asked)
    node.balloon(record(), 300)
    assert asked.executed == [("balloon", {"value": 300 * MIB})]
    assert asked.paths == [node._files("web1").control("qmp")]


def block(name, size):
    return {"node-name": name, "image": {"virtual-size": size}}


DISK_NAME = "disk-0c1d2e3f-4a5b-4c6d"


def resizing(monkeypatch, *blocks):
    asked = Emulator(query_named_block_nodes=[[*blocks]], block_resize={})
    monkeypatch.setattr(hotplug, "Qmp", asked)
    return asked


@pytest.mark.parametrize("size", [4 * MIB, 5 * MIB])
def test_a_disk_becomes_larger_or_stays(node, runs, monkeypatch, size):
    runs["web1"] = 5
    asked = resizing(monkeypatch, block("other", 9 * MIB), block(DISK_NAME, 4 * MIB))
    node.resize_disk(record(), DISK, size)
    assert asked.executed == [
        ("query-named-block-nodes", {"flat": True}),
        ("block_resize", {"node-name": DISK_NAME, "size": size}),
    ]


def test_the_end_of_a_disk_is_never_cut_off(node, runs, monkeypatch):
    runs["web1"] = 5
    asked = resizing(monkeypatch, block(DISK_NAME, 4 * MIB))
    with pytest.raises(errors.HypervisorError) as caught:
        node.resize_disk(record(), DISK, 4 * MIB - 1)
    assert str(caught.value) == (
        f"instance web1: disk {DISK.uuid} has 4194304 bytes; a size of 4194303 bytes"
        " would cut off its end"
    )
    assert asked.names() == ["query-named-block-nodes"]


class Plugs:
    """Notes changes of devices, and whether the guest was locked and checked before."""

    def __init__(self, monkeypatch):
        self.done, self._state = [], []
        monkeypatch.setattr(files, "turn", self._turn)
        monkeypatch.setattr(hotplug, "check", lambda g: self._state.append(g.name))
        for name in ("add_disk", "add_nic", "remove_disk", "remove_nic", "modify_nic"):
            monkeypatch.setattr(hotplug, name, self._noting(name))

    @contextlib.contextmanager
    def _turn(self, guest):
        self._state.append(f"turn of {guest.name}")
        yield
        self._state.clear()

    def _noting(self, name):
        def note(*args):
            assert self._state == ["turn of web1", "web1"]
            known = (files.Files, NodeEffects)
            rest = [arg for arg in args if not isinstance(arg, known)]
            self.done.append((name, *rest))

        return note


@pytest.fixture
def plugs(monkeypatch, runs):
    runs["web1"] = 5
    return Plugs(monkeypatch)


@pytest.mark.parametrize("extra", [["/dev/x", "uri:x"], ["/dev/x", None], ["/dev/x"]])
def test_a_disk_is_added_with_its_path_and_uri(node, plugs, extra):
    node.hot_add(record(), DISK, extra, 1)
    expected = AttachedDisk(DISK, "/dev/x", extra[1] if extra[1:] else None)
    assert plugs.done == [("add_disk", expected)]


def test_a_nic_is_added_under_its_number(node, plugs):
    node.hot_add(record(), NIC, None, 3)
    assert plugs.done == [("add_nic", record(), NIC, 3)]


def test_devices_are_removed_and_changed_by_their_kind(node, plugs):
    node.hot_remove(record(), DISK)
    node.hot_remove(record(), NIC)
    node.hot_modify(record(), NIC, 2)
    assert plugs.done == [
        ("remove_disk", DISK),
        ("remove_nic", NIC),
        ("modify_nic", record(), NIC, 2),
    ]


def test_devices_can_be_changed_if_the_guest_is_fit_for_it(node, runs, monkeypatch):
    runs["web1"] = 5
    checked = []
    monkeypatch.setattr(hotplug, "check", checked.append)
    node.hotplug_check(record())
    assert checked == [node._files("web1")]


def test_the_steps_of_a_migration_reach_their_functions(node, runs, monkeypatch):
    runs["web1"] = 5
    done = []

    def note(name):
        return lambda *args, **more: done.append((name, args, more))

    steps = ("begin", "status", "finalize_source", "finalize_destination", "check_idle")
    for name in steps:
        end = arriving if name == "finalize_destination" else sending
        monkeypatch.setattr(end, name, note(name))
    monkeypatch.setattr(driver.KvmHypervisor, "info", lambda *_args: "a guest")
    plan = runtime.Runtime((), (), {}, ())
    monkeypatch.setattr(runtime, "load", lambda _guest: plan)
    web1, effects, guest = record(), node._effects, node._files("web1")
    node.migratable(web1)
    node.migrate(web1, "192.0.2.2", live=False)
    node.migration_status(web1)
    node.finalize_source(web1, success=True)
    node.finalize_destination(web1, "info", success=False)
    assert done == [
        ("check_idle", (guest,), {}),
        (
            "begin",
            (guest, web1.hvparams, "192.0.2.2"),
            {"live": False, "uuid": web1.uuid},
        ),
        ("status", (effects, guest, web1.hvparams), {"uuid": web1.uuid}),
        ("finalize_source", (effects, guest), {"success": True, "uuid": web1.uuid}),
        ("finalize_destination", (effects, guest, web1, "info"), {"success": False}),
    ]


def test_a_guest_does_not_arrive_where_it_runs(node, runs, monkeypatch):
    runs["web1"] = 5
    monkeypatch.setattr(arriving, "accept", None)
    expected = "instance web1: already running here"
    with pytest.raises(errors.HypervisorError, match=expected):
        node.accept(record(), "{}", "192.0.2.2", [])


KVM = "/usr/bin/kvm"
MACHINES = "Supported machines are:\npc-i440fx-7.2   Standard PC (default)\nq35   PC\n"


def test_an_arriving_guest_starts_by_the_record_with_the_devices_of_its_source(
    node, runs, monkeypatch
):
    place = devices.DeviceSlots((), 12).for_disk(DISK, "paravirtual")
    plugged = runtime.Runtime(
        argv=("/evil", "-name", "web1", "-m", "128", "-smp", "1", "-machine", "q35"),
        nics=(),
        hvparams=guests.kvm_params(),
        disks=((runtime.plugged_disk(DISK, place), "/dev/source", None),),
    )
    info = runtime.export(node._files("web1"), plugged)
    arrived = []
    monkeypatch.setattr(
        arriving, "accept", lambda *args, is_paused: arrived.append(args)
    )
    node._effects.process.answers = {(KVM, "-machine", "help"): printed(MACHINES)}
    attached = AttachedDisk(DISK, "/dev/here")
    node.accept(record(kvm_path=KVM), info, "192.0.2.2", [attached])
    ((effects, guest, instance, plan, target),) = arrived
    assert (effects, guest) == (node._effects, node._files("web1"))
    assert (instance, target) == (record(kvm_path=KVM), "192.0.2.2")
    assert plan.argv[0] == KVM
    assert plan.argv[plan.argv.index("-machine") + 1].startswith("q35")
    assert [path for _, path, _ in plan.disks] == ["/dev/here"]


def test_the_memory_of_guests_is_not_that_of_the_node(node, runs, monkeypatch):
    monkeypatch.setattr(
        driver.Hypervisor,
        "node_info",
        lambda _self, _params: {"memory_dom0": 10_000, "hv_version": "kernel"},
    )
    assert node.node_info() == {"memory_dom0": 10_000, "hv_version": "kernel"}
    runs |= {"web1": 5, "web2": 6}
    for name in ("web1", "web2", "gone"):
        with open(node._files(name).pid, "w") as out:
            out.write("5")
    monkeypatch.setattr(driver, "_resident_mib", {5: 300, 6: 50}.__getitem__)
    assert node.node_info()["memory_dom0"] == 9_650
    monkeypatch.setattr(driver, "_resident_mib", {5: 9_999, 6: 2}.__getitem__)
    assert node.node_info()["memory_dom0"] == 0


def test_the_version_is_that_of_the_emulator(node):
    version = (KVM, "--version")
    answers = node._effects.process.answers
    answers[version] = printed("QEMU emulator version 7.2.11 (Debian)\n")
    assert node.node_info({"kvm_path": KVM})["hv_version"] == [7, 2, 11]
    answers[version] = printed("damaged", 1)
    assert node.node_info({"kvm_path": KVM})["hv_version"] is None


def test_this_process_uses_memory_and_one_that_is_gone_uses_none():
    assert driver._resident_mib(os.getpid()) > 10
    assert driver._resident_mib(2**22 + 1) == 0


def test_a_node_without_a_working_emulator_has_a_problem(node, tmp_path):
    missing = tmp_path / "kvm"
    reason = f"emulator {missing}: not found or not executable"
    assert node.verify({"kvm_path": str(missing)}) == reason
    missing.write_text("")
    assert node.verify({"kvm_path": str(missing)}) == reason
    missing.chmod(0o755)
    answers = node._effects.process.answers
    answers[str(missing), "--version"] = printed("version 7.2.11\n")
    assert node.verify({"kvm_path": str(missing)}) is None
    answers[str(missing), "--version"] = printed("no library", 127)
    assert "no library" in node.verify({"kvm_path": str(missing)})


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-m", "512", "-smp", "4,cores=2"], (512, 4)),
        (["-m", "512", "-smp", "4"], (512, 4)),
        (["-smp", "x", "-m", "1G"], (0, 1)),
        (["-m"], (0, 1)),
        (["-name", "-m", "-m", "7"], (7, 1)),
    ],
)
def test_sizes_are_read_from_a_command_line(words, expected):
    assert driver._configured_size(words) == expected


class Route:
    """Addresses of one interface, by family."""

    def __init__(self, **families):
        self.families = families

    def __call__(self):
        return contextlib.nullcontext(self)

    def get_addr(self, *, index, family):
        assert index == 12
        rows = self.families.get(family.name, ())
        return [Row(address) for address in rows]


class Row:
    def __init__(self, address):
        self._address = address

    def get_attr(self, name):
        assert name == "IFA_ADDRESS"
        return self._address


@pytest.fixture
def interfaces(monkeypatch):
    def index(name):
        if name != "eth7":
            raise OSError(19, "No such device")
        return 12

    monkeypatch.setattr(driver.socket, "if_nametoindex", index)


BOTH = Route(AF_INET=["192.0.2.9", "192.0.2.10"], AF_INET6=["2001:db8::9"])


@pytest.mark.parametrize(
    ("version", "route", "expected"),
    [
        (0, BOTH, "192.0.2.9"),
        (4, BOTH, "192.0.2.9"),
        (6, BOTH, "2001:db8::9"),
        (0, Route(AF_INET6=["2001:db8::9"]), "2001:db8::9"),
    ],
)
def test_a_display_has_the_first_address_of_its_interface(
    interfaces, monkeypatch, version, route, expected
):
    monkeypatch.setattr(driver.netutils, "netlink_route", route)
    hvp = {"spice_bind": "eth7", "spice_ip_version": version}
    assert driver._interface_addresses(hvp) == {"eth7": expected}


@pytest.mark.parametrize(
    ("name", "version", "text"),
    [
        ("eth7", 6, "display: interface eth7 has no address"),
        ("eth8", 0, "display: this node has no interface eth8"),
    ],
)
def test_an_interface_without_an_address_is_named(
    interfaces, monkeypatch, name, version, text
):
    monkeypatch.setattr(driver.netutils, "netlink_route", Route(AF_INET=["192.0.2.9"]))
    hvp = {"spice_bind": name, "spice_ip_version": version}
    with pytest.raises(errors.HypervisorError) as caught:
        driver._interface_addresses(hvp)
    assert str(caught.value) == text


@pytest.mark.parametrize("hvp", [{}, {"spice_bind": "192.0.2.9"}])
def test_a_display_with_an_address_asks_for_no_interface(hvp):
    assert driver._interface_addresses(hvp) == {}


@pytest.mark.parametrize(("acpi", "force"), [(True, True), (False, False)])
def test_a_guest_that_cannot_be_asked_is_ended(node, runs, monkeypatch, acpi, force):
    runs["web1"] = 5
    ended = []
    monkeypatch.setattr(files, "end_process", lambda *args: ended.append(args))
    node.stop("web1", hvparams={"acpi": acpi}, force=force)
    assert ended == [(node._effects, node._files("web1"))]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (
            "running",
            [("set-action", {"shutdown": "poweroff"}), ("system_powerdown", None)],
        ),
        ("shutdown", [("quit", None)]),
    ],
)
def test_a_guest_is_asked_to_end_unless_it_has(
    node, runs, monkeypatch, status, expected
):
    runs["web1"] = 5
    answers = {key: {} for key in ("set_action", "quit", "system_powerdown")}
    asked = Emulator(query_status={"status": status}, **answers)
    monkeypatch.setattr(driver, "Qmp", asked)
    node.stop("web1", hvparams={}, force=False)
    assert asked.executed == [("query-status", None), *expected]


def test_a_running_guest_is_neither_started_nor_cleaned(node, runs):
    runs["web1"] = 5
    with pytest.raises(errors.HypervisorError, match="web1: already running"):
        node.start(record(), [], paused=False)
    with pytest.raises(errors.HypervisorError, match="cannot clean up"):
        node.cleanup("web1")


def test_a_reboot_takes_the_parameters_of_the_last_start(node, runs, monkeypatch):
    runs["web1"] = 5
    guest = node._files("web1")
    plan = runtime.Runtime(("kvm", "-name", "web1"), (), {"acpi": True}, ())
    runtime.save(guest, plan)
    steps = []
    monkeypatch.setattr(files, "end_process", lambda _e, g: steps.append(("end", g)))
    monkeypatch.setattr(driver.launch, "launch", lambda *args: steps.append(args))
    web1 = record(acpi=False)
    node.reboot(web1)
    how = driver.launch.Launch(paused=False, incoming=None)
    assert steps == [("end", guest), (node._effects, web1, plan, how)]
    assert json.loads(runtime.export(guest, runtime.load(guest)))[2] == {"acpi": True}


def test_the_default_machine_is_asked_only_if_none_is_wanted(node, monkeypatch):
    asked = []
    default = lambda _effects, path: asked.append(path) or "pc-9.9"  # noqa: E731
    monkeypatch.setattr(emulator, "default_machine", default)
    guest = node._files("web1")
    plan = driver._plan(
        node._effects, record(kvm_path=KVM), [AttachedDisk(DISK, "/d", "uri:d")], guest
    )
    assert asked == [KVM]
    assert plan.argv == tuple(
        argv.build(record(kvm_path=KVM), guest, argv.EmulatorFacts("pc-9.9", {}))
    )
    assert [(path, uri) for _, path, uri in plan.disks] == [("/d", "uri:d")]
    driver._plan(node._effects, record(kvm_path=KVM, machine_version="q35"), [], guest)
    assert asked == [KVM]


def test_layouts_of_other_nodes_are_read_with_the_memory_of_this_node(
    node, runs, monkeypatch
):
    given = []

    def read(instance, info, **facts):
        given.append((instance.name, info, facts))
        raise errors.HypervisorError("refused")

    monkeypatch.setattr(layout, "read", read)
    monkeypatch.setattr(driver, "linux_node_info", lambda: {"memory_total": 4096})
    node._effects.process.answers = {(KVM, "-machine", "help"): printed(MACHINES)}
    with pytest.raises(errors.HypervisorError, match="refused"):
        node.accept(record(kvm_path=KVM), "info", "192.0.2.2", [])
    machines = frozenset({"pc-i440fx-7.2", "q35"})
    assert given == [("web1", "info", {"machines": machines, "memory_mib": 4096})]


def waits(node, runs, monkeypatch, word):
    """Leave an emulator in which a guest has come here, or comes; return what it says."""
    runs["web1"] = 5
    pathlib.Path(node._files("web1").arrival_marker).touch()
    state = {"status": word}
    asked = Emulator(query_status=lambda _arguments: state, query_balloon={"actual": 0})
    monkeypatch.setattr(driver, "Qmp", asked)
    pathlib.Path(node._files("web1").pid).touch()

    def end(_effects, guest):
        runs.pop(guest.name)

    monkeypatch.setattr(files, "end_process", end)
    return state


def test_a_guest_that_its_user_shuts_down_after_its_arrival_does_not_wait(
    node, runs, monkeypatch
):
    """Nobody has taken it over, or has asked for it while it ran."""
    waits(node, runs, monkeypatch, "shutdown")
    driver.Qmp.answers["quit"] = lambda _arguments: runs.pop("web1") and {}
    assert [info.state for info in node.all_infos()] == [GuestState.SHUTDOWN]
    assert [info.hv_id for info in node.all_infos()] == ["-1"]


@pytest.mark.parametrize("word", ["inmigrate", "paused"])
def test_a_guest_that_waits_for_the_word_of_its_source_does_not_run(
    node, runs, monkeypatch, word
):
    state = waits(node, runs, monkeypatch, word)
    assert node.info("web1").state is GuestState.SHUTDOWN
    # It would be shown on the wrong node during each migration.
    assert node.all_infos() == []
    assert node.list_names() == ["web1"]
    if word == "paused":
        text = "waits on this node .*--cleanup web1, .* shutdown and startup"
        with pytest.raises(errors.HypervisorError, match=text):
            node.require_startable("web1")
    else:
        # A part of a guest is worth nothing: the start removes it.
        node.require_startable("web1")
    assert runs == {"web1": 5}
    # As its shutdown does.
    node.cleanup("web1")
    assert runs == {}
    state = waits(node, runs, monkeypatch, "running")
    assert node.info("web1").state is GuestState.RUNNING
    # Nor does a later pause make it one that waits.
    state["status"] = "paused"
    assert node.info("web1").state is GuestState.RUNNING
    assert [each.name for each in node.all_infos()] == ["web1"]
    node.require_startable("web1")
    with pytest.raises(errors.HypervisorError, match="cannot clean up"):
        node.cleanup("web1")


def sends(node, runs, monkeypatch, word, **answers):
    """Leave an emulator whose guest is being sent; return it."""
    runs["web1"] = 5
    guest = node._files("web1")
    departure.begin(guest, was_paused=False, uuid=record().uuid)
    asked = Emulator(query_status={"status": word}, **answers)
    monkeypatch.setattr(driver, "Qmp", asked)
    return asked


def test_a_guest_that_has_left_is_not_asked_to_shut_down(node, runs, monkeypatch):
    """It could not answer, so its shutdown would last until the time limit."""
    asked = sends(node, runs, monkeypatch, "postmigrate", quit={})
    departure.leave(node._files("web1"), has_all=True)
    node.stop("web1", hvparams={}, force=False)
    assert asked.names() == ["query-status", "quit"]


@pytest.mark.parametrize(
    ("word", "has_all"),
    [
        # It was sent, and nobody knows yet whether it goes on here.
        ("postmigrate", None),
        # It runs at the target, with the rest of its memory here.
        ("postmigrate", False),
        ("finish-migrate", True),
        ("running", True),
        ("paused", True),
    ],
)
def test_a_guest_that_may_run_is_asked(node, runs, monkeypatch, word, has_all):
    acts = {"set_action": {}, "system_powerdown": {}}
    asked = sends(node, runs, monkeypatch, word, **acts)
    if has_all is not None:
        departure.leave(node._files("web1"), has_all=has_all)
    node.stop("web1", hvparams={}, force=False)
    assert asked.names()[1:] == ["set-action", "system_powerdown"]


def test_a_departure_forbids_the_start_of_its_instance_alone(node, runs, monkeypatch):
    sends(node, runs, monkeypatch, "postmigrate")
    departure.leave(node._files("web1"), has_all=True)
    runs.clear()
    for uuid in (record().uuid, None):
        with pytest.raises(errors.HypervisorError, match="has left this node"):
            node.require_startable("web1", uuid=uuid)
    # An instance of this name was removed while this node was down.
    node.require_startable("web1", uuid=nodes.UUID.format(9))


def test_a_migration_notes_the_instance(node, runs, monkeypatch):
    runs["web1"] = 5
    pathlib.Path(node._files("web1").pid).touch()
    accepted = {
        "migrate_set_capabilities": {},
        "migrate_set_parameters": {},
        "query_kvm": {"enabled": True},
    }
    asked = Emulator(query_status={"status": "running"}, migrate={}, **accepted)
    monkeypatch.setattr(sending, "Qmp", asked)
    monkeypatch.setattr(driver.agent, "thaw", lambda _effects, _guest: False)
    node.migrate(record(), "192.0.2.2", live=True)
    guest = node._files("web1")
    assert departure.stage(guest, record().uuid) is departure.Stage.SENDING
    assert departure.stage(guest, nodes.UUID.format(9)) is None


def test_a_silent_emulator_counts_as_a_guest_that_runs(node, runs, monkeypatch):
    waits(node, runs, monkeypatch, "paused")
    silent = Emulator(query_status=errors.HypervisorError("no answer"))
    monkeypatch.setattr(driver, "Qmp", silent)
    assert node.info("web1").state is GuestState.RUNNING
    with pytest.raises(errors.HypervisorError, match="cannot clean up"):
        node.cleanup("web1")


def test_a_full_disk_of_the_target_is_named_and_nothing_is_left(
    node, runs, monkeypatch
):
    def full(path, _data, **_how):
        raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr(runtime.file_utils, "write_file", full)
    plan = runtime.Runtime(("kvm", "-name", "web1"), (), {"migration_port": 1}, ())
    guest = node._files("web1")
    text = r"web1: cannot write its files: .*No space left on device: .*web1\.arrival"
    with pytest.raises(errors.HypervisorError, match=text):
        arriving.accept(node._effects, guest, record(), plan, "192.0.2.2")
    assert not os.path.exists(guest.arrival_marker)


@pytest.mark.parametrize(
    "odd",
    [
        {"query_status": {"status": 7}},
        {"query_status": [[]]},
        {"query_balloon": {}},
        {"query_balloon": {"actual": "many"}},
        {"query_blockstats": [[{"device": "disk0"}]]},
    ],
)
def test_an_odd_answer_does_not_hide_a_guest(node, runs, monkeypatch, odd):
    runs["web1"] = os.getpid()
    usual = {
        "query_status": {"status": "running"},
        "query_balloon": {"actual": 7 * MIB},
    }
    asked = Emulator(**{**usual, **odd})
    monkeypatch.setattr(driver, "Qmp", asked)
    progress.begin(node._effects, node._files("web1"))
    info = node.info("web1")
    assert (info.name, info.state, info.stuck_s) == ("web1", GuestState.RUNNING, 0.0)
