"""TPM of a KVM guest: its process, its state on several nodes, hostile files."""

import os
import pwd
import signal
import socket
import stat
import subprocess
import sys
import threading

import msgspec
import pytest

from fakes import guests, tpm_programs
from fakes.clocks import ImpatientClock
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.base.pathutils import Paths
from ganeti.base.process import SystemRunner
from ganeti.model.objects.filled import InstanceX
from ganeti.node.hypervisor import registry
from ganeti.node.hypervisor.base import NodeEffects
from ganeti.node.hypervisor.kvm import argv, checks, files, launch, runtime
from ganeti.node.hypervisor.kvm.devices import tpm
from ganeti.node.hypervisor.kvm.files import Files
from ganeti.node.hypervisor.kvm.moving import layout

FACTS = argv.EmulatorFacts("pc")
IS_ROOT = os.geteuid() == 0
#: A process that does not listen to requests to end.
DEAF = "import signal; signal.signal(15, signal.SIG_IGN); print(flush=True)\nsignal.pause()"


@pytest.fixture
def place(monkeypatch):
    monkeypatch.setattr(tpm, "USER", "nobody")
    with guests.short_directory() as path:
        os.chmod(path, 0o711)
        yield path


@pytest.fixture
def params(place):
    return {"tpm": True, "swtpm_path": tpm_programs.make(place)}


def guest_on(place, node):
    made = Files(Paths(f"{place}/{node}", node), "web1")
    made.make_directories()
    return made


def effects_of(guest, clock=None):
    return NodeEffects(guest.paths, SystemRunner(), clock or SystemClock())


def record(params, state="", **more):
    beparams = {"maxmem": 256, "minmem": 128, "vcpus": 1}
    wire = guests.kvm_instance("web1", guests.kvm_params(**params), beparams=beparams)
    return msgspec.convert({**wire, "tpm_state": state, **more}, InstanceX)


class Guest:
    """A guest that uses its TPM, and the copy in its record."""

    def __init__(self, place, params):
        self.place, self.params, self.copy = place, params, ""

    def use(self, node, data=b"read", user=None):
        """Start it on a node; return the answer of its TPM."""
        guest = guest_on(self.place, node)
        effects = effects_of(guest)
        instance = record(self.params, self.copy)
        with (
            tpm.started(effects, guest, instance, self.params, user) as fd,
            socket.socket(fileno=os.dup(fd)) as own,
        ):
            own.sendall(data)
            answer = own.recv(64)
        tpm.end(effects, guest)
        return answer

    def save(self, node):
        self.copy = tpm.state(guest_on(self.place, node)).packed()


@pytest.fixture
def moving(place, params):
    return Guest(place, params)


def test_a_guest_without_a_tpm_has_nothing(place):
    guest = guest_on(place, "n1")
    plain = record({})
    with tpm.started(effects_of(guest), guest, plain, plain.hvparams, None) as fd:
        assert fd is None
    assert not os.path.exists(os.path.dirname(tpm.state(guest).path))
    assert tpm.state(guest).packed() == ""


def test_a_process_has_its_user_and_limits_and_ends_with_the_emulator(place, params):
    guest = guest_on(place, "n1")
    with tpm.started(effects_of(guest), guest, record(params), params, None) as fd:
        with socket.socket(fileno=os.dup(fd)) as own:
            own.sendall(b"read")
            own.recv(64)
        emulator = subprocess.Popen(["sleep", "1000"], pass_fds=[fd])
    (pid,) = tpm.processes(guest)
    assert lost_parts(guest, params, emulator) == []
    with open(f"/proc/{pid}/status") as src:
        status = src.read()
    wanted = pwd.getpwnam("nobody").pw_uid if IS_ROOT else os.geteuid()
    assert f"Uid:\t{wanted}\t{wanted}\t{wanted}" in status
    assert "NoNewPrivs:\t1" in status
    with open(f"/proc/{pid}/limits") as src:
        limits = {row[:25].strip(): row[26:].split() for row in src}
    assert limits["Max core file size"][0] == "0"
    assert limits["Max file size"][0] == str(4 << 20)
    directory = os.stat(os.path.dirname(tpm.state(guest).path))
    assert (directory.st_uid, stat.S_IMODE(directory.st_mode)) == (wanted, 0o700)
    emulator.kill()
    emulator.wait()
    assert files.wait_gone(effects_of(guest), pid, 30)


def lost_parts(guest, params, emulator):
    """Return what the driver finds lost while an emulator runs."""
    runtime.save(guest, runtime.Runtime((), (), params, ()))
    driver = registry.drivers(effects_of(guest))["kvm"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Files, "alive_pid", lambda _guest: emulator.pid)
        return [kind for kind in driver.lost_parts("web1") if kind != "tpm"]


def test_a_process_that_was_killed_under_its_guest_is_found(place, params):
    guest = guest_on(place, "n1")
    with tpm.started(effects_of(guest), guest, record(params), params, None) as fd:
        emulator = subprocess.Popen(["sleep", "1000"], pass_fds=[fd])
    (pid,) = tpm.processes(guest)
    os.kill(pid, signal.SIGKILL)
    assert files.wait_gone(effects_of(guest), pid, 30)
    assert lost_parts(guest, params, emulator) == ["tpm-process"]
    emulator.kill()
    emulator.wait()


def test_the_next_daemon_ends_a_process_whose_emulator_never_came(
    place, params, monkeypatch
):
    guest = guest_on(place, "n1")
    with tpm.started(effects_of(guest), guest, record(params), params, None):
        (pid,) = tpm.processes(guest)
    os.mkdir(f"{os.path.dirname(os.path.dirname(tpm.state(guest).path))}/../-odd")
    with monkeypatch.context() as patch:
        patch.setattr(Files, "alive_pid", lambda _guest: 1)
        tpm.end_abandoned(effects_of(guest))
        assert tpm.processes(guest) == [pid]
    tpm.end_abandoned(effects_of(guest))
    assert tpm.processes(guest) == []


def test_a_node_without_such_guests_has_no_process_to_end(place):
    tpm.end_abandoned(effects_of(guest_on(place, "n3")))


def test_the_state_stays_and_another_node_has_the_copy(moving):
    assert moving.use("n1") == b"new"
    assert moving.use("n1", b"keys") == b"keys"
    assert moving.use("n1") == b"keys"
    moving.save("n1")
    assert moving.use("n2") == b"keys"
    assert moving.use("n2", b"keys of n2") == b"keys of n2"
    moving.save("n2")
    # The file that stayed is older than the copy.
    assert moving.use("n1") == b"keys of n2"


def test_the_state_follows_a_change_of_the_user(place, moving):
    moving.use("n1", b"keys")
    name = "daemon" if IS_ROOT else None
    assert moving.use("n1", user=name) == b"keys"
    info = os.stat(tpm.state(guest_on(place, "n1")).path)
    assert info.st_uid == (pwd.getpwnam(name).pw_uid if name else os.geteuid())


def test_the_state_of_a_stopped_guest_is_not_for_the_next_user(place, moving):
    # The pool gives the user to another guest.
    name = "daemon" if IS_ROOT else None
    moving.use("n1", b"keys", user=name)
    guest = guest_on(place, "n1")
    directory = os.path.dirname(tpm.state(guest).path)

    def access():
        info = os.stat(directory)
        return info.st_uid, stat.S_IMODE(info.st_mode)

    assert access() == (os.geteuid(), 0o700)
    # As after a crash of the node.
    if IS_ROOT:
        os.chown(directory, pwd.getpwnam(name).pw_uid, -1)
    tpm.end_abandoned(effects_of(guest))
    assert access() == (os.geteuid(), 0o700)
    assert moving.use("n1", user=name) == b"keys"


@pytest.mark.parametrize("kind", ["link", "pipe", "second name"])
def test_files_that_the_process_replaced_are_not_read(place, moving, kind):
    moving.use("n1", b"keys")
    path = tpm.state(guest_on(place, "n1")).path
    os.unlink(path)
    secret = f"{place}/secret"
    with open(secret, "w") as out:
        out.write("of another")
    make = {
        "link": lambda: os.symlink(secret, path),
        "pipe": lambda: os.mkfifo(path),
        "second name": lambda: os.link(secret, path),
    }
    make[kind]()
    moving.save("n1")
    assert moving.copy == ""
    assert moving.use("n1") == b"new"
    assert os.stat(secret).st_uid == os.geteuid()


def test_a_program_that_ends_at_once_is_named_with_its_message(place, params):
    guest = guest_on(place, "n1")
    with open(params["swtpm_path"], "w") as out:
        out.write("#!/bin/sh\necho no state today >&2\nexit 1\n")
    with (
        pytest.raises(errors.HypervisorError, match=r"web1: its TPM .*no state today"),
        tpm.started(effects_of(guest), guest, record(params), params, None),
    ):
        raise AssertionError


def test_a_damaged_copy_is_named(place, params):
    guest = guest_on(place, "n1")
    with (
        pytest.raises(errors.HypervisorError, match=r"web1: .*TPM are damaged"),
        tpm.started(effects_of(guest), guest, record(params, "*"), params, None),
    ):
        raise AssertionError


def test_the_cleanup_of_a_guest_ends_a_process_that_stayed(place, moving):
    moving.use("n1")
    guest = guest_on(place, "n1")
    word = f"dir={os.path.dirname(tpm.state(guest).path)},mode=0600"
    deaf = subprocess.Popen(
        [sys.executable, "-c", DEAF, "--tpmstate", word], stdout=subprocess.PIPE
    )
    deaf.stdout.readline()
    # One that nobody reaps is waited for.
    reaping = threading.Thread(target=deaf.wait)
    reaping.start()
    launch.remove_remains(effects_of(guest, ImpatientClock()), guest)
    reaping.join()
    assert deaf.wait() == -signal.SIGKILL
    deaf.stdout.close()


def test_the_command_has_the_device_of_this_start_only(place, params):
    guest = guest_on(place, "n1")
    plan = runtime.Runtime(
        tuple(argv.build(record(params), guest, FACTS)), (), params, ()
    )
    assert "tpm" not in " ".join(plan.argv)
    text = " ".join(argv.complete(plan, argv.Extras("tcg", tpm_fd=7)))
    assert "-chardev socket,id=tpm0,fd=7 -tpmdev emulator" in text
    assert "-device tpm-crb,tpmdev=tpm0" in text
    assert "tpm" not in " ".join(argv.complete(plan, argv.Extras("tcg")))


@pytest.mark.parametrize(("then", "now"), [(False, True), (True, False)])
def test_a_moved_guest_keeps_its_tpm(place, params, then, now):
    guest = guest_on(place, "n1")
    start = record(params | {"tpm": then})
    plan = runtime.Runtime(
        tuple(argv.build(start, guest, FACTS)), (), start.hvparams, ()
    )
    target = record(params | {"tpm": now})
    moved = layout.read(
        target,
        runtime.export(guest, plan),
        machines=frozenset({"pc"}),
        memory_mib=4096,
    )
    assert moved.instance(target).hvparams["tpm"] is then


def test_checks_name_what_a_node_lacks(monkeypatch, params):
    hvp = record(params).hvparams | {"kvm_path": "/bin/sh"}
    checks.check_files(hvp)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(tpm, "USER", "nobody-of-this-name")
    with pytest.raises(errors.HypervisorError, match=r"swtpm-tools makes it"):
        checks.check_files(hvp)
    checks.check_files(hvp | {"security_model": "pool"})
    os.unlink(params["swtpm_path"])
    with pytest.raises(errors.HypervisorError, match=r"swtpm_path: wanted a file"):
        checks.check_files(hvp)
    checks.check_files(hvp | {"tpm": False})
