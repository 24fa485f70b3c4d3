"""Directories that a guest shares with its node: the list, processes, the command."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading

import msgspec
import pytest

from fakes import guests, share_programs
from fakes.clocks import ImpatientClock
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.base.pathutils import Paths
from ganeti.base.process import SystemRunner
from ganeti.model.objects.filled import InstanceX
from ganeti.node.hypervisor import registry
from ganeti.node.hypervisor.base import NodeEffects
from ganeti.node.hypervisor.kvm import argv, checks, files, launch, runtime
from ganeti.node.hypervisor.kvm.devices import helper_processes, shares
from ganeti.node.hypervisor.kvm.files import Files
from ganeti.node.hypervisor.kvm.moving import layout, sending
from ganeti.node.hypervisor.kvm.qmp import Qmp

FACTS = argv.EmulatorFacts("pc")
TWO = "data=/srv/data:iso=/srv/iso"
#: A process that does not listen to requests to end.
DEAF = "import signal; signal.signal(15, signal.SIG_IGN); print(flush=True)\nsignal.pause()"


@pytest.fixture
def guest():
    with guests.short_directory() as place:
        made = Files(Paths(f"{place}/n1", "n1"), "web1")
        made.make_directories()
        for path in ("/srv/data", "/srv/iso", "/srv/other"):
            os.makedirs(made.paths.at(path))
        os.makedirs(made.paths.conf_dir)
        allow(made, "# of the guests", "", "/srv/data", "/srv/iso", "/srv/none")
        yield made


@pytest.fixture
def effects(guest):
    return NodeEffects(guest.paths, SystemRunner(), SystemClock())


@pytest.fixture
def params(guest):
    program = share_programs.make(guest.paths.root)
    return {"shared_directories": TWO, "virtiofsd_path": program}


def allow(guest, *lines):
    with open(f"{guest.paths.conf_dir}/shared-directories", "w") as out:
        out.writelines(f"{line}\n" for line in lines)


def record(params, **more):
    wire = guests.kvm_instance("web1", guests.kvm_params(**params), **more)
    return msgspec.convert(wire, InstanceX)


def planned(guest, params):
    given = record(params)
    return runtime.Runtime(
        tuple(argv.build(given, guest, FACTS)), (), given.hvparams, ()
    )


def test_a_guest_without_directories_has_nothing(guest, effects):
    with shares.started(effects, guest, guests.kvm_params()) as ends:
        assert ends == []
    text = " ".join(planned(guest, {}).argv)
    assert "memory-backend" not in text
    assert shares.processes(guest) == []


def test_no_directory_that_another_guest_can_replace_is_shared(guest, effects, params):
    os.makedirs(guest.paths.at("/srv/data/inner"))
    os.makedirs(guest.paths.at("/srv/database"))
    allow(guest, "/srv/data", "/srv/data/inner", "/srv/database")
    shares.check(guest.paths, params | {"shared_directories": "a=/srv/data"})
    shares.check(guest.paths, params | {"shared_directories": "a=/srv/database"})
    inner = params | {"shared_directories": "a=/srv/data/inner"}
    text = "/srv/data/inner is below /srv/data, .* link"
    with (
        pytest.raises(errors.HypervisorError, match=text),
        shares.started(effects, guest, inner),
    ):
        pass


def test_processes_live_as_long_as_the_emulator(guest, effects, params):
    with shares.started(effects, guest, params) as ends:
        assert [tag for tag, _ in ends] == ["data", "iso"]
        pids = shares.processes(guest)
        fds = [fd for _, fd in ends]
        emulator = subprocess.Popen(["sleep", "1000"], pass_fds=fds)
    lines = [files.command_line(pid)[-1] for pid in pids]
    root = guest.paths.root
    assert sorted(lines) == [f"source={root}/srv/{name}" for name in ("data", "iso")]
    assert shares.processes(guest) == pids
    assert not os.path.exists(guest.control("share"))
    assert shares.processes(Files(guest.paths, "web2")) == []
    assert lost_parts(effects, guest, params, emulator) == []
    emulator.kill()
    emulator.wait()
    assert all(files.wait_gone(effects, pid, 30) for pid in pids)


def lost_parts(effects, guest, params, emulator):
    """Return what the driver finds lost while an emulator runs."""
    runtime.save(guest, runtime.Runtime((), (), params, ()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Files, "alive_pid", lambda _guest: emulator.pid)
        return registry.drivers(effects)["kvm"].lost_parts("web1")


def test_a_lost_control_socket_is_found(guest, effects, params):
    emulator = subprocess.Popen(["sleep", "1000"])
    control = pathlib.Path(guest.control("qmp"))
    control.parent.mkdir(parents=True, exist_ok=True)
    del params["shared_directories"]
    # It starts: it has none yet.
    assert lost_parts(effects, guest, params, emulator) == []
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(control))
        listening.listen()
        assert lost_parts(effects, guest, params, emulator) == []
        control.unlink()
        assert lost_parts(effects, guest, params, emulator) == ["control"]
    emulator.kill()
    emulator.wait()


def test_a_process_that_was_killed_under_its_guest_is_found(guest, effects, params):
    with shares.started(effects, guest, params) as ends:
        fds = [fd for _, fd in ends]
        emulator = subprocess.Popen(["sleep", "1000"], pass_fds=fds)
    served = {files.command_line(pid)[-1][-4:]: pid for pid in shares.processes(guest)}
    os.kill(served["data"], signal.SIGKILL)
    assert files.wait_gone(effects, served["data"], 30)
    assert lost_parts(effects, guest, params, emulator) == ["shares"]
    pathlib.Path(guest.pid).touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Files, "alive_pid", lambda _guest: emulator.pid)
        lost = helper_processes.lost(guest.paths)
        # Its TPM has a process, too, which never ran here.
        runtime.save(guest, runtime.Runtime((), (), params | {"tpm": True}, ()))
        texts = [each.text for each in helper_processes.lost(guest.paths)["web1"]]
        runtime.save(guest, runtime.Runtime((), (), {}, ()))
        assert helper_processes.lost(guest.paths) == {}
    assert lost == {"web1": [helper_processes.Need("/srv/data")]}
    remedy = "its process has ended, 'gnt-instance reboot' starts it again"
    assert texts == [f"shared directory /srv/data: {remedy}", f"TPM: {remedy}"]
    assert helper_processes.lost(guest.paths) == {}
    emulator.kill()
    emulator.wait()
    assert files.wait_gone(effects, served["/iso"], 30)


def test_the_emulator_finds_no_rest_of_an_answer(guest, effects, params):
    with (
        shares.started(effects, guest, params) as ends,
        socket.socket(fileno=os.dup(ends[0][1])) as own,
    ):
        own.sendall(b"again")
        own.shutdown(socket.SHUT_WR)
        answer = b""
        while data := own.recv(64):
            answer += data
    assert len(answer) == 20


def test_a_start_that_is_given_up_leaves_no_process(guest, effects, params):
    with shares.started(effects, guest, params):
        pids = shares.processes(guest)
    assert len(pids) == 2
    assert all(files.wait_gone(effects, pid, 30) for pid in pids)


def test_the_real_programs_share_a_directory(guest, effects, params):
    params["virtiofsd_path"] = share_programs.real()
    plan = planned(guest, {**params, "kvm_path": "/usr/bin/qemu-system-x86_64"})
    with shares.started(effects, guest, plan.hvparams) as ends:
        extras = argv.Extras(
            "tcg", share_ends=ends, sandbox=argv.sandbox({}, has_user=False)
        )
        emulator = subprocess.Popen(
            argv.complete(plan, extras), pass_fds=[fd for _, fd in ends]
        )
    try:
        assert len(shares.processes(guest)) >= 2
        qmp = _connected(effects, guest, emulator)
        with qmp:
            [memory] = qmp.execute("query-memdev")
            assert (memory["id"], memory["share"]) == ("shared-ram", True)
            rows = qmp.execute("qom-list", {"path": "/machine/peripheral-anon"})
            kinds = [row["type"] for row in rows]
            assert kinds.count("child<vhost-user-fs-pci>") == 2
    finally:
        pids = shares.processes(guest)
        emulator.kill()
        emulator.wait()
    assert all(files.wait_gone(effects, pid, 30) for pid in pids)


def _connected(effects, guest, emulator):
    while True:
        try:
            with Qmp(guest.control("qmp"), guest.name) as qmp:
                qmp.execute("query-status")
            return Qmp(guest.control("qmp"), guest.name)
        except errors.HypervisorError:
            assert emulator.poll() is None
            effects.sleep(0.05)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x=/srv/other", r"/srv/other is not among .* /srv/data, /srv/iso, /srv/none;"),
        ("x=/srv/data/sub", r"/srv/data/sub is not among the directories"),
        ("x=/srv", r"/srv is not among the directories"),
        ("x=/srv/none", r"wanted a directory on this node, found none at /srv/none"),
        ("x=/srv/data/../iso", r"wanted parts TAG=DIRECTORY .*found 'x=/srv/data/../"),
    ],
)
def test_only_directories_of_the_list_are_shared(guest, effects, params, value, text):
    hvp = {**params, "shared_directories": value}
    with (
        pytest.raises(errors.HypervisorError, match=text),
        shares.started(effects, guest, hvp),
    ):
        raise AssertionError
    assert shares.processes(guest) == []


def test_a_node_without_a_list_shares_nothing(guest, params):
    os.unlink(f"{guest.paths.conf_dir}/shared-directories")
    with pytest.raises(errors.HypervisorError, match=r"which are none; .* writes them"):
        shares.check(guest.paths, params)


@pytest.mark.parametrize("line", ["srv/data", "/srv/a b", "/srv/../etc", "/", "/a,b"])
def test_a_wrong_line_of_the_list_is_named(guest, params, line):
    allow(guest, "/srv/data", line)
    with pytest.raises(errors.HypervisorError, match=r"directories, line 2: wanted an"):
        shares.check(guest.paths, params)


def test_a_list_that_is_no_text_is_named(guest, params):
    with open(f"{guest.paths.conf_dir}/shared-directories", "wb") as out:
        out.write(b"/srv/\xff\n")
    with pytest.raises(errors.HypervisorError, match=r"shared-directories: 'utf-8'"):
        shares.check(guest.paths, params)


def test_a_program_that_ends_at_once_is_named_with_its_message(guest, effects, params):
    with open(params["virtiofsd_path"], "w") as out:
        out.write("#!/bin/sh\necho no space today >&2\nexit 1\n")
    wanted = r"web1: directory .*/srv/data cannot be shared: .*no space today"
    with (
        pytest.raises(errors.HypervisorError, match=wanted),
        shares.started(effects, guest, params),
    ):
        raise AssertionError


def test_a_program_that_cannot_run_is_named(guest, effects, params):
    params["virtiofsd_path"] = "/nonexistent/virtiofsd"
    with (
        pytest.raises(errors.HypervisorError, match=r"web1: directory .*nonexistent"),
        shares.started(effects, guest, params),
    ):
        raise AssertionError


def test_the_cleanup_of_a_guest_ends_a_process_that_stayed(guest):
    effects = NodeEffects(guest.paths, SystemRunner(), ImpatientClock())
    mark = {"GANETI_SHARES_OF": f"{guest.root}/web1"}
    deaf = subprocess.Popen(
        [sys.executable, "-c", DEAF], stdout=subprocess.PIPE, env=mark
    )
    deaf.stdout.readline()
    # One that nobody reaps is waited for.
    reaping = threading.Thread(target=deaf.wait)
    reaping.start()
    launch.remove_remains(effects, guest)
    reaping.join()
    assert deaf.wait() == -signal.SIGKILL
    deaf.stdout.close()


def test_the_command_has_shared_memory_and_the_devices_of_this_start(guest, params):
    plan = planned(guest, {**params, "acpi": False})
    text = " ".join(plan.argv)
    assert "-machine pc,acpi=off,memory-backend=shared-ram " in text
    assert "memory-backend-memfd,id=shared-ram,size=128M,share=on" in text
    assert "vhost-user" not in text
    extras = argv.Extras("tcg", share_ends=[("data", 7), ("iso", 8)])
    text = " ".join(argv.complete(plan, extras))
    assert (
        "-chardev socket,id=share0,fd=7 -device vhost-user-fs-pci,chardev=share0,tag=data"
        " -chardev socket,id=share1,fd=8 -device vhost-user-fs-pci,chardev=share1,tag=iso"
    ) in text


def test_shared_memory_can_be_huge_pages(guest, params):
    text = " ".join(planned(guest, {**params, "mem_path": "/huge,a"}).argv)
    wanted = "memory-backend-file,id=shared-ram,size=128M,share=on,mem-path=/huge,,a"
    assert f"{wanted},prealloc=on" in text
    assert "-mem-path" not in text


def test_a_guest_with_shared_directories_does_not_migrate(
    guest, effects, params, monkeypatch
):
    monkeypatch.setattr(Files, "alive_pid", lambda _self: 7)
    asked = []
    monkeypatch.setattr(sending, "check_idle", asked.append)
    driver = registry.DRIVERS["kvm"](effects)
    runtime.save(guest, planned(guest, params))
    wanted = r"^instance web1: shares directories of its node \(/srv/data, /srv/iso\)"
    with pytest.raises(errors.HypervisorError, match=wanted):
        driver.migratable(record(params))
    assert asked == []
    # The start of the guest counts, not the record.
    runtime.save(guest, planned(guest, {}))
    driver.migratable(record(params))
    assert asked == [guest]
    moved = layout.read(
        record(params),
        runtime.export(guest, runtime.load(guest)),
        machines=frozenset({"pc"}),
        memory_mib=4096,
    )
    assert moved.instance(record(params)).hvparams["shared_directories"] == ""


def test_checks_name_what_a_node_lacks(params):
    hvp = {**guests.kvm_params(**params), "kvm_path": "/bin/sh"}
    checks.check_files(hvp)
    os.unlink(params["virtiofsd_path"])
    with pytest.raises(errors.HypervisorError, match=r"virtiofsd_path: wanted a file"):
        checks.check_files(hvp)
    checks.check_files({**hvp, "shared_directories": ""})
