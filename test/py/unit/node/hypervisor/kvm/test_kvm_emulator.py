"""Facts about the emulator, and their storage until the next boot."""

import os
import tempfile

import pytest

from fakes import nodes
from fakes.processes import FakeRunner
from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.node.hypervisor import NodeEffects
from ganeti.node.hypervisor.kvm import checks, emulator
from ganeti.node.hypervisor.registry import DRIVERS

MACHINES = """Supported machines are:
none                 empty machine
pc                   Standard PC (alias of pc-i440fx-7.2)
pc-i440fx-7.2        Standard PC (default)
q35                  Standard PC (Q35)
"""


def answers(argv):
    """Answer as QEMU does, and record the probes in `commands` of the runner."""
    if "--version" in argv:
        return (0, "QEMU emulator version 7.2.19 (Debian)\n", "")
    return (0, MACHINES, "")


@pytest.fixture
def effects():
    with tempfile.TemporaryDirectory(prefix="gv-", dir="/tmp") as root:
        runner = FakeRunner(qemu=answers)
        yield NodeEffects(Paths(root, "n1"), runner, nodes.CountedClock())


def test_a_node_without_the_emulator_reports_no_version(effects):
    effects.process.answers["qemu"] = (127, "", "qemu: not found")
    driver = DRIVERS["kvm"](effects)
    info = driver.node_info({"kvm_path": "/bin/qemu"})
    assert info["hv_version"] is None
    assert info["memory_total"] > 0


def test_version_and_machines_are_those_that_the_emulator_prints(effects):
    assert emulator.version(effects, "/bin/qemu") == (7, 2, 19)
    assert emulator.default_machine(effects, "/bin/qemu") == "pc-i440fx-7.2"
    wanted = {"none", "pc", "pc-i440fx-7.2", "q35"}
    assert emulator.machines(effects, "/bin/qemu") == wanted
    assert effects.process.lines == ["qemu --version"] + ["qemu -machine help"] * 2
    assert effects.process.commands[0][1]["timeout_s"] > 0


def test_a_version_without_a_third_number(effects):
    effects.process.answers["qemu"] = (0, "QEMU emulator version 8.1\n", "")
    assert emulator.version(effects, "/bin/qemu") == (8, 1)


def test_an_emulator_that_prints_something_else_is_refused(effects):
    effects.process.answers["qemu"] = (0, "hello", "")
    with pytest.raises(errors.HypervisorError, match=r"no version number.*hello"):
        emulator.version(effects, "/bin/qemu")
    with pytest.raises(errors.HypervisorError, match="no default machine"):
        emulator.default_machine(effects, "/bin/qemu")


def test_an_emulator_that_fails_is_an_error_with_its_output(effects):
    effects.process.answers["qemu"] = (1, "", "cannot load libx\n")
    with pytest.raises(errors.HypervisorError, match=r"qemu --version: .*libx$"):
        emulator.version(effects, "/bin/qemu")

    def missing(_argv):
        raise errors.CommandError("qemu: cannot be run")

    effects.process.answers["qemu"] = missing
    with pytest.raises(errors.HypervisorError, match="cannot be run"):
        emulator.machines(effects, "/bin/qemu")


@pytest.fixture
def binary(tmp_path):
    path = tmp_path / "qemu"
    path.write_text("first")
    return str(path)


def test_the_sandbox_is_probed_again_only_for_another_binary(effects, binary):
    assert emulator.has_sandbox(effects, binary)
    assert emulator.has_sandbox(effects, binary)
    [line] = effects.process.lines
    assert line.startswith("qemu -sandbox on,")
    for denied in ("obsolete", "elevateprivileges", "spawn", "resourcecontrol"):
        assert f"{denied}=deny" in line
    with open(binary, "w") as out:
        out.write("another")
    effects.process.answers["qemu"] = (1, "", "no seccomp")
    assert not emulator.has_sandbox(effects, binary)
    assert not emulator.has_sandbox(effects, binary)
    assert len(effects.process.lines) == 2
    os.unlink(binary)
    assert not emulator.has_sandbox(effects, binary)


def test_a_damaged_result_of_a_probe_is_replaced(effects, binary):
    emulator.has_sandbox(effects, binary)
    [path] = [
        os.path.join(top, name)
        for top, _dirs, names in os.walk(effects.paths.root)
        for name in names
        if name == "sandbox"
    ]
    for text in ("[1]", "{"):
        with open(path, "w") as out:
            out.write(text)
        assert emulator.has_sandbox(effects, binary)
    assert len(effects.process.lines) == 3


class Guests:
    """An emulator with a scripted duration of the probe per accelerator, or None."""

    def __init__(self, effects, **seconds):
        self._clock = effects.clock
        self._seconds = seconds
        self.probed = []
        effects.process.answers["qemu"] = self.run
        self._process = effects.process

    def run(self, argv):
        accel = argv[argv.index("-accel") + 1]
        self.probed.append(accel)
        [drive] = [word for word in argv if word.startswith("if=ide")]
        with open(drive.rpartition("=")[2], "rb") as image:
            sector = image.read()
        assert (len(sector), sector[-2:]) == (512, b"\x55\xaa")
        assert "isa-debug-exit,iobase=0xf4,iosize=0x04" in argv
        limit_s = self._process.commands[-1][1]["timeout_s"]
        needed = self._seconds[accel]
        if needed is None or needed > limit_s:
            self._clock.now += limit_s
            return (1, "", "")
        self._clock.now += needed
        return (85, "", "")


@pytest.fixture
def device(monkeypatch, tmp_path):
    path = tmp_path / "kvm"
    path.write_text("")
    monkeypatch.setattr(emulator, "_KVM_DEVICE", str(path))
    return path


@pytest.mark.parametrize(
    ("tcg", "kvm", "wanted"),
    [
        (0.1, 0.05, "kvm"),
        (0.1, 0.9, "kvm"),  # starting takes longer than the loop
        (0.1, 1.1, "tcg"),
        (2.0, 5.9, "kvm"),
        (2.0, 6.1, "tcg"),
        (0.1, None, "tcg"),
        (None, 15.0, "kvm"),
        (None, None, "tcg"),
    ],
)
def test_acceleration_is_used_if_it_is_not_much_slower(
    effects, device, tcg, kvm, wanted
):
    guests = Guests(effects, tcg=tcg, kvm=kvm)
    assert emulator.acceleration(effects, "/bin/qemu", "") == wanted
    assert emulator.acceleration(effects, "/bin/qemu", "") == wanted
    assert guests.probed == ["tcg", "kvm"]


def test_another_boot_or_binary_is_measured_again(effects, device, monkeypatch):
    guests = Guests(effects, tcg=0.1, kvm=0.1)
    emulator.acceleration(effects, "/bin/qemu", "")
    emulator.acceleration(effects, "/opt/qemu", "")
    assert len(guests.probed) == 4
    monkeypatch.setattr(emulator, "_boot_id", lambda: "another")
    emulator.acceleration(effects, "/opt/qemu", "")
    assert len(guests.probed) == 6


def test_the_parameter_decides_without_a_probe(effects, device):
    assert emulator.acceleration(effects, "/bin/qemu", "enabled") == "kvm"
    assert emulator.acceleration(effects, "/bin/qemu", "disabled") == "tcg"
    device.unlink()
    assert emulator.acceleration(effects, "/bin/qemu", "") == "tcg"
    assert effects.process.commands == []


def test_a_probe_is_a_machine_with_one_sector_and_nothing_else(effects):
    images = []

    def end(argv):
        (path,) = [word.partition("file=")[2] for word in argv if "file=" in word]
        with open(path, "rb") as image:
            images.append((path, image.read()))
        effects.clock.now += 0.5
        return (emulator._PROBE_EXIT, "", "")

    effects.process.answers["qemu"] = end
    assert emulator.probe(effects, "/bin/qemu", "tcg", 5.0) == 0.5
    ((path, image),) = images
    assert (len(image), image[-2:]) == (512, b"\x55\xaa")
    assert not os.path.exists(path)
    ((command, options),) = effects.process.commands
    assert options == {"timeout_s": 5.0}
    expected = (
        "/bin/qemu -accel tcg -m 16 -display none -nodefaults -no-user-config -net none"
        f" -device isa-debug-exit,iobase=0xf4,iosize=0x04 -drive"
        f" if=ide,format=raw,file={path}"
    )
    assert " ".join(command) == expected


def test_a_probe_that_cannot_run_or_ends_otherwise_has_no_time(effects):
    effects.process.answers["qemu"] = (0, "", "")
    assert emulator.probe(effects, "/bin/qemu", "tcg", 5.0) is None

    def missing(_argv):
        raise errors.CommandError("qemu: cannot be run")

    effects.process.answers["qemu"] = missing
    assert emulator.probe(effects, "/bin/qemu", "tcg", 5.0) is None


OLD = (0, "QEMU emulator version 4.2.1\n", "")


def checked(effects, **params):
    checks.check_emulator(effects, {"kvm_path": "/bin/qemu", **params})


def test_parameters_that_the_emulator_has_are_accepted(effects):
    checked(effects)
    checked(effects, disk_aio="io_uring")
    checked(effects, machine_version="q35,smm=off")


def test_a_machine_that_the_emulator_lacks_is_refused(effects):
    text = "^hypervisor kvm: machine_version pc-1: unknown to /bin/qemu$"
    with pytest.raises(errors.HypervisorError, match=text):
        checked(effects, machine_version="pc-1,accel=kvm")


def test_a_vga_adapter_that_the_emulator_lacks_is_refused(effects):
    warning = "qemu: warning: no display module\n"
    listed = (0, "none  no adapter\nvirtio  Virtio VGA\n", warning)
    effects.process.answers["qemu"] = lambda argv: (
        listed if "-vga" in argv else answers(argv)
    )
    checked(effects, vga="virtio")
    text = "^hypervisor kvm: parameter vga: wanted one of none, virtio, .*'cga'$"
    with pytest.raises(errors.HypervisorError, match=text):
        checked(effects, vga="cga")


@pytest.mark.parametrize(
    ("params", "device"),
    [
        ({"tpm": True}, "tpm-crb"),
        ({"shared_directories": "a=/a"}, "vhost-user-fs-pci"),
    ],
)
def test_an_emulator_without_a_device_is_named(effects, params, device):
    effects.process.answers["qemu"] = lambda argv: (
        (1, "", "no such device") if "-device" in argv else answers(argv)
    )
    text = f"parameter {next(iter(params))}: /bin/qemu was built without {device}$"
    with pytest.raises(errors.HypervisorError, match=text):
        checked(effects, **params)


def test_an_old_emulator_has_no_io_uring(effects):
    effects.process.answers["qemu"] = OLD
    checked(effects, disk_aio="native")
    text = r"^hypervisor kvm: disk_aio io_uring needs emulator 5\.0, found 4\.2\.1$"
    with pytest.raises(errors.HypervisorError, match=text):
        checked(effects, disk_aio="io_uring")


def test_a_node_is_verified_by_running_its_emulator(effects, tmp_path):
    driver, program = DRIVERS["kvm"](effects), tmp_path / "qemu"
    params = {"kvm_path": str(program)}
    wanted = f"emulator {program}: not found or not executable"
    assert driver.verify(params) == wanted
    program.touch(0o755)
    assert driver.verify(params) is None
    effects.process.answers["qemu"] = (1, "", "bad library")
    assert "bad library" in driver.verify(params)
