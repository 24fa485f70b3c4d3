"""Virtual machines: directories, addresses, SSH servers, power, isolation."""

import fcntl
import json
import os
import pathlib
import signal
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from fakes.oob_helpers import Helper
from fakes.patience import until
from ganeti.base import errors
from ganeti.devel.vcluster import isolation
from ganeti.protocols.ssh import account, client, host_keys, keys

pytestmark = pytest.mark.daemon
needs_root = [
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="namespaces need root"),
]
MODES = ["pair", pytest.param("isolated", marks=needs_root)]


@pytest.fixture(scope="module")
def pair(brought_up):
    """Two machines for the tests of this file, which leave them as they find them."""
    return brought_up("-n", "2", "--machines-only")


@pytest.fixture(scope="module")
def isolated(brought_up):
    """Three isolated machines, in the same way; their end leaves nothing."""
    made = brought_up("-n", "3", "--machines-only", "--isolated")
    yield made
    made.command("down")
    assert not os.path.exists(f"/sys/class/net/{made.layout.bridge}")
    with open("/proc/mounts") as stream:
        assert made.directory not in stream.read()


def ssh_server(cluster, node):
    """Return the one process, once that for who looked whether it serves has ended."""

    def alone():
        actual = cluster.control.processes_on(node)
        return actual if len(actual) == 1 else None

    return until("only the SSH server", alone)[0]


def servers(cluster, node):
    """Return the processes of a node but those that sshd has for a connection."""
    running = cluster.control.processes_on(node)
    of_sshd = {process.pid for process in running if process.name == "sshd"}
    return {process.pid for process in running if process.parent not in of_sshd}


def test_machines_have_addresses_names_and_ssh_servers(pair, command):
    cluster = pair
    done = command(cluster.directory, "status", "--json")
    report = json.loads(done.stdout)
    first, second = report["nodes"]
    assert first["address"] != second["address"]
    assert {p["name"] for p in first["processes"]} == {"sshd"}
    assert report["master"] is None
    assert first["powered"]
    for node in report["nodes"]:
        socket.create_connection((node["address"], node["ports"]["sshd"]), 60).close()
    assert (
        cluster.check("printenv", "GANETI_HOSTNAME", node="node2").strip()
        == (second["name"])
    )


def test_exit_codes_and_output_of_commands_pass_through(pair, command):
    done = command(pair.directory, "exec", "node1", "sh", "-c", "echo hi; exit 7")
    assert (done.returncode, done.stdout) == (7, "hi\n")
    done = command(pair.directory, "exec", "node9", "true")
    assert done.returncode == 1
    known = "its nodes are node1, node2"
    assert f"node node9: not in the virtual cluster; {known}" in done.stderr


def test_a_second_up_is_one_clear_error(pair, command):
    done = command(pair.directory, "up")
    assert done.returncode == 1
    assert "a virtual cluster exists already" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_two_commands_at_once_are_one_clear_error(directory, command):
    with open(os.path.join(directory, ".lock"), "w") as stream:
        stream.write("up, process 1")
        stream.flush()
        fcntl.flock(stream, fcntl.LOCK_EX)
        done = command(directory, "up", "-n", "1", "--machines-only")
    assert done.returncode == 1
    assert "another vcluster command is running there (up, process 1)" in done.stderr


def test_two_clusters_have_different_addresses_and_down_leaves_nothing(
    pair, machines, command
):
    other = machines(1)
    assert other.master.address != pair.master.address
    assert other.control.processes_on(other.master) != []
    assert command(other.directory, "down").returncode == 0
    assert other.control.processes_on(other.master) == []
    assert os.listdir(other.directory) == [".lock"]
    assert "nothing to do" in command(other.directory, "down").stdout
    for node in pair.layout.nodes:
        assert pair.control.processes_on(node) != []


def test_power_ends_everything_on_a_node_and_brings_it_back(pair, command):
    cluster = pair
    marker = cluster.file("/var/run/ganeti/marker", "node2")
    marker.touch()
    assert command(cluster.directory, "power", "off", "node2").returncode == 0
    assert cluster.control.processes_on(cluster.node("node2")) == []
    assert cluster.control.processes_on(cluster.node("node1")) != []
    assert not marker.exists()
    done = command(cluster.directory, "oob", "power-status", "node2")
    assert json.loads(done.stdout) == {"powered": False}
    done = command(cluster.directory, "oob", "health", "node2")
    assert json.loads(done.stdout) == [["Power", "CRITICAL"]]
    assert command(cluster.directory, "oob", "power-on", "node2").stdout == ""
    assert ssh_server(cluster, cluster.node("node2"))


@pytest.mark.parametrize("mode", MODES)
def test_the_helper_switches_nodes(tmp_path, request, mode):
    cluster = request.getfixturevalue(mode)
    helper = Helper(tmp_path, "oob-vcluster")
    helper.write(directory=cluster.directory, node="node2")
    assert helper.is_on()
    assert helper.value("health") == [["Power", "OK"]]
    before = servers(cluster, cluster.master)
    helper.switch("power-off")
    helper.switch("power-off")
    assert not helper.is_on()
    assert cluster.control.processes_on(cluster.node("node2")) == []
    assert "the machine is off already" in helper.failure("power-cycle")
    helper.switch("power-on")
    assert helper.is_on()
    if mode == "pair":
        first = ssh_server(cluster, cluster.node("node2"))
        helper.switch("power-on")
        assert ssh_server(cluster, cluster.node("node2")).pid == first.pid
        helper.switch("power-cycle")
        assert ssh_server(cluster, cluster.node("node2")).pid != first.pid
    # Nothing else was touched, and the node is what the settings say.
    assert before == servers(cluster, cluster.master)
    helper.write(directory=cluster.directory)
    assert "node node2.tst: not in the virtual cluster" in helper.failure("power-off")
    helper.write(directory=tmp_path)
    assert "no virtual cluster here" in helper.failure("power-status")


def test_a_killed_process_is_only_that_one(pair, command):
    cluster = pair
    done = command(cluster.directory, "kill", "node1", "noded")
    assert done.returncode == 1
    assert "noded does not run there; running: sshd" in done.stderr
    done = command(cluster.directory, "kill", "node1", "sshd")
    assert done.returncode == 0
    assert cluster.control.processes_on(cluster.master) == []
    assert cluster.control.processes_on(cluster.node("node2")) != []
    cluster.control.start_sshd(cluster.master)


def test_an_ssh_server_with_new_keys_serves_when_the_command_returns(pair):
    cluster = pair
    node = cluster.master
    ssh_server(cluster, node)
    for _round in range(10):
        cluster.check("daemon-util", "reload-ssh-keys")
        address = (node.address, cluster.layout.ssh_port)
        with socket.create_connection(address, 60) as sock:
            assert sock.recv(4) == b"SSH-"
    # No second one. Its number changes if its parent is not the first process: sshd then
    # leaves its parent again at each restart.
    ssh_server(cluster, node)


class TestSshClient:
    """The SSH client against real servers."""

    def connect(self, cluster, **changes):
        node = cluster.node("node2")
        paths = cluster.paths()
        identity = client.cluster_identity(paths, "cluster.vc.test")
        address = changes.pop("address", node.address)
        port = changes.pop("port", cluster.layout.ssh_port)
        fields = {
            name: changes.get(name, getattr(identity, name))
            for name in identity.__dataclass_fields__
        }
        return client.Client(
            node.name,
            port,
            client.Identity(**fields),
            address=address,
            environment=account.node_environment(paths, node.name),
        )

    def test_host_keys_input_output_and_exit_codes(self, pair):
        cluster = pair
        node = cluster.node("node2")
        with pytest.raises(
            errors.SshError, match=r"is not known for cluster\.vc\.test"
        ):
            self.connect(cluster)
        asked = []

        def answer(value):
            return lambda *question: asked.append(question) or value

        with pytest.raises(errors.SshError, match="was not accepted"):
            self.connect(cluster, ask_host_key=answer(False))
        self.connect(cluster, ask_host_key=answer(True)).close()
        assert asked[0][0] == node.name
        assert asked[0][2].startswith("SHA256:")

        path = keys.host_key_path(str(cluster.file("/etc/ssh", "node2")), "ed25519")
        hosts = cluster.paths().data("known_hosts")
        host_keys.write_known_hosts(hosts, "cluster.vc.test", [keys.load(path).public])
        with self.connect(cluster) as shell:
            result = shell.run(
                ["sh", "-c", 'cat; echo "$GANETI_HOSTNAME" >&2; exit 3', "a b"],
                stdin="some 'text'",
            )
            assert (result.code, result.stdout) == (3, "some 'text'")
            assert result.stderr == f"{node.name}\n"
            big = "x" * 3_000_000
            echo = shell.run(["sh", "-c", "tee /dev/stderr"], stdin=big)
            assert (echo.stdout, echo.stderr) == (big, big)
            assert shell.run(["sleep", "60"], timeout_s=0.2).timed_out
            target = cluster.file("/root/secret", "node2")
            shell.put_file(str(target), "content", mode=0o600)
            assert target.read_text() == "content"
            assert target.stat().st_mode & 0o777 == 0o600
            with pytest.raises(errors.SshError, match="/none/x cannot be written"):
                shell.put_file("/none/x", "", mode=0o600)
            directory = target.parent / "directory"
            directory.mkdir()
            with pytest.raises(errors.SshError, match=r"directory cannot .* is a dir"):
                shell.put_file(str(directory), "", mode=0o600)
            assert list(target.parent.glob("directory.new-*")) == []

        host_keys.write_known_hosts(
            hosts, "cluster.vc.test", [keys.generate("ed25519").public]
        )
        with pytest.raises(errors.SshError, match="host key has changed"):
            self.connect(cluster)

    def test_who_is_not_there_or_does_not_let_us_in(self, pair):
        cluster = pair
        with pytest.raises(errors.SshError, match="port 9\\): cannot be reached"):
            self.connect(cluster, port=9)
        stranger = str(cluster.file("/root/.ssh/id_ed25519"))
        keys.save(keys.generate("ed25519"), stranger)
        for tried in ((stranger,), ()):
            with pytest.raises(errors.SshError, match="no key was accepted"):
                self.connect(cluster, key_files=tried, check_host_key=False)
        asked = []
        with pytest.raises(errors.SshError):
            self.connect(
                cluster,
                key_files=(stranger,),
                check_host_key=False,
                ask_password=asked.append,
            )
        assert "node2.vc.test" in asked[0]


class TestIsolated:
    """Nodes with namespaces of their own."""

    pytestmark = needs_root

    def can_connect(self, cluster, source, target):
        address = cluster.node(target).address
        code = f"import socket; socket.create_connection(({address!r}, 22), 0.5)"
        return not cluster.run(sys.executable, "-c", code, node=source).failed

    def wait_for_way(self, cluster, source, target):
        until(
            f"a way from {source} to {target}",
            lambda: self.can_connect(cluster, source, target),
        )

    def test_nodes_are_machines_of_their_own(self, isolated):
        cluster = isolated
        name = cluster.check("hostname", node="node2").strip()
        assert name == cluster.node("node2").name
        cluster.check("touch", "/var/lib/ganeti/mine", node="node2")
        assert cluster.file("/var/lib/ganeti/mine", "node2").exists()
        assert not os.path.exists("/var/lib/ganeti/mine")
        listing = cluster.check("ls", "/proc", node="node2").split()
        assert "1" in listing
        assert str(os.getpid()) not in listing

    def test_a_partition_is_silent_and_heals(self, isolated, command):
        cluster = isolated
        self.wait_for_way(cluster, "node1", "node2")
        assert command(cluster.directory, "partition", "node1", "node2").returncode == 0
        assert not self.can_connect(cluster, "node1", "node2")
        assert not self.can_connect(cluster, "node2", "node1")
        self.wait_for_way(cluster, "node1", "node3")
        assert command(cluster.directory, "heal").returncode == 0
        self.wait_for_way(cluster, "node1", "node2")

    def test_power_off_ends_the_namespaces(self, isolated, command):
        cluster = isolated
        command(cluster.directory, "power", "off", "node2")
        assert not self.can_connect(cluster, "node1", "node2")
        done = command(cluster.directory, "exec", "node2", "true")
        assert "node node2: is down" in done.stderr
        command(cluster.directory, "power", "on", "node2")
        self.wait_for_way(cluster, "node1", "node2")


def test_partitions_need_isolation(pair, command):
    done = command(pair.directory, "partition", "node1", "node2")
    assert done.returncode == 1
    assert "vcluster up --isolated" in done.stderr


@pytest.mark.parametrize("mode", MODES)
def test_a_node_that_asks_for_a_reset_gets_one(request, mode):
    cluster = request.getfixturevalue(mode)
    node = cluster.master
    if mode == "pair":
        request = cluster.file("/power-cycle")
    else:
        request = pathlib.Path(isolation.reset_file(cluster.layout, node))
    before = {process.pid for process in cluster.control.processes_on(node)}
    boot = boot_id(cluster, mode)
    assert boot == boot_id(cluster, mode)
    request.write_text("b")

    def is_reset():
        after = {process.pid for process in cluster.control.processes_on(node)}
        return after and not after & before and cluster.control.answers(node)

    until(f"{node.name} is reset", is_reset)
    assert boot_id(cluster, mode) != boot


def boot_id(cluster, mode):
    if mode == "pair":
        return cluster.file("/boot-id").read_text()
    return cluster.check("cat", "/proc/sys/kernel/random/boot_id")


@pytest.mark.sampled
@pytest.mark.root
@pytest.mark.skipif(os.getuid() != 0, reason="namespaces need root")
def test_an_isolated_cluster_feels_partitions_and_power(directory, command):
    done = command(directory, "up", "-n", "3", "--isolated", "--hypervisors", "fake")
    assert done.returncode == 0, done.stderr
    try:
        status = json.loads(command(directory, "status", "--json").stdout)
        assert status["master"] == "node1.vc.test"

        def run(*words):
            return command(directory, "exec", "node1", *words)

        assert "ERROR" not in run("gnt-cluster", "verify").stdout
        # The master's address really moves onto the first node's interface.
        assert status["cluster"]["address"] in run("ip", "addr").stdout
        # The remote API answers there, also to this machine.
        tls = ssl._create_unverified_context()
        page = f"https://{status['cluster']['address']}:5080/version"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(page, context=tls, timeout=60)
        command(directory, "partition", "node1,node2", "node3")

        def silent():
            text = run("gnt-node", "list", "--no-headers", "-o", "name,bootid").stdout
            rows = [line.split() for line in text.splitlines()]
            return [name for name, boot_id in rows if boot_id == "?"]

        until("node3 alone is silent", lambda: silent() == ["node3.vc.test"])
        command(directory, "heal")
        until(
            "all nodes answer",
            lambda: "?" not in run("gnt-node", "list", "-o", "name,bootid").stdout,
        )
        # The helper that the cluster calls on the master cuts real power.
        helper = os.path.join(directory, "power")
        assert json.loads(run(helper, "power-status", "node2").stdout) == {
            "powered": True
        }
        assert run(helper, "power-off", "node2.vc.test").returncode == 0
        status = json.loads(command(directory, "status", "--json").stdout)
        assert [node["powered"] for node in status["nodes"]] == [True, False, True]
    finally:
        assert command(directory, "down").returncode == 0
    with open("/proc/mounts") as stream:
        assert directory not in stream.read()


def interruptible(directory, *words):
    """Start vcluster as from a terminal: in its own session, minding interrupts."""
    program = pathlib.Path(__file__).resolve().parents[3] / "build/bin/vcluster"
    # Whoever runs the tests may ignore interrupts, which programs leave so.
    start = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL)"
    start += "; os.execv(sys.argv[1], sys.argv[1:])"
    return subprocess.Popen(
        [sys.executable, "-c", start, program, "-C", directory, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_an_interrupted_creation_is_one_line_and_leaves_nothing(directory, command):
    words = ("up", "-n", "2", "--hypervisors", "fake")
    with interruptible(directory, *words) as child:
        assert "2 machines" in child.stdout.readline()
        os.killpg(child.pid, signal.SIGINT)
        _rest, complaint = child.communicate(timeout=120)
    assert complaint.strip() == "vcluster: up: interrupted"
    assert child.returncode == 1
    assert command(directory, "down").stdout.endswith(
        "no virtual cluster, nothing to do\n"
    )


#: Runs a program that interrupts itself when it calls a function of this name, after it
#: has begun to import the module that creates clusters.
INTERRUPTED = """
import runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
name = sys.argv[2]
del sys.argv[:3]
def profile(frame, event, arg):
    if (
        event == "call"
        and frame.f_code.co_name == name
        and "ganeti.devel.vcluster.create" in sys.modules
    ):
        sys.setprofile(None)
        signal.raise_signal(signal.SIGINT)
sys.setprofile(profile)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.sampled
# The first is a callback of the interpreter after each import, which drops exceptions.
@pytest.mark.parametrize("function", ["cb", "write_oob_program", "_add_nodes"])
def test_an_interrupt_at_any_point_ends_a_creation(directory, command, function):
    program = pathlib.Path(__file__).resolve().parents[3] / "build/bin/vcluster"
    words = ("-C", directory, "up", "-n", "2", "--hypervisors", "fake")
    done = subprocess.run(
        [sys.executable, "-Ic", INTERRUPTED, "", function, program, *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.stderr.strip(), done.returncode) == ("vcluster: up: interrupted", 1)
    assert "2 machines" in done.stdout
    assert "nothing to do" in command(directory, "down").stdout


def test_an_interrupt_belongs_to_the_command_on_the_node(pair):
    script = "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.1; done"
    words = ("exec", "node1", "bash", "-c", script)
    with interruptible(pair.directory, *words) as child:
        assert child.stdout.readline() == "ready\n"
        os.killpg(child.pid, signal.SIGINT)
        output, complaint = child.communicate(timeout=60)
    assert (output, complaint, child.returncode) == ("caught\n", "", 5)
