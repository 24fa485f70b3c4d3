"""The start of an emulator: its command, its files, its settings, and its failures."""

import os
import re
import stat
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
from ganeti.node.hypervisor import networks
from ganeti.node.hypervisor.base import NodeEffects
from ganeti.node.hypervisor.kvm import argv, emulator, files, launch, runtime
from ganeti.node.hypervisor.kvm.devices import disks_and_nics as devices
from ganeti.node.hypervisor.kvm.devices import taps

MIB = 2**20


class Runner:
    """Notes each command and what it may use; gives one result."""

    def __init__(self):
        self.result = RunResult((), 0, None, "", "")
        self.ran = []
        self.during = lambda options: None

    def run(self, command, **options):
        self.ran.append((list(command), options))
        self.during(options)
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


@pytest.fixture
def effects():
    with tempfile.TemporaryDirectory(prefix="gl-", dir="/tmp") as root:
        yield NodeEffects(Paths(root, "n1"), Runner(), FakeClock())


@pytest.fixture
def guest(effects):
    made = files.Files(effects.paths, "web1")
    made.make_directories()
    return made


def nic(number, mode="bridged"):
    return NicX(
        mac=f"aa:00:00:00:00:0{number}",
        uuid=nodes.UUID.format(number),
        nicparams={"mode": mode, "link": "br0"},
    )


class Steps:
    """A node on which each step of a start is noted.

    Attributes:
        log: the steps.
        taps: those that were opened.
        emulator: answers to its commands.
        pid: of the running guest, None if it does not run.
    """

    def __init__(self, monkeypatch):
        self.log, self.taps, self.pid = [], [], 7
        empty = ("balloon", "cont", "set_password")
        self.emulator = Emulator(**{key: {} for key in empty})
        patch = monkeypatch.setattr
        patch(taps, "open_nic", self._open)
        patch(taps, "connect", lambda _e, env: self.log.append(("connect", env["TAP"])))
        environment = lambda _i, _n, index, name: {"TAP": f"{index} {name}"}  # noqa: E731
        patch(networks, "environment", environment)
        patch(taps, "write_names", lambda _g, given: self.log.append(("names", given)))
        patch(files, "end_process", lambda _e, g: self.log.append(("end", g.name)))
        patch(files.Files, "alive_pid", lambda _self: self.pid)
        patch(emulator, "acceleration", self._acceleration)
        patch(emulator, "has_sandbox", lambda _e, _path: False)
        patch(launch, "Qmp", self.emulator)
        patch(launch, "linux_node_info", lambda: {"memory_free": 10_000})
        patch(argv, "complete", self._complete)
        patch(launch, "emulator_user", lambda *_args: self)
        patch(
            launch, "pin_cpus", lambda _qmp, name, mask: self.log.append((name, mask))
        )
        self.user = None
        self.extras = None

    def __enter__(self):
        self.log.append("user")
        return self.user

    def __exit__(self, *_error):
        self.log.append("no user")

    def _open(self, _effects, device, hvparams, name):
        self.log.append(("open", device.uuid[-1], hvparams["nic_type"], name))
        number = int(device.uuid[-1])
        fds = [os.open(os.devnull, os.O_RDONLY) for _ in range(2)]
        made = taps.Tap(f"gnt{number}", fds[:1], fds[1:])
        self.taps.append(made)
        return made

    @staticmethod
    def _acceleration(_effects, path, flag):
        return f"{path} {flag}".strip()

    def _complete(self, plan, extras):
        self.extras = extras
        return ["the command", *plan.argv]

    def are_closed(self):
        for tap in self.taps:
            for fd in (*tap.fds, *tap.vhost_fds):
                with pytest.raises(OSError, match="Bad file descriptor"):
                    os.fstat(fd)
        return bool(self.taps)


@pytest.fixture
def steps(monkeypatch):
    return Steps(monkeypatch)


def instance(**beparams):
    wanted = {"maxmem": 512, "minmem": 128, "vcpus": 1} | beparams
    wire = guests.kvm_instance("web1", guests.kvm_params(), beparams=wanted)
    return msgspec.convert(wire, InstanceX)


def plan(*nics, disks=(), **params):
    places = devices.DeviceSlots((), 12)
    plugged = tuple(
        runtime.plugged_nic(device, places.for_nic(device, "paravirtual"))
        for device in nics
    )
    hvp = guests.kvm_params(**{"kvm_flag": None} | params)
    return runtime.Runtime(("/usr/bin/kvm", "-x"), plugged, hvp, tuple(disks))


def start(effects, how=None, *, record=None, **params):
    given = plan(nic(1), nic(2), **params)
    launch.launch(effects, record or instance(), given, how or launch.Launch())


def test_a_start_in_its_order(effects, guest, steps):
    start(effects)
    one, two = steps.taps
    assert steps.log == [
        ("open", "1", "paravirtual", "web1"),
        ("open", "2", "paravirtual", "web1"),
        (
            "names",
            {0: (nodes.UUID.format(1), one), 1: (nodes.UUID.format(2), two)},
        ),
        ("connect", "0 gnt1"),
        ("connect", "1 gnt2"),
        "user",
        "no user",
        ("web1", "all"),
    ]
    ((command, options),) = effects.process.ran
    assert command == ["the command", "/usr/bin/kvm", "-x"]
    fds = [*one.fds, *one.vhost_fds, *two.fds, *two.vhost_fds]
    assert options == {"timeout_s": 60.0, "pass_fds": fds}
    assert steps.emulator.names() == ["cont"]
    assert steps.emulator.paths == [guest.control("qmp")]
    assert steps.are_closed()


def test_the_command_has_the_open_files_and_the_order_of_boot(effects, guest, steps):
    steps.user = "pool-4000"
    start(effects, boot_order="network")
    extras = steps.extras
    assert (extras.accel, extras.user) == ("/usr/bin/kvm", "pool-4000")
    assert (extras.chroot, extras.incoming, extras.sandbox) == (None, None, None)
    assert extras.block_paths == frozenset()
    for tap, words in zip(steps.taps, extras.nics, strict=True):
        text = " ".join(words)
        assert f"fd={tap.fds[0]}," in f"{text},"
        assert f"vhostfd={tap.vhost_fds[0]}," in f"{text},".replace(" ", ",")
    orders = [re.findall(r"bootindex=(\d+)", " ".join(w)) for w in extras.nics]
    assert orders == [["1"], ["2"]]


def test_only_block_devices_are_opened_as_such(
    effects, guest, steps, tmp_path, monkeypatch
):
    (tmp_path / "file").touch()
    really = os.stat

    def describe(path, **more):
        # Making a device takes rights that tests may not have.
        if path == "/dev/block":
            return os.stat_result([stat.S_IFBLK, *[0] * 9])
        return really(path, **more)

    monkeypatch.setattr(launch.os, "stat", describe)
    file = str(tmp_path / "file")
    kinds = {file: "sharedfile", "/dev/null": "plain"} | dict.fromkeys(
        ("/dev/block", "/none"), "plain"
    )
    disks = {
        path: runtime.plugged_disk(
            msgspec.convert(nodes.disk(dev_type=kind), DiskX), None
        )
        for path, kind in kinds.items()
    }
    given = plan(disks=[(disk, path, None) for path, disk in disks.items()])
    launch.launch(effects, instance(), given, launch.Launch())
    assert steps.extras.block_paths == {"/dev/block"}
    # The emulator does not open the path of a file, which others may have changed.
    assert list(steps.extras.disk_fds) == [file]


def test_the_chroot_is_a_directory_of_root_alone(effects, guest, steps):
    start(effects, use_chroot=True)
    assert steps.extras.chroot == guest.chroot
    assert os.stat(guest.chroot).st_mode & 0o7777 == 0o700
    assert os.listdir(guest.chroot) == []


def test_with_a_filter_of_system_calls_another_program_detaches(
    effects, guest, steps, monkeypatch
):
    started = []
    monkeypatch.setattr(emulator, "has_sandbox", lambda _e, path: path[-3:] == "kvm")
    monkeypatch.setattr(launch, "start_detached", lambda *args: started.append(args))
    steps.user = "nobody"
    start(effects)
    assert steps.extras.sandbox == argv.sandbox(guests.kvm_params(), has_user=True)
    assert effects.process.ran == []
    ((given, for_guest, command, fds, timeout_s),) = started
    assert (given, for_guest, timeout_s) == (effects, guest, 60.0)
    assert command[0] == "the command"
    assert len(fds) == 4


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (
            RunResult((), 1, None, " no such disk\n", ""),
            "instance web1: the emulator exited with code 1: no such disk",
        ),
        (
            RunResult((), None, 9, "", ""),
            "instance web1: the emulator was ended by signal 9: last words",
        ),
        (errors.CommandError("kvm: not found"), "instance web1: kvm: not found"),
    ],
)
def test_a_start_that_fails_leaves_nothing(effects, guest, steps, result, text):
    with open(guest.log, "w") as out:
        out.write("last words\n")
    effects.process.result = result
    with pytest.raises(errors.HypervisorError) as caught:
        start(effects)
    assert str(caught.value) == text
    assert steps.log[-2:] == ["no user", ("end", "web1")]
    assert steps.emulator.executed == []
    assert steps.are_closed()


def test_an_emulator_that_is_not_there_after_its_start_is_an_error(
    effects, guest, steps
):
    steps.pid = None
    with pytest.raises(errors.HypervisorError, match="emulator exited with code 0: no"):
        start(effects)
    assert steps.log[-1] == ("end", "web1")


def test_an_emulator_that_refuses_its_settings_is_ended(effects, guest, steps):
    steps.emulator.answers["cont"] = errors.HypervisorError("no answer")
    with pytest.raises(errors.HypervisorError, match="no answer"):
        start(effects)
    assert steps.log[-1] == ("end", "web1")


def test_a_tap_that_cannot_be_opened_ends_the_start(effects, guest, steps, monkeypatch):
    opened = taps.open_nic

    def once(given, device, hvparams, name):
        if steps.taps:
            raise errors.HypervisorError("no bridge")
        return opened(given, device, hvparams, name)

    monkeypatch.setattr(taps, "open_nic", once)
    with pytest.raises(errors.HypervisorError, match="no bridge"):
        start(effects)
    assert effects.process.ran == []
    assert steps.log[-1] == ("end", "web1")
    assert steps.are_closed()


@pytest.mark.parametrize(
    ("how", "record", "free", "expected"),
    [
        (launch.Launch(), instance(), 512, ["cont"]),
        (launch.Launch(), instance(), 511, [511, "cont"]),
        (launch.Launch(), instance(), 5, [128, "cont"]),
        (launch.Launch(paused=True), instance(), 600, []),
        (launch.Launch(paused=True), instance(), 200, [200]),
        (launch.Launch(incoming="tcp:192.0.2.2:8102"), instance(), 200, []),
    ],
)
def test_memory_and_run_state_after_the_start(
    effects, guest, steps, monkeypatch, how, record, free, expected
):
    monkeypatch.setattr(launch, "linux_node_info", lambda: {"memory_free": free})
    start(effects, how, record=record)
    actual = [
        arguments["value"] / MIB if command == "balloon" else command
        for command, arguments in steps.emulator.executed
    ]
    assert actual == expected
    assert steps.extras.incoming == how.incoming
    assert ("web1", "all") in steps.log


@pytest.mark.parametrize(
    ("display", "expected"),
    [
        (
            {"vnc_bind_address": "::"},
            [("set_password", {"protocol": "vnc", "password": "hush"})],
        ),
        (
            {"spice_bind": "::"},
            [("set_password", {"protocol": "spice", "password": "quiet"})],
        ),
        ({}, []),
    ],
)
def test_a_display_has_the_first_line_of_its_file_as_password(
    effects, guest, steps, tmp_path, display, expected
):
    (tmp_path / "vnc").write_text("hush\nmore\n")
    (tmp_path / "spice").write_text("quiet")
    params = {
        "vnc_password_file": str(tmp_path / "vnc"),
        "spice_password_file": str(tmp_path / "spice"),
    }
    start(effects, cpu_mask="0-1", **params, **display)
    assert steps.emulator.executed == [*expected, ("cont", None)]
    assert ("web1", "0-1") in steps.log


def test_a_guest_without_its_password_does_not_run(effects, guest, steps):
    with pytest.raises(errors.HypervisorError) as caught:
        start(effects, vnc_password_file="/none", vnc_bind_address="::")
    expected = "instance web1: vnc password file /none: No such file or directory"
    assert str(caught.value) == expected
    assert steps.log[-1] == ("end", "web1")
    assert steps.emulator.executed == []


@pytest.mark.parametrize(
    ("incoming", "expected"),
    [(None, ["0 gnt1", "1 gnt2"]), ("tcp:192.0.2.2:8102", ["1 gnt2"])],
)
def test_routes_lead_here_only_after_a_migration(
    effects, guest, steps, incoming, expected
):
    given = plan(nic(1, "routed"), nic(2))
    launch.launch(effects, instance(), given, launch.Launch(incoming=incoming))
    names = [step[1] for step in steps.log if step[0] == "connect"]
    assert names == expected


# Detached emulators


class Answering(Emulator):
    """An emulator that answers only after some attempts."""

    def __init__(self, failures):
        super().__init__(query_status={})
        self.failures = failures

    def __call__(self, path, name):
        if self.failures:
            self.failures -= 1
            raise errors.HypervisorError("connection refused")
        return super().__call__(path, name)


@pytest.fixture
def answering(monkeypatch, effects):
    """Return a function that lets the emulator run and answer after some attempts."""
    kept = []

    def use(failures):
        made = Answering(failures)
        monkeypatch.setattr(launch, "Qmp", made)
        # The child of setsid keeps the pipe open as long as it lives.
        effects.process.during = lambda given: kept.append(
            os.dup(given["pass_fds"][-1])
        )
        monkeypatch.setattr(
            launch.select,
            "select",
            lambda *_args: effects.sleep(0.02) or ([], [], []),
        )
        return made

    yield use
    for fd in kept:
        os.close(fd)


def test_a_detached_start_waits_for_an_answer(effects, guest, answering):
    asked = answering(3)
    with open(guest.log, "w") as out:
        out.write("of an earlier start")
    launch.start_detached(effects, guest, ["kvm", "-x"], [11, 12], 60.0)
    ((command, options),) = effects.process.ran
    assert command == ["setsid", "--fork", "kvm", "-x"]
    assert (options["timeout_s"], options["output_file"]) == (60.0, guest.log)
    assert options["pass_fds"][:2] == [11, 12]
    assert len(options["pass_fds"]) == 3
    assert os.path.getsize(guest.log) == 0
    assert asked.executed == [("query-status", None)]
    assert asked.paths == [guest.control("qmp")]


def test_a_detached_emulator_may_take_its_time_and_no_more(effects, guest, answering):
    answering(10_000)
    before = effects.clock.now
    with pytest.raises(errors.HypervisorError) as caught:
        launch.start_detached(effects, guest, ["kvm"], [], 5.0)
    assert str(caught.value) == (
        "instance web1: the emulator does not answer within 5 s: connection refused"
    )
    assert 5.0 <= effects.clock.now - before < 5.1


def test_the_end_of_a_detached_emulator_is_noticed(effects, guest, monkeypatch):
    monkeypatch.setattr(launch, "Qmp", Answering(10_000))

    def write(_options):
        with open(guest.log, "w") as out:
            out.write("x" * 2000 + " no such disk \n")

    effects.process.during = write
    with pytest.raises(errors.HypervisorError) as caught:
        launch.start_detached(effects, guest, ["kvm"], [], 60.0)
    text = str(caught.value)
    assert text.startswith("instance web1: the emulator ended at its start: xxx")
    assert text.endswith(" no such disk")
    assert text.count("x") == 1000 - len(" no such disk \n")


def test_a_program_that_cannot_detach_is_an_error(effects, guest):
    effects.process.result = RunResult((), 1, None, "", "")
    opened = len(os.listdir("/proc/self/fd"))
    with pytest.raises(errors.HypervisorError) as caught:
        launch.start_detached(effects, guest, ["kvm"], [], 60.0)
    assert str(caught.value) == (
        "instance web1: the emulator cannot be started: setsid exited with code 1:"
        f" no message, nothing in {guest.log}"
    )
    assert len(os.listdir("/proc/self/fd")) == opened


# Processors


def cpus(*rows):
    return Emulator(
        query_cpus_fast=[[{"cpu-index": i, "thread-id": t} for i, t in rows]]
    )


@pytest.fixture
def pinned(monkeypatch):
    done = []

    def pin(thread, processors):
        if 99 in processors:
            raise OSError(22, "Invalid argument")
        done.append((thread, set(processors)))

    monkeypatch.setattr(launch.os, "sched_setaffinity", pin)
    return done


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        ("0-1,3", [(50, {0, 1, 3}), (51, {0, 1, 3})]),
        ("2:all", [(50, {2})]),
        ("all:0-4,^1-2", [(51, {0, 3, 4})]),
    ],
)
def test_each_virtual_processor_has_the_part_of_its_number(pinned, mask, expected):
    launch.pin_cpus(cpus((1, 51), (0, 50)), "web1", mask)
    assert pinned == expected


def test_guests_that_may_run_everywhere_are_not_asked(pinned):
    launch.pin_cpus(Emulator(), "web1", "all")
    assert pinned == []


@pytest.mark.parametrize(
    ("mask", "text"),
    [
        ("1:2:3", "cpu_mask 1:2:3: wanted one mask, or as many as the 2 .*, found 3"),
        (
            "0,99",
            r"web1: cannot pin virtual processor 0 to \[0, 99\]: Invalid argument",
        ),
        ("1,^1", "CPU mask '1,\\^1': '1,\\^1' leaves no processor"),
        ("3-1", "CPU mask '3-1': '3-1' starts above its end"),
        ("1-x", "CPU mask '1-x': wanted a number or a range, found '1-x'"),
        ("", "CPU mask '': wanted a number or a range, found ''"),
    ],
)
def test_a_mask_that_does_not_fit_is_an_error(pinned, mask, text):
    with pytest.raises(errors.GenericError, match=text):
        launch.pin_cpus(cpus((0, 50), (1, 51)), "web1", mask)
