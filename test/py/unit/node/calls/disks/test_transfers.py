"""Transfers of disks: arguments of the program, its status, and its end."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from fakes import nodes
from fakes.processes import FakeRunner
from ganeti.base import errors
from ganeti.base.filesystem import pidfile
from ganeti.base.process import SystemRunner
from ganeti.node.calls.disks import transfers


@pytest.fixture
def node(tmp_path):
    runner = FakeRunner(import_export=FakeRunner.DONE)
    return dataclasses.replace(nodes.make_node(tmp_path), process=runner)


@pytest.fixture
def instance(node):
    record = nodes.instance(disks=1, osparams={"motd": "hello"})
    nodes.make_disks(node, record)
    return record


def options(node, **more):
    name, pem = nodes.call(node, "x509_cert_create", 60)
    return {"key_name": name, "ca_pem": pem, **more}


def receive(node, instance, where, **more):
    args = (options(node, **more), instance, "disk0", where)
    return nodes.call(node, "import_start", *args)


def send(node, instance, where, **more):
    args = (options(node, **more), "192.0.2.7", 4711, instance, "disk0", where)
    return nodes.call(node, "export_start", *args)


def raw(instance):
    return ["raw", instance["disks_info"]]


def arguments(node):
    """Return the last program's options as a dict, and its other arguments."""
    [(argv, _options)] = node.process.commands
    named = dict(arg.split("=", 1) for arg in argv[1:] if "=" in arg)
    return named, [arg for arg in argv[1:] if "=" not in arg]


def test_a_disk_is_received_with_the_key_made_for_it(node, instance):
    name = receive(node, instance, raw(instance), magic="m1", compress="gzip")
    directory = f"{node.paths.run_dir}/import-export/{name}"
    named, others = arguments(node)
    assert others == [f"{directory}/status", "import", "--ipv4"]
    for option in ("--key", "--cert", "--ca"):
        assert os.path.isfile(named.pop(option))
    disk = instance["disks_info"][0]
    ((_command, given),) = node.process.commands
    (fd,) = given["pass_fds"]
    assert named == {
        "--pid-file": f"{directory}/pid",
        "--compress": "gzip",
        "--connect-timeout": "60",
        "--connect-retries": "0",
        "--magic": "m1",
        "--file": f"/proc/self/fd/{fd}",
        "--expected-size": str(disk["size"]),
    }
    assert os.stat(directory).st_mode & 0o777 == 0o700


def test_a_disk_is_sent_to_the_host_and_port_that_the_master_names(node, instance):
    more = {"ipv6": True, "connect_timeout": 5, "connect_retries": 2}
    send(node, instance, raw(instance), **more)
    named, others = arguments(node)
    assert others[1:] == [
        "export",
        "--ipv6",
        *("--host", "192.0.2.7", "--port", "4711"),
    ]
    assert (named["--connect-timeout"], named["--connect-retries"]) == ("5", "2")
    assert "--magic" not in named


def test_the_size_is_that_of_the_record_on_import_and_of_the_device_on_export(
    node, instance
):
    disk = dict(instance["disks_info"][0], size=9)
    receive(node, instance, ["raw", [disk]])
    send(node, instance, ["raw", [disk]])
    sizes = [
        [arg for arg in argv if arg.startswith("--expected-size")]
        for argv, _options in node.process.commands
    ]
    assert sizes == [["--expected-size=9"], ["--expected-size=4"]]


def make_os(node):
    path = f"{node.paths.os_search_path[0]}/tiny"
    os.makedirs(path)
    for script in ("create", "export", "import", "rename"):
        with open(f"{path}/{script}", "w") as out:
            out.write("#!/bin/sh\n")
        os.chmod(f"{path}/{script}", 0o755)
    for file, text in (("ganeti_api_version", "15\n"), ("variants.list", "default\n")):
        with open(f"{path}/{file}", "w") as out:
            out.write(text)
    return path


def test_scripts_get_the_disk_and_secrets_in_the_environment_alone(node, instance):
    path = make_os(node)
    for disk in instance["disks_info"]:
        disk["dev_type"] = "sharedfile"
    where = ["script", [instance["disks_info"][0], 0]]
    receive(node, instance, where)
    send(node, instance, where)
    (first, given), (second, _given) = node.process.commands
    commands = [arg for arg in (*first, *second) if arg.startswith("--cmd-")]
    for name, command in zip(("IMPORT", "EXPORT"), commands, strict=True):
        *exports, script = command.partition("=")[2].split("; ")
        assert script == f"cd {path} && exec {path}/{name.lower()}"
        names = {f"DISK_{n}_PATH" for n in range(len(instance["disks_info"]))}
        wanted = {*names, f"{name}_DEVICE", f"{name}_DISK_PATH"}
        assert {each.split()[1].partition("=")[0] for each in exports} == wanted
        assert all("=/proc/$PPID/fd/" in each for each in exports)
    assert given["env"]["IMPORT_INDEX"] == "0"
    assert given["env"]["OSP_MOTD"] == "hello"
    assert given["env"]["GANETI_ROOTDIR"] == node.paths.root
    assert given["env"]["GANETI_HOSTNAME"] == node.paths.hostname
    assert not any("hello" in argument for argument in first)


@pytest.mark.parametrize(
    "where",
    [["raw", []], ["raw", [{}, 1]], ["script", [{}]], ["file", []]],
)
def test_other_ends_of_a_transfer_are_refused(node, instance, where):
    with pytest.raises(errors.OpExecError, match=r"found '\w+' with \d arguments"):
        receive(node, instance, where)
    assert node.process.commands == []


def test_records_of_disks_that_are_none_are_refused(node, instance):
    disk = instance["disks_info"][0]
    for where in (["raw", [{}]], ["script", ["x", 0]], ["script", [disk, "../0"]]):
        with pytest.raises(errors.OpExecError, match=r"^transfer: .*"):
            receive(node, instance, where)
        with pytest.raises(errors.OpExecError, match=r"^transfer: .*"):
            send(node, instance, where)
    assert node.process.commands == []


def test_a_component_is_a_name_and_no_path(node, instance):
    for component in ("../x", "", "a/b", "-x", "a" * 101):
        args = (options(node), instance, component, raw(instance))
        with pytest.raises(errors.OpExecError, match="not a valid component name"):
            nodes.call(node, "import_start", *args)


def test_a_program_that_does_not_start_leaves_nothing(node, instance):
    node.process.answers["import-export"] = (3, "", "no socket\n")
    with pytest.raises(errors.OpExecError, match=r"disk0: exited with.*3: no socket$"):
        receive(node, instance, raw(instance))
    assert os.listdir(f"{node.paths.run_dir}/import-export") == []


# Repeated starts
def start_again(node, instance, opts, mode="import"):
    where = ("192.0.2.7", 4711) if mode == "export" else ()
    args = (opts, *where, instance, "disk0", raw(instance))
    return nodes.call(node, f"{mode}_start", *args)


@pytest.mark.parametrize("mode", ["import", "export"])
def test_a_start_that_is_repeated_returns_the_first_transfer(node, instance, mode):
    """The caller does not know whether the first call was carried out."""
    opts = options(node, request_key="disk0")
    name = start_again(node, instance, opts, mode)
    write_status(node, name)
    assert start_again(node, instance, opts, mode) == name
    # However it ended: a second program would find no peer.
    write_status(node, name, exit_status=1)
    assert start_again(node, instance, opts, mode) == name
    assert len(node.process.commands) == 1


def test_other_requests_start_programs_of_their_own(node, instance):
    opts = options(node, request_key="disk0")
    names = [start_again(node, instance, opts)]
    write_status(node, names[0])
    names += [
        start_again(node, instance, opts | {"request_key": "disk1"}),
        start_again(node, instance, opts, "export"),
        start_again(node, instance, options(node, request_key="disk0")),
        start_again(node, instance, opts | {"request_key": ""}),
        start_again(node, instance, opts | {"request_key": ""}),
    ]
    assert len(set(names)) == 6
    assert len(node.process.commands) == 6


def test_a_start_that_was_cut_off_before_its_program_is_made_again(node, instance):
    """The node daemon ended after it had made the directory."""
    opts = options(node, request_key="disk0")
    first = start_again(node, instance, opts)
    second = start_again(node, instance, opts)
    assert second != first
    assert os.listdir(f"{node.paths.run_dir}/import-export") == [second]


def test_a_key_of_a_request_is_a_word(node, instance):
    for key in ("../x", "a b", "x" * 101):
        with pytest.raises(errors.OpExecError, match="not a valid key of a request"):
            start_again(node, instance, options(node, request_key=key))
    assert node.process.commands == []


def test_no_program_starts_with_a_key_that_is_removed(node, instance):
    opts = options(node, request_key="disk0")
    nodes.call(node, "x509_cert_remove", opts["key_name"])
    with pytest.raises(errors.X509CertError, match="not found"):
        start_again(node, instance, opts)
    assert os.listdir(f"{node.paths.run_dir}/crypto") == []


# Supervision
def write_status(node, name, **more):
    path = f"{node.paths.run_dir}/import-export/{name}/status"
    status = {"exit_status": None, "error_message": "", "mtime": time.time()}
    with open(path, "w") as out:
        json.dump(status | more, out)


def test_the_status_is_that_of_the_program_while_it_runs(node, instance):
    name = receive(node, instance, raw(instance))
    assert nodes.call(node, "impexp_status", [name]) == [None]
    write_status(node, name, progress_mbytes=3)
    [status] = nodes.call(node, "impexp_status", [name])
    assert (status["exit_status"], status["progress_mbytes"]) == (None, 3)


def test_a_program_that_died_has_failed_unless_it_has_only_begun(node, instance):
    name = receive(node, instance, raw(instance))
    write_status(node, name, mtime=time.time() - transfers._START_S - 5)
    [status] = nodes.call(node, "impexp_status", [name])
    assert (status["exit_status"], status["error_message"]) == (
        1,
        "the transfer process died",
    )
    with pidfile.PidFile(f"{node.paths.run_dir}/import-export/{name}/pid"):
        [status] = nodes.call(node, "impexp_status", [name])
        assert status["exit_status"] is None
    write_status(node, name, mtime=1.0, exit_status=0)
    [status] = nodes.call(node, "impexp_status", [name])
    assert status["exit_status"] == 0


@pytest.mark.parametrize("text", ["[]", "{}", "5", '{"exit_status"', '{"mtime": "x"}'])
def test_a_damaged_status_is_that_of_a_failed_transfer(node, instance, text):
    name = receive(node, instance, raw(instance))
    path = f"{node.paths.run_dir}/import-export/{name}/status"
    with open(path, "w", encoding="ascii") as out:
        out.write(text)
    [status] = nodes.call(node, "impexp_status", [name])
    assert status == {
        "exit_status": 1,
        "error_message": "the status of the transfer process is damaged",
    }


def test_names_of_transfers_are_no_paths(node):
    os.makedirs(f"{node.paths.run_dir}/import-export")
    for name in ("../x", "import-../../x", "import-none"):
        for call in ("impexp_status", "impexp_abort"):
            argument = [name] if call == "impexp_status" else name
            with pytest.raises(errors.OpExecError, match="not found on this node"):
                nodes.call(node, call, argument)
    with pytest.raises(errors.OpExecError, match="not found on this node"):
        nodes.call(node, "impexp_cleanup", "import-../../x")
    nodes.call(node, "impexp_cleanup", "import-none")


PROGRAM = """
import signal, sys
from ganeti.base.process import SystemRunner
from ganeti.base.filesystem import pidfile
if sys.argv[2] == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
with pidfile.PidFile(sys.argv[1]):
    print("ready", flush=True)
    signal.pause()
"""


@contextlib.contextmanager
def program(node, name, kind="polite"):
    """Run a process that holds the transfer's pid file during a block."""
    path = f"{node.paths.run_dir}/import-export/{name}/pid"
    words = [sys.executable, "-c", PROGRAM, path, kind]
    env = {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=env) as child:
        try:
            assert child.stdout.readline() == b"ready\n"
            yield child
        finally:
            child.kill()


def test_a_transfer_ends_on_request(node, instance):
    name = receive(node, instance, raw(instance))
    with program(node, name) as child:
        nodes.call(node, "impexp_abort", name)
        assert child.wait(60) == -signal.SIGTERM
    assert os.path.isdir(f"{node.paths.run_dir}/import-export/{name}")


@pytest.mark.parametrize(
    ("kind", "number"), [("polite", signal.SIGTERM), ("stubborn", signal.SIGKILL)]
)
def test_cleaning_up_ends_the_program_and_removes_its_files(
    node, instance, kind, number, monkeypatch
):
    limit_s = 60.0 if kind == "polite" else 0.1
    monkeypatch.setattr(transfers, "_END_S", limit_s)
    name = receive(node, instance, raw(instance))
    with program(node, name, kind) as child:
        nodes.call(node, "impexp_cleanup", name)
        assert child.wait(60) == -number
    assert not os.path.exists(f"{node.paths.run_dir}/import-export/{name}")


def test_cleaning_up_removes_unrecorded_starts_with_that_key_alone(node, instance):
    own, other = options(node), options(node)
    names = [
        nodes.call(node, "import_start", given, instance, "disk0", raw(instance))
        for given in (own, own, other)
    ]
    nodes.call(node, "impexp_cleanup", names[1])
    assert os.listdir(f"{node.paths.run_dir}/import-export") == [names[2]]


def test_a_pid_file_that_nobody_holds_names_no_process_to_end(node, instance):
    name = receive(node, instance, raw(instance))
    with subprocess.Popen(["sleep", "60"]) as stranger:
        path = f"{node.paths.run_dir}/import-export/{name}/pid"
        with open(path, "w") as out:
            out.write(f"{stranger.pid}\n")
        try:
            nodes.call(node, "impexp_cleanup", name)
            assert stranger.poll() is None
        finally:
            stranger.kill()


def test_the_removal_of_a_key_ends_its_transfers_alone(node, instance):
    """A master daemon may have ended before it stored that it had started one."""
    opts, where = options(node), raw(instance)
    for component in ("disk0", "disk1"):
        nodes.call(node, "import_start", opts, instance, component, where)
    other = receive(node, instance, where)
    nodes.call(node, "x509_cert_remove", opts["key_name"])
    top = f"{node.paths.run_dir}/import-export"
    assert os.listdir(top) == [other]
    assert not os.path.exists(f"{node.paths.run_dir}/crypto/{opts['key_name']}")


# Ends of the node daemon
IMPORT_EXPORT = (
    "from ganeti.tools import import_export as x; raise SystemExit(x.main())"
)
#: A node daemon that is killed in the call, when the program has gone into the
#: background or, with a pipe to wait for, before the program has begun.
KILLED = """
import dataclasses, json, os, signal, subprocess, sys
from fakes import nodes
from ganeti.base.process import SystemRunner

IMPORT_EXPORT, directory, arguments, alive, gate = sys.argv[1:]

class Dying(SystemRunner):
    def run(self, argv, *, env, timeout_s, pass_fds):
        argv = [sys.executable, "-c", IMPORT_EXPORT, *argv[1:]]
        if gate:
            argv = ["/bin/sh", "-c", 'read _ < "$0" && exec "$@"', gate, *argv]
        env = env | {"PYTHONPATH": os.environ["PYTHONPATH"]}
        program = subprocess.Popen(argv, env=env, pass_fds=[int(alive), *pass_fds])
        if not gate:
            assert program.wait() == 0
        os.kill(os.getpid(), signal.SIGKILL)

node = dataclasses.replace(nodes.make_node(directory), process=Dying())
nodes.call(node, "import_start", *json.loads(arguments))
"""


class Program(FakeRunner):
    """Runs the program from this tree in place of the installed one."""

    def run(self, argv, *, env, timeout_s, pass_fds):
        argv = [sys.executable, "-c", IMPORT_EXPORT, *argv[1:]]
        env = env | {"PYTHONPATH": os.pathsep.join(sys.path)}
        return SystemRunner().run(argv, env=env, timeout_s=timeout_s, pass_fds=pass_fds)


@pytest.fixture
def killed(tmp_path, instance):
    """Return a function that has a daemon killed in a start.

    It gives the arguments of the start, and a pipe that ends with the program.
    """
    with contextlib.ExitStack() as stack:

        def kill(node, gate=""):
            ends, alive = os.pipe()
            stack.callback(os.close, ends)
            opts = options(node, request_key="disk0")
            arguments = [opts, instance, "disk0", raw(instance)]
            argv = [sys.executable, "-c", KILLED, IMPORT_EXPORT, str(tmp_path)]
            argv.append(json.dumps(arguments))
            env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
            daemon = subprocess.run(
                [*argv, str(alive), gate], env=env, pass_fds=[alive], check=False
            )
            os.close(alive)
            assert daemon.returncode == -signal.SIGKILL
            return opts, ends

        yield kill


def transfers_of(node):
    return os.listdir(f"{node.paths.run_dir}/import-export")


def test_a_program_whose_daemon_was_killed_before_it_answered_is_taken_over(
    node, instance, killed
):
    opts, ends = killed(node)
    (name,) = transfers_of(node)
    assert start_again(node, instance, opts) == name
    assert node.process.commands == []
    os.set_blocking(ends, False)
    with pytest.raises(BlockingIOError):
        os.read(ends, 1)
    os.set_blocking(ends, True)
    nodes.call(node, "x509_cert_remove", opts["key_name"])
    assert os.read(ends, 1) == b""
    assert transfers_of(node) == []


def test_a_program_that_had_not_begun_when_its_daemon_was_killed_never_does(
    node, instance, killed, tmp_path
):
    """The repeated call starts another one; two would write to one disk."""
    gate = str(tmp_path / "gate")
    os.mkfifo(gate)
    opts, ends = killed(node, gate)
    (first,) = transfers_of(node)
    node = dataclasses.replace(node, process=Program())
    second = start_again(node, instance, opts)
    assert second != first
    with open(gate, "w") as out:
        out.write("go on\n")
    assert os.read(ends, 1) == b""
    assert transfers_of(node) == [second]
    assert nodes.call(node, "impexp_status", [second])[0]["exit_status"] is None
    nodes.call(node, "x509_cert_remove", opts["key_name"])
    assert transfers_of(node) == []
