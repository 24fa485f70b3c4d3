"""Control of virtual nodes: commands, calls of the kernel, reports, the power agent."""

import json
import os
import signal
import socket
import tempfile
import threading

import pytest

from fakes.processes import FakeRunner
from ganeti.base import errors
from ganeti.devel.vcluster import (
    agent,
    commands,
    create,
    etcd,
    isolation,
    network,
    nodes,
    processes,
    serial,
)
from ganeti.devel.vcluster import layout as lay
from ganeti.devel.vcluster.processes import Process
from ganeti.node.hypervisor.kvm.files import Files

UTIL = "daemon-util"


@pytest.fixture
def simple(tmp_path):
    return made(tmp_path, isolated=False)


@pytest.fixture
def short_directory():
    """Return a directory below which paths of sockets are short enough."""
    with tempfile.TemporaryDirectory() as directory:
        yield directory


@pytest.fixture
def isolated(tmp_path):
    return made(tmp_path, isolated=True)


def made(tmp_path, *, isolated, directory=None):
    layout = lay.plan(
        directory or str(tmp_path / "c"),
        count=3,
        isolated=isolated,
        network="127.9",
        bindir="/opt/bin",
    )
    os.makedirs(f"{layout.directory}/state", exist_ok=True)
    for node in layout.nodes:
        for path in ("/var/lib/ganeti", "/var/run/ganeti", "/root/.ssh"):
            os.makedirs(layout.host_path(node, path), exist_ok=True)
    return layout


@pytest.fixture
def machine(monkeypatch):
    """Processes of all nodes, and the signals that they got."""

    class Machine:
        running = [
            Process(41, 1, ("/usr/sbin/sshd",)),
            Process(42, 1, ("ganeti-noded",)),
        ]
        sent, killed = [], []

    made_machine = Machine()
    made_machine.sent, made_machine.killed = [], []
    monkeypatch.setattr(processes, "of_root", lambda _root: list(made_machine.running))
    monkeypatch.setattr(
        processes,
        "send",
        lambda some, number: made_machine.sent.append(([p.pid for p in some], number)),
    )
    monkeypatch.setattr(
        processes,
        "kill",
        lambda some: made_machine.killed.extend(p.pid for p in some),
    )

    def kill_all(find):
        found_pids = [p.pid for p in find()]
        made_machine.killed += found_pids
        return len(found_pids)

    monkeypatch.setattr(processes, "kill_all", kill_all)
    return made_machine


def control(layout, **answers):
    runner = FakeRunner(**answers)
    return nodes.NodeControl(layout, runner), runner


# Commands on nodes
def test_commands_have_the_environment_of_their_node(simple):
    made_control, runner = control(simple, ls=(3, "out", ""))
    node = simple.node("node2")
    assert made_control.run(node, ["ls", "-l"]).code == 3
    ((argv, options),) = runner.commands
    assert (argv, options["timeout_s"]) == (("ls", "-l"), 120.0)
    assert options["env"] == simple.environment(node)
    assert options["env"]["GANETI_ROOTDIR"] == node.root


def test_commands_enter_the_namespaces_of_an_isolated_node(isolated, monkeypatch):
    node = isolated.node("node2")
    made_control, _runner = control(isolated)
    with pytest.raises(errors.OpPrereqError, match=r"node node2: is down"):
        made_control.argv(node, ["ls"])
    assert made_control.processes_on(node) == []
    monkeypatch.setattr(isolation, "holder", lambda _layout, _node: 77)
    assert made_control.argv(node, ["ls"]) == [
        *("nsenter", "-t", "77", "-m", "-u", "-i", "-n", "-p", "--wd=/", "--", "ls")
    ]


@pytest.mark.parametrize(("script", "code"), [("exit 5", 5), ("kill -9 $$", 137)])
def test_a_call_returns_the_exit_code_as_a_shell_does(simple, script, code):
    before = signal.getsignal(signal.SIGINT)
    made_control, _runner = control(simple)
    node = simple.node("node1")
    assert made_control.call(node, ["/bin/sh", "-c", script], {}) == code
    assert signal.getsignal(signal.SIGINT) is before


def test_a_call_has_further_variables_below_those_of_the_node(simple):
    made_control, _runner = control(simple)
    node = simple.node("node1")
    test = f'[ "$A" = 1 ] && [ "$GANETI_ROOTDIR" = "{node.root}" ]'
    extra = {"A": "1", "GANETI_ROOTDIR": "/other"}
    assert made_control.call(node, ["/bin/sh", "-c", test], extra) == 0


# Life of nodes
def test_a_daemon_is_killed_by_either_name(simple, machine):
    made_control, _runner = control(simple)
    node = simple.node("node1")
    assert made_control.kill(node, "noded") == 1
    assert made_control.kill(node, "ganeti-noded") == 1
    assert machine.killed == [42, 42]
    with pytest.raises(errors.OpPrereqError) as caught:
        made_control.kill(node, "confd")
    assert caught.value.args == (
        "node node1: confd does not run there; running: ganeti-noded, sshd",
        "wrong_state",
    )
    machine.running = []
    with pytest.raises(errors.OpPrereqError, match="running: nothing"):
        made_control.kill(node, "confd")


def test_a_node_is_killed_paused_and_resumed_as_a_whole(simple, machine):
    made_control, _runner = control(simple)
    node = simple.node("node1")
    assert [made_control.kill(node), made_control.pause(node)] == [2, 2]
    assert made_control.resume(node) == 2
    assert machine.killed == [41, 42]
    pids = [41, 42]
    assert machine.sent == [(pids, signal.SIGSTOP), (pids, signal.SIGCONT)]


def test_a_power_failure_empties_the_run_directory(simple, machine):
    made_control, _runner = control(simple)
    node = simple.node("node1")
    run_dir = simple.host_path(node, "/var/run/ganeti")
    os.makedirs(f"{run_dir}/socket")
    os.symlink("/", f"{run_dir}/link")
    for name in ("noded.pid", "socket/x"):
        with open(f"{run_dir}/{name}", "w"):
            pass
    assert made_control.is_powered(node)
    assert made_control.power_off(node) == 2
    assert os.listdir(run_dir) == []
    assert not made_control.is_powered(node)
    assert os.path.exists("/tmp")
    os.rmdir(run_dir)
    assert made_control.power_off(node) == 2


def test_a_boot_gives_a_new_boot_id_if_nothing_runs(simple, machine, monkeypatch):
    made_control, _runner = control(simple)
    node = simple.node("node1")
    monkeypatch.setattr(made_control, "start_sshd", lambda _node: None)
    path = f"{node.root}/boot-id"
    made_control.power_off(node)
    made_control.boot(node)
    assert made_control.is_powered(node)
    assert not os.path.exists(path)
    machine.running = []
    made_control.boot(node)
    with open(path) as stream:
        first = stream.read()
    assert len(first.strip()) == 36
    made_control.boot(node)
    with open(path) as stream:
        assert stream.read() != first


@pytest.mark.parametrize(
    ("member", "runs", "answer", "outcome"),
    [
        (False, True, (1, "", ""), ""),
        (True, True, (0, "", ""), ""),
        (
            *(True, True, (1, "no mond\n", "")),
            "node node1: daemon-util start-all exited with code 1: no mond",
        ),
        (True, False, (1, "no mond\n", ""), None),
    ],
)
def test_a_start_tolerates_daemons_but_not_the_node_daemon(
    simple, machine, monkeypatch, member, runs, answer, outcome
):
    made_control, runner = control(simple, daemon_util=answer)
    node = simple.node("node1")
    monkeypatch.setattr(made_control, "boot", lambda _node: None)
    machine.running = machine.running if runs else machine.running[:1]
    if member:
        with open(simple.host_path(node, "/var/lib/ganeti/server.pem"), "w"):
            pass
    if outcome is None:
        with pytest.raises(errors.OpExecError, match="no mond"):
            made_control.power_on(node)
    else:
        assert made_control.power_on(node) == outcome
    assert runner.lines == (["daemon-util start-all"] if member else [])


@pytest.mark.parametrize("name", ["confd", "ganeti-confd"])
def test_one_daemon_is_started_by_either_name(simple, name):
    made_control, runner = control(simple, daemon_util=FakeRunner.DONE)
    made_control.start_daemon(simple.node("node1"), name)
    assert runner.lines == ["daemon-util start ganeti-confd"]


@pytest.mark.parametrize("is_isolated", [False, True])
def test_an_ssh_server_has_the_configuration_of_its_node(
    tmp_path, monkeypatch, is_isolated
):
    layout = made(tmp_path, isolated=is_isolated)
    monkeypatch.setattr(isolation, "holder", lambda _layout, _node: 77)
    monkeypatch.setattr(nodes, "_SSHD_PRIVSEP", str(tmp_path / "sshd"))
    name = "nsenter" if is_isolated else "sshd"
    made_control, runner = control(layout, **{name: FakeRunner.DONE})
    node = layout.node("node1")
    answers = iter([False, False, True, True])
    monkeypatch.setattr(made_control, "answers", lambda _node: next(answers))
    made_control.start_sshd(node)
    made_control.start_sshd(node)
    root = "" if is_isolated else node.root
    (line,) = runner.lines
    assert line.endswith(
        f"sshd -f {root}/etc/ssh/sshd_config -E {root}/var/log/ganeti/sshd.log"
    )


def test_an_ssh_server_that_fails_is_named(simple, monkeypatch, tmp_path):
    monkeypatch.setattr(nodes, "_SSHD_PRIVSEP", str(tmp_path / "sshd"))
    made_control, _runner = control(simple, sshd=(255, "", "no hostkeys\n"))
    node = simple.node("node1")
    monkeypatch.setattr(made_control, "answers", lambda _node: False)
    with pytest.raises(errors.OpExecError) as caught:
        made_control.start_sshd(node)
    assert str(caught.value) == "node node1: sshd exited with code 255: no hostkeys"
    made_control, _runner = control(simple, sshd=FakeRunner.DONE)
    monkeypatch.setattr(made_control, "answers", lambda _node: False)
    monkeypatch.setattr(nodes, "START_TIMEOUT_S", -1.0)
    with pytest.raises(errors.OpExecError) as caught:
        made_control.start_sshd(node)
    log = simple.host_path(node, "/var/log/ganeti/sshd.log")
    assert str(caught.value) == (
        f"node node1: sshd does not listen on {node.address} port 2022; see {log}"
    )


# Power
class Switch:
    """A control that keeps what is switched."""

    def __init__(self, is_on):
        self.is_on, self.done = is_on, []

    def is_powered(self, node):
        return self.is_on

    def power_on(self, node):
        self.done.append(("on", node.short))

    def power_off(self, node):
        self.done.append(("off", node.short))


@pytest.mark.parametrize(
    ("action", "is_on", "output", "done"),
    [
        ("status", True, '{"powered": true}\n', []),
        ("status", False, '{"powered": false}\n', []),
        ("health", True, '[["Power", "OK"]]\n', []),
        ("health", False, '[["Power", "CRITICAL"]]\n', []),
        ("on", False, "", ["on"]),
        ("off", True, "", ["off"]),
        ("cycle", True, "", ["off", "on"]),
    ],
)
def test_the_power_switch(simple, action, is_on, output, done):
    switch = Switch(is_on)
    assert nodes.power_act(simple, switch, action, "node2") == output
    assert switch.done == [(step, "node2") for step in done]
    with pytest.raises(errors.OpPrereqError, match="node9"):
        nodes.power_act(simple, switch, action, "node9")


def test_the_agent_answers_and_cycles_nodes_that_ask_for_it(simple):
    done, mine = [], threading.Event()

    def act(action, name):
        done.append((action, name))
        mine.set()
        if name == "bad":
            raise errors.OpExecError("no such node", "code")
        return f"{action}\n"

    answer = agent._answer(b'{"action": "off", "node": "n"}', act)
    assert answer == {"code": 0, "stdout": "off\n", "stderr": ""}
    answer = agent._answer(b'{"action": "off", "node": "bad"}', act)
    assert answer == {"code": 1, "stdout": "", "stderr": "no such node"}
    for line in (b"{", b'{"action": "off"}'):
        answer = agent._answer(line, act)
        assert (answer["code"], answer["stdout"]) == (1, "")
        assert answer["stderr"]
    assert len(done) == 2


def test_a_request_for_a_reset_counts_once(simple, isolated):
    node = simple.node("node2")
    assert not agent._wants_reset(simple, node)
    with open(f"{node.root}/power-cycle", "w"):
        pass
    assert agent._wants_reset(simple, node)
    assert not agent._wants_reset(simple, node)
    node = isolated.node("node2")
    path = f"{isolated.directory}/state/{node.name}.sysrq-trigger"
    assert not agent._wants_reset(isolated, node)
    with open(path, "w") as stream:
        stream.write("b")
    assert agent._wants_reset(isolated, node)
    assert not agent._wants_reset(isolated, node)
    assert os.path.getsize(path) == 0


def test_a_silent_agent_is_an_error(simple):
    text = "^the power agent does not answer: "
    with pytest.raises(errors.OpExecError, match=text):
        agent.ask(simple, "off", "node1")
    path = agent.socket_path(simple)
    asked = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen()

        def serve():
            for reply in (b'{"code": 0}\n', b"{\n"):
                sock, _ = listener.accept()
                with sock, sock.makefile("rb") as stream:
                    asked.append(json.loads(stream.readline()))
                    sock.sendall(reply)

        thread = threading.Thread(target=serve)
        thread.start()
        assert agent.ask(simple, "off", "node1") == {"code": 0}
        with pytest.raises(errors.OpExecError, match=text):
            agent.ask(simple, "on", "node2")
        thread.join()
    assert asked == [
        {"action": "off", "node": "node1"},
        {"action": "on", "node": "node2"},
    ]


# Status
def test_a_status_has_the_paths_and_processes_of_each_node(simple, machine):
    for short, master in (("node1", "node2.vc.test"), ("node2", "node2.vc.test"),
                          ("node3", "node1.vc.test")):  # fmt: skip
        path = simple.host_path(simple.node(short), "/var/lib/ganeti")
        with open(f"{path}/ssconf_master_node", "w") as stream:
            stream.write(f"{master}\n")
    machine.running.append(Process(43, 42, ("ganeti-noded",)))
    made_control, _runner = control(simple)
    with open(f"{simple.directory}/state/node3.vc.test.off", "w"):
        pass
    report = commands.collect_status(simple, made_control)
    assert report["master"] == "node2.vc.test"
    assert (report["isolated"], report["bridge"]) == (False, None)
    assert report["cluster"] == {"name": "cluster.vc.test", "address": "127.9.0.1"}
    first = report["nodes"][0]
    root = simple.nodes[0].root
    assert first["sockets"] == {
        "query": f"{root}/var/run/ganeti/socket/ganeti-query",
        "master": f"{root}/var/run/ganeti/socket/ganeti-master",
    }
    assert first["files"] == {
        **{
            name: f"{root}/var/lib/ganeti/{file}"
            for name, file in (
                *(("server_pem", "server.pem"), ("client_pem", "client.pem")),
                *(("rapi_pem", "rapi.pem"), ("hmac_key", "hmac.key")),
                ("known_hosts", "known_hosts"),
            )
        },
        "authorized_keys": f"{root}/root/.ssh/authorized_keys",
        "root_keys": [],
        "log_dir": f"{root}/var/log/ganeti",
    }
    assert (first["ports"]["sshd"], first["pid"]) == (2022, None)
    assert first["processes"][0] == {"pid": 41, "name": "sshd"}
    lines = commands.format_status(report).splitlines()
    assert lines[0] == f"cluster.vc.test (127.9.0.1) in {simple.directory}, simple"
    running = "ganeti-noded x2, sshd"
    assert lines[1:] == [
        f"node1.vc.test            127.9.0.11             on  {running}",
        f"node2.vc.test            127.9.0.12      master on  {running}",
        f"node3.vc.test            127.9.0.13             OFF {running}",
    ]
    report["nodes"][0]["processes"] = []
    assert commands.format_status(report).splitlines()[1].endswith("on  nothing runs")


# Network
class Route:
    """The kernel's links and neighbours, by namespace; keeps what is changed."""

    LINKS = ["lo", "eth0", "br0", "gvc127-9"]

    def __init__(self, log, netns, fails):
        self._log, self._where, self._fails = log, netns, fails

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def link_lookup(self, *, ifname):
        return [f"#{ifname}"] if ifname in self.LINKS else []

    def _change(self, kind, verb, options):
        self._log.append((self._where, kind, verb, options))
        if code := self._fails.get((kind, verb)):
            raise network.NetlinkError(code, "refused")

    def link(self, verb, **options):
        self._change("link", verb, options)

    def addr(self, verb, **options):
        self._change("addr", verb, options)

    def neigh(self, verb, **options):
        self._change("neigh", verb, options)


@pytest.fixture
def kernel(monkeypatch):
    """Return (changes, errors by change)."""
    log, fails = [], {}
    monkeypatch.setattr(network, "IPRoute", lambda netns: Route(log, netns, fails))
    return log, fails


def test_a_bridge_has_the_address_of_this_machine(isolated, kernel):
    log, fails = kernel
    network.up(isolated)
    assert log == [
        (None, "link", "add", {"ifname": "gvc127-9", "kind": "bridge"}),
        (None, "link", "set", {"index": "#gvc127-9", "state": "up"}),
        (
            *(None, "addr", "add"),
            {"index": "#gvc127-9", "address": "127.9.0.254", "prefixlen": 16},
        ),
    ]
    fails.update({("link", "add"): 17, ("addr", "add"): 17})
    network.up(isolated)
    fails["link", "add"] = 1
    with pytest.raises(errors.OpExecError, match=r"^bridge gvc127-9: cannot be cr"):
        network.up(isolated)
    log.clear()
    network.down(isolated)
    fails["link", "del"] = 19
    network.down(isolated)
    assert log == [(None, "link", "del", {"index": "#gvc127-9"})] * 2


def test_a_node_has_its_address_on_the_bridge_of_guests(isolated, kernel, monkeypatch):
    log, _fails = kernel
    monkeypatch.setattr(Route, "LINKS", [*Route.LINKS, "gvc127-9n2"])
    network.plug_in(isolated, isolated.node("node2"), 77)
    there = "/proc/77/ns/net"
    peer = {"ifname": "eth0", "net_ns_pid": 77}
    assert log == [
        (None, "link", "del", {"index": "#gvc127-9n2"}),
        (None, "link", "add", {"ifname": "gvc127-9n2", "kind": "veth", "peer": peer}),
        (
            *(None, "link", "set"),
            {"index": "#gvc127-9n2", "master": "#gvc127-9", "state": "up"},
        ),
        (there, "link", "set", {"index": "#lo", "state": "up"}),
        (there, "link", "add", {"ifname": "br0", "kind": "bridge"}),
        (
            *(there, "link", "set"),
            {"index": "#br0", "address": "02:67:76:09:00:02", "state": "up"},
        ),
        (there, "link", "set", {"index": "#eth0", "master": "#br0", "state": "up"}),
        (
            *(there, "addr", "add"),
            {"index": "#br0", "address": "127.9.0.12", "prefixlen": 16},
        ),
    ]


def test_a_server_of_etcd_has_a_card_of_its_own(isolated, kernel, monkeypatch):
    log, _fails = kernel
    monkeypatch.setattr(Route, "LINKS", [*Route.LINKS, "gvc127-9e3"])
    network.plug_in_server(isolated, 2, "127.9.0.242", 78)
    assert log[1][3]["ifname"] == "gvc127-9e3"
    assert log[5][3]["address"] == "02:67:77:09:00:02"
    assert log[7][3]["address"] == "127.9.0.242"


def test_a_partition_sends_packets_to_nobody(kernel):
    log, fails = kernel
    network.cut(77, ["192.0.2.1", "192.0.2.2"])
    network.join(77, ["192.0.2.1"])
    fails["neigh", "del"] = 2
    network.join(77, ["192.0.2.2"])
    there = "/proc/77/ns/net"
    assert log == [
        *(
            (
                *(there, "neigh", "replace"),
                {
                    "dst": address,
                    "lladdr": "02:00:00:00:00:ee",
                    "ifindex": "#br0",
                    "state": "permanent",
                },
            )
            for address in ("192.0.2.1", "192.0.2.2")
        ),
        (there, "neigh", "del", {"dst": "192.0.2.1", "ifindex": "#br0"}),
        (there, "neigh", "del", {"dst": "192.0.2.2", "ifindex": "#br0"}),
    ]
    fails["neigh", "del"] = 1
    with pytest.raises(network.NetlinkError):
        network.join(77, ["192.0.2.1"])


# etcd
class Child:
    """A process that is started; keeps its arguments."""

    made = []

    def __init__(self, command, **options):
        Child.made.append((command, options))
        self.stdin, self.pid = None, 99


@pytest.mark.parametrize("is_isolated", [False, True])
def test_members_of_etcd_know_each_other(tmp_path, monkeypatch, is_isolated):
    layout = made(tmp_path, isolated=is_isolated)
    os.makedirs(f"{layout.directory}/etcd")
    monkeypatch.setattr(Child, "made", [])
    monkeypatch.setattr(etcd.subprocess, "Popen", Child)
    monkeypatch.setattr(etcd.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(etcd.processes, "all_processes", lambda: iter(()))
    etcd.start(layout, 1)
    ((command, options),) = Child.made
    hosts = ["127.9.0.2"] * 3
    if is_isolated:
        hosts = [f"127.9.0.{number}" for number in (240, 241, 242)]
        assert command[:6] == [
            *("unshare", "--net", "sh", "-c"),
            *('read -r _ && exec "$@" < /dev/null', "sh"),
        ]
        command = command[6:]
    client = f"http://{hosts[1]}:2389"
    peers = [f"http://{host}:{2380 + 10 * n}" for n, host in enumerate(hosts)]
    assert command == [
        "/usr/bin/etcd",
        "--name=member2",
        f"--data-dir={layout.directory}/etcd/member2",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peers[1]}",
        f"--initial-advertise-peer-urls={peers[1]}",
        f"--initial-cluster=member1={peers[0]},member2={peers[1]},member3={peers[2]}",
        "--heartbeat-interval=50",
        "--election-timeout=500",
        "--auto-compaction-mode=periodic",
        "--auto-compaction-retention=1h",
    ]
    assert (options["start_new_session"], options["cwd"]) == (True, "/")
    endpoints = [f"{host}:{2379 + 10 * n}" for n, host in enumerate(hosts)]
    assert etcd.servers(layout).hosts == tuple(endpoints)


def test_a_member_is_known_by_its_directory(simple, monkeypatch):
    data = f"--data-dir={simple.directory}/etcd/member1"
    own = Process(5, 1, ("etcd", data))
    others = [Process(6, 1, ("etcd", f"{data}0")), Process(7, 1, ("cat", "x"))]
    monkeypatch.setattr(etcd.processes, "all_processes", lambda: iter([own, *others]))
    assert etcd.running(simple, 0) == [own]
    done = []
    monkeypatch.setattr(network, "cut", lambda *each: done.append(("cut", *each)))
    monkeypatch.setattr(network, "join", lambda *each: done.append(("join", *each)))
    monkeypatch.setattr(
        processes, "send", lambda some, what: done.append((some[0].pid, what))
    )
    etcd.cut(simple, 0, ["a"])
    etcd.join(simple, 0, ["b"])
    etcd.signal_member(simple, 0, signal.SIGSTOP)
    etcd.cut(simple, 1, ["a"])
    assert done == [("cut", 5, ["a"]), ("join", 5, ["b"]), (5, signal.SIGSTOP)]
    # It runs, so nothing is started.
    monkeypatch.setattr(etcd.subprocess, "Popen", None)
    etcd.start(simple, 0)


def test_without_etcd_the_package_is_named(simple, monkeypatch):
    monkeypatch.setattr(etcd.shutil, "which", lambda _name: None)
    with pytest.raises(
        errors.OpExecError, match=r"^etcd: not installed; install etcd-"
    ):
        etcd.start_all(simple)


# Creation
@pytest.mark.parametrize("is_isolated", [False, True])
def test_a_cluster_is_initialised_with_small_instances(tmp_path, is_isolated):
    layout = made(tmp_path, isolated=is_isolated)
    settings = create.Settings(("kvm", "fake"), ssh_setup=True, store="etcd:x")
    options = create.init_options(layout, settings)
    boot = f"{layout.directory}/boot"
    assert options.cluster_name == "cluster.vc.test"
    assert options.enabled_hypervisors == ("kvm", "fake")
    assert options.enabled_disk_templates == ("diskless", "file", "sharedfile")
    assert options.hvparams == {
        "kvm": {
            "kvm_path": "/usr/bin/qemu-system-x86_64",
            "kernel_path": f"{boot}/vmlinuz",
            "initrd_path": f"{boot}/initrd",
            "kernel_args": "quiet",
            "vnc_bind_address": "",
            "vhost_net": False,
        }
    }
    assert options.beparams == {"maxmem": 128, "minmem": 128, "vcpus": 1}
    link = "br0" if is_isolated else create.misc.USER_NETWORK
    assert options.nicparams == {"mode": "bridged", "link": link}
    assert options.ndparams == {
        "ssh_port": 22 if is_isolated else 2022,
        "oob_program": f"{layout.directory}/power",
    }
    assert options.ipolicy == {
        "minmax": [
            {
                "min": {
                    "memory-size": 1, "disk-size": 1, "disk-count": 0, "cpu-count": 1,
                    "nic-count": 0, "spindle-use": 1,
                },
                "max": {
                    "memory-size": 32768, "disk-size": 1048576, "disk-count": 16,
                    "cpu-count": 8, "nic-count": 8, "spindle-use": 12,
                },
            }
        ],
        "vcpu-ratio": 64.0,
    }  # fmt: skip
    assert options.master_netdev == ("br0" if is_isolated else "lo")
    assert (options.modify_etc_hosts, options.modify_ssh_setup) == (False, True)
    assert options.store == "etcd:x"
    plain = create.Settings(("fake",), ssh_setup=False)
    assert create.init_options(layout, plain).hvparams == {}


def test_the_helper_of_the_cluster_is_a_program(simple):
    create.write_oob_program(simple)
    path = f"{simple.directory}/power"
    assert os.stat(path).st_mode & 0o777 == 0o755
    with open(path) as stream:
        assert stream.read() == (
            "#!/bin/sh\n# Out-of-band helper: COMMAND NODE.\n"
            f"exec /opt/bin/vcluster -C '{simple.directory}' oob \"$@\"\n"
        )


def test_boot_files_are_made_by_the_os_definition(simple, tmp_path, monkeypatch):
    monkeypatch.setattr(lay, "os_definitions", lambda: ["/none", str(tmp_path)])
    with pytest.raises(errors.OpExecError, match="the OS definition tiny is missing"):
        create.make_boot_files(simple, FakeRunner())
    program = tmp_path / "make-boot"
    program.touch(0o755)
    runner = FakeRunner(make_boot=FakeRunner.DONE)
    create.make_boot_files(simple, runner)
    boot = f"{simple.directory}/boot"
    assert runner.commands == [((str(program), boot), {"timeout_s": 60})]
    runner = FakeRunner(make_boot=(1, "no kernel\n", ""))
    text = "^boot files of guests: make-boot exited with code 1: no kernel$"
    with pytest.raises(errors.OpExecError, match=text):
        create.make_boot_files(simple, runner)


# Serial lines
@pytest.mark.parametrize("name", ["web1", "a" * 120])
def test_a_serial_line_is_read_until_the_prompt(tmp_path, short_directory, name):
    simple = made(tmp_path, isolated=False, directory=short_directory)
    path = Files(simple.paths(simple.node("node2")), name).control("serial")
    os.makedirs(os.path.dirname(path))
    shown, got = [], []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        listener.listen()

        def guest():
            sock, _ = listener.accept()
            with sock:
                got.append(sock.recv(10))
                sock.sendall(b"booting\r\n\r\nlog")
                sock.sendall(b"in: ")

        thread = threading.Thread(target=guest)
        thread.start()
        match = serial.listen(
            simple, name, until="login: ?$", timeout_s=60.0, say=shown.append
        )
        thread.join()
    assert (match, got) == ("login: ", [b"\r"])
    assert shown == [f"[{name} on node2]", "booting", "login:"]


def test_a_guest_without_a_serial_line_is_named(simple):
    text = "instance web1: has no serial console on any node"
    with pytest.raises(errors.OpPrereqError, match=text):
        serial.connect(simple, "web1")
    with pytest.raises(errors.OpPrereqError, match=text):
        serial.listen(simple, "web1", until="x", timeout_s=-1.0, say=print)


# Processes
@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("/usr/bin/python3", "-I", "/usr/sbin/ganeti-noded", "-d"), "ganeti-noded"),
        (("sshd: root@pts/0",), "sshd"),
        (("/usr/sbin/sshd", "-f", "x"), "sshd"),
        (("python3", "-c", "-x"), "python3"),
        ((), "?"),
    ],
)
def test_a_process_has_the_name_of_its_program(arguments, name):
    assert Process(1, 0, arguments).name == name
