"""``gnt-cluster epo`` both ways, on a cluster that jobs change."""

import contextlib
import json

import pytest

from fakes import clusters, commands
from fakes.luxi_master import FakeMaster
from ganeti import store
from ganeti.base import errors, pathutils
from ganeti.base.constants import ecodes
from ganeti.base.filesystem import files
from ganeti.base.process import RunResult
from ganeti.bootstrap import failover
from ganeti.protocols.ssh import client

TAG = "ganeti:epo"
PAUSED = "The watcher is paused until"


class Cluster:
    """Nodes and instances that jobs change, and machines that boot after some rounds.

    Attributes:
        boot_rounds: rounds of attempts that a machine takes until it answers.
        broken: machines whose helper fails.
        crash_at: (opcode, object) whose job the master does not survive.
        dead: machines that went off, which nobody lived to record.
    """

    def __init__(self, nodes=3, *, boot_rounds=2):
        self.master = FakeMaster()
        self.master.values["watcher_pause"] = None
        self.boot_rounds = boot_rounds
        self.broken, self.dead = set(), set()
        self.crash_at = None
        self.now = 0.0
        self.pauses = []
        self.environ = {}
        self.booting = {}
        self.done = []
        self.nodes = {f"node{n}": self._node(n) for n in range(1, nodes + 1)}
        self.instances = {}
        self.master.objects["group"] = [
            {"name": "rack1", "node_list": list(self.nodes)[1:]},
            {"name": "rack0", "node_list": ["node1"]},
            {"name": "empty", "node_list": []},
        ]
        for op, act in {
            "OP_INSTANCE_SHUTDOWN": self._stop,
            "OP_INSTANCE_STARTUP": self._start,
            "OP_TAGS_SET": self._tag,
            "OP_TAGS_DEL": self._untag,
            "OP_NODE_SET_PARAMS": self._modify,
            "OP_OOB_COMMAND": self._power,
        }.items():
            self.master.results[op] = act
        self.add("web", "node2", "node3")
        self.add("db", "node1")
        self.add("old", "node3", admin="down")

    def _node(self, n):
        return {
            "name": f"node{n}",
            "master": n == 1,
            "powered": True,
            "offline": False,
            "tags": [],
            "pip": f"192.0.2.{n}",
            "master_candidate": True,
            "ndp/ssh_port": 22,
        }

    def add(self, name, pnode, *snodes, admin="up"):
        self.instances[name] = {
            "name": name,
            "pnode": pnode,
            "snodes": list(snodes),
            "admin_state": admin,
            "status": "running" if admin == "up" else "ADMIN_down",
        }

    def refresh(self):
        for node in self.nodes.values():
            name = node["name"]
            items = self.instances.values()
            node["pinst_list"] = [i["name"] for i in items if i["pnode"] == name]
            node["sinst_list"] = [i["name"] for i in items if name in i["snodes"]]
        self.master.objects["node"] = list(self.nodes.values())
        self.master.objects["instance"] = list(self.instances.values())

    def helperless(self, name):
        self.nodes[name]["powered"] = (3, None)

    def run(self, words, **options):
        self.refresh()
        self.done.clear()
        return commands.run(
            ["gnt-cluster", "epo", *words.split()],
            self.master,
            sleep=self._sleep,
            monotonic=lambda: self.now,
            tcp_ping=self._answers,
            environ=self.environ,
            **options,
        )

    def _sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds

    def _answers(self, address, port, timeout_s):
        assert (port, timeout_s) == (1811, 1.0)
        node = next(n for n in self.nodes.values() if n["pip"] == address)
        if node["powered"] is False or node["name"] in self.dead:
            return False
        left = self.booting.get(node["name"], 0)
        self.booting[node["name"]] = max(0, left - 1)
        return left == 0

    # Acts
    def _act(self, kind, name):
        if self.crash_at == (kind, name):
            raise errors.LuxiError("the master has crashed")
        self.done.append(f"{kind} {name}")

    def _stop(self, op):
        assert op.no_remember
        self._act("stop", op.instance_name)
        self.instances[op.instance_name]["status"] = "ERROR_down"

    def _start(self, op):
        self._act("start", op.instance_name)
        item = self.instances[op.instance_name]
        pnode = self.nodes[item["pnode"]]
        assert not pnode["offline"]
        item["status"] = "running"

    def _tag(self, op):
        self._act("tag", op.name)
        self.nodes[op.name]["tags"] = [*self.nodes[op.name]["tags"], *op.tags]

    def _untag(self, op):
        self._act("untag", op.name)
        assert op.tags == [TAG]
        self.nodes[op.name]["tags"] = []

    def _modify(self, op):
        assert op.offline is False
        self._act("online", op.node_name)
        node = self.nodes[op.node_name]
        node["offline"] = False
        if op.powered is not None:
            node["powered"] = op.powered
        assert node["powered"]
        return []

    def _power(self, op):
        if op.command == "power-status":
            states = {name: name not in self.dead for name in op.node_names}
            return [[(0, name), (0, {"powered": on})] for name, on in states.items()]
        is_off = op.command == "power-off"
        assert op.mark_offline == op.auto_promote == is_off
        rows = []
        for name in op.node_names:
            assert not self.nodes[name]["master"]
            failed = name in self.broken
            if not failed:
                self._act(op.command, name)
                self.dead.discard(name)
                self.nodes[name]["powered"] = not is_off
                self.nodes[name]["offline"] |= is_off
                self.booting[name] = self.boot_rounds
            rows.append([(0, name), (2 if failed else 0, None)])
        self.options = (op.timeout, op.power_delay)
        return rows


@pytest.fixture
def cluster():
    return Cluster()


# Off
def test_off_stops_tags_and_switches_in_this_order(cluster):
    cluster.add("late", "node1", "node3")
    result = cluster.run("-f --oob-timeout=7 --power-delay=0.5 node2 node3")
    assert result.code == 0, result.err
    assert set(cluster.done[:2]) == {"stop late", "stop web"}
    assert cluster.done[2:] == [
        *("tag node2", "tag node3"),
        *("power-off node2", "power-off node3"),
    ]
    assert cluster.options == (7, 0.5)
    assert "Submit shutdown of instance web\n" in result.out
    assert "All instances have been stopped successfully\n" in result.out
    assert result.err == ""


def test_the_whole_cluster_goes_off_but_the_master(cluster):
    result = cluster.run("-f --all")
    assert result.code == 0
    stopped = {word for word in cluster.done if word.startswith("stop")}
    assert stopped == {"stop db", "stop web"}
    assert {n["name"]: n["powered"] for n in cluster.nodes.values()} == {
        "node1": True,
        "node2": False,
        "node3": False,
    }
    assert "The master node1 cannot power itself off" in result.out
    assert PAUSED in result.out
    # Otherwise the watcher would start the instances of the master again.
    assert cluster.master.values["watcher_pause"] == 1_700_003_600


def test_a_cluster_of_one_node_is_prepared():
    cluster = Cluster(1)
    cluster.instances = {k: v for k, v in cluster.instances.items() if k == "db"}
    result = cluster.run("-f --all")
    assert (result.code, cluster.done) == (0, ["stop db"])
    assert "The master node1 cannot power itself off" in result.out


def test_the_watcher_does_not_interfere(cluster):
    assert cluster.run("-f node2").code == 0
    assert cluster.master.values["watcher_pause"] is None
    pauses = [args for name, args in cluster.master.calls if name == "SetWatcherPause"]
    assert pauses == [[1_700_003_600], [None]]


def test_a_longer_pause_of_the_watcher_is_kept(cluster):
    cluster.master.values["watcher_pause"] = 1_800_000_000.0
    assert PAUSED not in cluster.run("-f --all").out
    assert cluster.master.values["watcher_pause"] == 1_800_000_000.0


def test_a_run_after_a_crash_does_not_wait_for_machines_that_are_off(cluster):
    """The master did not live to record them."""
    cluster.nodes["node2"]["tags"] = [TAG]
    cluster.instances["web"]["status"] = "ERROR_nodedown"
    assert cluster.run("-f node2").code == 0
    assert cluster.done == ["power-off node2"]
    cluster.nodes["node2"] |= {"tags": [], "offline": False, "powered": True}
    cluster.run("-f node2")
    assert "stop web" in cluster.done


def test_the_watcher_goes_on_when_all_are_back(cluster):
    off(cluster)
    assert cluster.master.values["watcher_pause"] == 1_700_003_600
    assert "The watcher goes on." not in cluster.run("-f --on node2").out
    assert "The watcher goes on." in cluster.run("-f --on --all").out
    assert cluster.master.values["watcher_pause"] is None


@pytest.mark.parametrize("until", [None, 1_800_000_000.0])
def test_a_pause_that_is_not_of_this_command_stays(cluster, until):
    off(cluster)
    cluster.master.values["watcher_pause"] = until
    assert "The watcher goes on." not in cluster.run("-f --on --all").out
    assert cluster.master.values["watcher_pause"] == until


def test_groups_are_their_nodes(cluster):
    assert cluster.run("-f --groups rack1 empty").code == 0
    assert [w for w in cluster.done if "power" in w] == [
        "power-off node2",
        "power-off node3",
    ]
    result = cluster.run("-f --groups empty")
    assert (result.code, cluster.done) == (0, [])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("-f", "please name nodes"),
        ("-f --on", "please name nodes"),
        ("-f --groups", "please name nodes"),
        ("-f --all --groups", "exclude each other"),
        ("-f --all node2", "--all takes no names"),
        ("-f --on --become-master node2", "exclude each other"),
        ("-f nowhere", "not known"),
    ],
)
def test_wrong_arguments_change_nothing(cluster, words, text):
    result = cluster.run(words)
    assert result.code == 1
    assert text in result.err
    assert cluster.master.jobs == {}
    assert not any(n == "SetWatcherPause" for n, _ in cluster.master.calls)


def test_nodes_that_are_not_handled_are_listed(cluster):
    cluster = Cluster(5)
    cluster.helperless("node3")
    cluster.nodes["node4"] |= {"offline": True}
    cluster.nodes["node5"] |= {"offline": True, "powered": False}
    result = cluster.run("-f node2 node3 node4 node5")
    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[0].startswith("Node node3 does not support out-of-band handling, it")
    assert lines[1] == "Node node4 is marked offline, skipping"
    assert lines[2] == "Node node5 is already in desired power state, skipping"
    assert [w for w in cluster.done if "power" in w] == ["power-off node2"]
    # A person can then switch it off without harm.
    assert "stop web" in cluster.done
    assert not cluster.nodes["node3"]["offline"]


def test_nothing_to_do_is_no_job(cluster):
    cluster.nodes["node2"] |= {"offline": True, "powered": False}
    assert cluster.run("-f node2").code == 0
    assert cluster.master.jobs == {}


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("", 1)])
def test_the_question_names_the_nodes(cluster, answer, code):
    result = cluster.run("node3 node2", answers=[answer])
    assert result.code == code
    assert "The epo will operate on 2 nodes.\nDo you want to continue?" in (
        result.terminal
    )
    assert "Affected nodes:\n  node2\n  node3\n" in result.terminal
    assert bool(cluster.done) == (code == 0)


def test_without_a_terminal_nothing_happens(cluster):
    result = cluster.run("node3")
    assert (result.code, cluster.done) == (1, [])
    assert "no terminal for the question" in result.err


def test_an_instance_that_does_not_stop_keeps_the_power_on(cluster):
    def refuse(op):
        if op.instance_name == "db":
            return errors.OpExecError("guest hangs")
        return cluster._stop(op)

    cluster.master.results["OP_INSTANCE_SHUTDOWN"] = refuse
    result = cluster.run("-f --all")
    assert result.code == 1
    assert "There were errors while stopping instances:\n" in result.err
    assert "1 error(s) out of 2 instance(s)\n" in result.err
    assert "Nothing was powered off." in result.err
    assert cluster.done == ["stop web"]


def test_a_broken_helper_is_named_and_the_others_go_on(cluster):
    cluster.broken = {"node2"}
    result = cluster.run("-f node2 node3")
    assert result.code == 1
    assert "Node node2: could not power off" in result.err
    assert "node3" not in result.err
    assert cluster.nodes["node3"]["powered"] is False
    # It may still run something.
    assert (cluster.nodes["node2"]["offline"], cluster.nodes["node2"]["tags"]) == (
        False,
        [],
    )
    cluster.broken = set()
    assert cluster.run("-f node2 node3").code == 0
    assert cluster.done == ["tag node2", "power-off node2"]


@pytest.mark.parametrize(
    ("words", "verb", "done"),
    [
        ("-f node2 node3", "off", ["stop web", "tag node2", "tag node3"]),
        ("-f --on --all", "on", ["start db"]),
    ],
)
def test_a_refused_job_of_the_helpers_has_its_words(cluster, words, verb, done):
    if "--on" in words:
        off(cluster)
    cluster.master.results["OP_OOB_COMMAND"] = errors.OpPrereqError(
        "no helper is set", ecodes.ECODE_STATE
    )
    result = cluster.run(words)
    assert result.code == 1
    assert f"The job to power {verb} the nodes failed: " in result.err
    assert "no helper is set" in result.err
    # The marks stay: the next run goes on from there.
    assert cluster.done == done


def test_a_node_that_cannot_be_tagged_is_switched_off_all_the_same(cluster):
    def refuse(op):
        if op.name == "node3":
            return errors.OpPrereqError("no", ecodes.ECODE_STATE)
        return cluster._tag(op)

    cluster.master.results["OP_TAGS_SET"] = refuse
    result = cluster.run("-f node2 node3")
    assert result.code == 1
    assert "Node node3 could not be marked as switched off" in result.err
    assert not any(n["powered"] for n in cluster.nodes.values() if not n["master"])


# On
def off(cluster, words="-f --all"):
    assert cluster.run(words).code == 0
    cluster.pauses.clear()


def test_on_brings_everything_back(cluster):
    off(cluster)
    result = cluster.run("-f --on --all --power-delay=0.1")
    assert result.code == 0, result.err
    assert cluster.done == [
        *("power-on node2", "power-on node3"),
        # Its only node is the master, which is there.
        "start db",
        *("online node2", "untag node2", "online node3", "untag node3"),
        "start web",
    ]
    assert cluster.options == (60, 0.1)
    assert all(n["powered"] and not n["offline"] for n in cluster.nodes.values())
    assert all(n["tags"] == [] for n in cluster.nodes.values())
    assert "Waiting until all nodes are available again\n" in result.out
    assert "Node node2 became available\n" in result.out
    assert "Submit startup of instance web\n" in result.out
    assert "All instances have been started successfully\n" in result.out
    assert cluster.instances["old"]["status"] == "ADMIN_down"


def test_a_machine_that_went_off_unrecorded_is_switched_on(cluster):
    """The master did not live to record it; another one boots and is left alone."""
    off(cluster)
    for name in ("node2", "node3"):
        cluster.nodes[name] |= {"powered": True, "offline": False}
    cluster.dead = {"node2"}
    cluster.booting["node3"] = 3
    assert cluster.run("-f --on --all").code == 0
    assert [w for w in cluster.done if "power" in w] == ["power-on node2"]
    assert "start web" in cluster.done


def test_an_instance_starts_when_all_its_nodes_are_there(cluster):
    cluster.add("lone", "node3")
    off(cluster)
    cluster.boot_rounds = 0
    power = cluster.master.results["OP_OOB_COMMAND"]

    def slow(op):
        rows = power(op)
        cluster.booting["node2"] = 3
        return rows

    cluster.master.results["OP_OOB_COMMAND"] = slow
    assert cluster.run("-f --on --all").code == 0
    order = [word for word in cluster.done if "start" in word or "online" in word]
    assert order == [
        *("online node3", "start db", "start lone", "online node2", "start web"),
    ]


def test_the_pauses_grow_to_half_a_minute_and_end_after_15_minutes(cluster):
    off(cluster)
    cluster.boot_rounds = 10**9
    result = cluster.run("-f --on node2 node3")
    assert result.code == 1
    assert cluster.pauses[:7] == [1, 2, 4, 8, 16, 30, 30]
    assert set(cluster.pauses[5:]) == {30}
    assert 900 <= sum(cluster.pauses) < 930
    assert "This ends after 15:00 min at the latest.\n" in result.out
    assert "not available again, please investigate: node2, node3" in result.err
    assert (
        "node daemons did not answer for 15:00 min. A helper can report" in result.err
    )
    assert "These instances were not started: web" in result.err
    # They are machines of this command still: a later run goes on.
    cluster.booting.clear()
    assert cluster.run("-f --on node2 node3").code == 0
    assert "start web" in cluster.done


def test_a_node_daemon_that_refuses_at_first_is_asked_again(cluster):
    off(cluster)
    left = [2]

    def refuse_twice(op):
        if left[0]:
            left[0] -= 1
            return errors.OpExecError("not yet")
        return cluster._modify(op)

    cluster.master.results["OP_NODE_SET_PARAMS"] = refuse_twice
    assert cluster.run("-f --on --all").code == 0
    assert not any(n["offline"] for n in cluster.nodes.values())


def test_other_peoples_offline_nodes_stay_offline(cluster):
    cluster.nodes["node2"] |= {"offline": True, "powered": False}
    cluster.nodes["node3"] |= {"offline": True}
    result = cluster.run("-f --on node2 node3")
    assert result.code == 0
    assert cluster.done == ["power-on node2"]
    assert "to use it again: gnt-node modify --offline=no node2" in result.out
    assert "gnt-node modify --offline=no node3" in result.out


def test_nodes_without_a_helper_are_waited_for(cluster):
    cluster.helperless("node3")
    cluster.booting["node3"] = 2
    cluster.instances["web"]["status"] = "ERROR_down"
    result = cluster.run("-f --on node3")
    assert result.code == 0
    assert "Node node3 does not support out-of-band handling" in result.out
    assert cluster.done == ["start web"]


def test_a_helper_that_cannot_switch_on_is_an_error_but_stops_nothing(cluster):
    off(cluster)
    cluster.broken = {"node2"}
    result = cluster.run("-f --on --all")
    assert result.code == 1
    assert "Node node2: could not power on" in result.err
    assert "node3 became available" in result.out
    assert "please investigate: node2" in result.err


def test_a_failed_start_is_an_error(cluster):
    off(cluster)
    cluster.master.results["OP_INSTANCE_STARTUP"] = errors.OpExecError("no memory")
    result = cluster.run("-f --on --all")
    assert result.code == 1
    assert "There were errors while starting instances:" in result.err
    assert "All instances have been started" not in result.out


# The master goes off
class Shells:
    """SSH to the nodes of a cluster, where one that is asked to becomes the master.

    Attributes:
        ran: (node, words without the program).
        refusing: node -> error output of its check.
        lost: the connection breaks when the command has ended.
    """

    def __init__(self, cluster):
        self.cluster = cluster
        self.ran, self.refusing, self.lost = [], {}, False
        self.run_code, self.unreachable = 0, set()

    def __call__(self, host, _port, _identity, *, address, environment):
        assert address == self.cluster.nodes[host]["pip"]
        assert environment["GANETI_HOSTNAME"] == host
        if host in self.unreachable:
            raise errors.SshError(f"{host}: cannot be reached")
        return contextlib.nullcontext(Shell(self, host))


class Shell:
    def __init__(self, shells, node):
        self._shells, self._node = shells, node

    def run(self, argv, *, timeout_s=None, on_line=None):
        shells = self._shells
        if on_line is None:
            assert argv[1:] == ["master-failover", "--plan"]
            assert timeout_s
            text = shells.refusing.get(self._node, "")
            return RunResult(tuple(argv), int(bool(text)), None, "", text)
        assert argv[:3] == ["bash", "-o", "pipefail"]
        words = argv[argv.index("epo", argv.index("epo") + 1) + 1 :]
        shells.ran.append((self._node, words))
        for node in shells.cluster.nodes.values():
            node["master"] = node["name"] == self._node
        done = shells.cluster.run(" ".join(words))
        for line in (done.out + done.err).splitlines():
            on_line(line)
        if shells.lost:
            raise errors.SshError("connection lost while running bash")
        return RunResult(tuple(argv), done.code, None, done.out, "")


@pytest.fixture
def shells(cluster, monkeypatch, tmp_path):
    """The cluster's nodes over SSH; the master of a node that is asked serves."""
    root = str(tmp_path / "node9")
    cluster.environ = {"GANETI_ROOTDIR": root, "GANETI_HOSTNAME": "node9"}
    cluster.master.values["cluster_name"] = "cluster1"
    made = Shells(cluster)
    monkeypatch.setattr(client, "Client", made)
    monkeypatch.setattr(client, "cluster_identity", lambda *_: None)
    monkeypatch.setattr(failover, "is_serving", lambda _paths: True)
    return made


OPTIONS = ["--oob-timeout=7", "--power-delay=2.0", "--shutdown-timeout=120"]


def test_another_node_takes_the_role_and_switches_the_old_master_off(cluster, shells):
    shells.refusing = {"node2": "Failure:\nits own name does not resolve"}
    result = cluster.run("-f --oob-timeout=7 node1")
    assert result.code == 0, result.err
    (ran,) = shells.ran
    assert ran == ("node3", ["--force", "--become-master", *OPTIONS, "node1"])
    assert result.err == (
        "Node node2 cannot take the master role: its own name does not resolve\n"
    )
    assert cluster.done == ["stop db", "tag node1", "power-off node1"]
    assert "Submit shutdown of instance db" in result.out
    assert cluster.nodes["node3"]["master"]
    assert cluster.master.values["watcher_pause"] is None
    # The way back leaves the role where it is.
    assert cluster.run("-f --on node1").code == 0
    assert cluster.nodes["node3"]["master"]
    assert cluster.instances["db"]["status"] == "running"


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        ({"offline": True, "powered": False}, ""),
        ({"master_candidate": False}, ""),
        ({}, "Node node3 cannot take the master role: node3: cannot be reached\n"),
    ],
)
def test_without_a_successor_the_rest_goes_off(cluster, shells, flags, reason):
    cluster.nodes["node3"] |= flags
    shells.unreachable = {"node3"}
    result = cluster.run("-f node1 node2")
    assert shells.ran == []
    assert cluster.done[-2:] == ["tag node2", "power-off node2"]
    assert {"stop db", "stop web"} == set(cluster.done[:2])
    assert cluster.nodes["node1"]["powered"]
    if flags.get("offline"):
        assert (result.code, result.err) == (0, "")
        assert "The master node1 cannot power itself off: halt it" in result.out
        return
    assert result.code == 1
    assert result.err.startswith(reason)
    assert "role. When one of node3 can" in result.err
    assert result.err.endswith("type there: gnt-cluster epo --become-master node1\n")
    # The watcher would start the instances of the master again.
    assert cluster.master.values["watcher_pause"] == 1_700_003_600


def test_a_node_that_becomes_a_candidate_in_between_takes_the_role(cluster, shells):
    cluster.nodes["node3"]["master_candidate"] = False
    power = cluster.master.results["OP_OOB_COMMAND"]

    def promote(op):
        cluster.nodes["node3"]["master_candidate"] = True
        return power(op)

    cluster.master.results["OP_OOB_COMMAND"] = promote
    result = cluster.run("-f node1 node2")
    assert result.code == 0, result.err
    assert [(node, words[-1:]) for node, words in shells.ran] == [("node3", ["node1"])]
    assert cluster.nodes["node1"]["powered"] is False
    assert cluster.master.values["watcher_pause"] is None


def test_the_plan_names_the_new_master_and_asks_for_nothing_else(cluster, shells):
    result = cluster.run("-f --plan --json node1 node2")
    assert (result.code, shells.ran, cluster.done) == (0, [], [])
    shown = json.loads(result.out[result.out.index("{") :])
    assert shown["before"] == ["have node node3 take the master role, and go on there"]
    assert shown["after"] == ["switch off node1, as the other nodes, from node node3"]


def test_a_connection_that_breaks_leaves_the_place_to_look_and_to_go_on(
    cluster, shells, tmp_path
):
    shells.lost = True
    result = cluster.run("-f node1 node3")
    assert result.code == 1
    assert "Node node2: connection lost" in result.err
    assert f"See {tmp_path}/node2/var/log/ganeti/epo.log on node node2" in result.err
    assert "type there: gnt-cluster epo --become-master node1 node3" in result.err


def test_two_runs_do_not_take_the_role_at_once(cluster, shells, tmp_path):
    paths = pathutils.from_environ(cluster.environ)
    with files.locked(f"{paths.lock_dir}/epo.lock", timeout_s=0):
        result = cluster.run("-f --become-master node1")
    assert result.code == 1
    assert "another gnt-cluster epo --become-master runs on this node" in result.err
    assert cluster.done == []


def test_a_node_that_is_not_the_master_becomes_it_first(cluster, shells, monkeypatch):
    calls = []

    def fail_over(paths, *_effects, feedback):
        calls.append(paths.hostname)
        for node in cluster.nodes.values():
            node["master"] = node["name"] == "node2"
        return True

    monkeypatch.setattr(failover, "is_serving", lambda _paths: False)
    monkeypatch.setattr(failover, "fail_over", fail_over)
    assert cluster.run("-f --become-master node1").code == 0
    assert (calls, cluster.done[-1]) == (["node9"], "power-off node1")


def test_neither_a_plan_nor_a_refused_question_takes_the_role(
    cluster, shells, monkeypatch
):
    monkeypatch.setattr(failover, "is_serving", lambda _paths: False)
    monkeypatch.setattr(failover, "plan", lambda *_args, feedback: ["take it"])
    moved = []
    monkeypatch.setattr(failover, "fail_over", lambda *_args, **_more: moved.append(1))
    planned = cluster.run("--become-master --plan --json node1")
    steps = ["take it", "as the master, go on with the named nodes"]
    assert (planned.code, json.loads(planned.out)["before"]) == (0, steps)
    refused = cluster.run("--become-master node1")
    assert refused.code == 1
    assert "This node is not the master, and becomes it first." in refused.err
    assert (moved, shells.ran, cluster.done) == ([], [], [])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("node1 nowhere", "nowhere"),
        ("--groups nowhere", "nowhere"),
        ("node1 node2", "node2.example.com becomes the master and stays on"),
        ("--groups default", "node2.example.com becomes the master and stays on"),
    ],
)
def test_names_are_checked_before_the_role_moves(
    cluster, shells, monkeypatch, tmp_path, words, text
):
    name, calls = "node2.example.com", []
    cluster.environ = {
        "GANETI_ROOTDIR": str(tmp_path / name),
        "GANETI_HOSTNAME": name,
    }
    monkeypatch.setattr(store, "read_snapshot", lambda _path: clusters.snapshot())
    monkeypatch.setattr(failover, "is_serving", lambda _paths: False)
    monkeypatch.setattr(failover, "fail_over", lambda *a, **_k: calls.append(a))
    result = cluster.run(f"-f --become-master {words}")
    assert (result.code, calls, cluster.done) == (1, [], [])
    assert text in result.err


@pytest.mark.parametrize(
    "crash_at",
    [
        "stop db",
        "stop web",
        "tag node1",
        "tag node3",
        "power-off node1",
        "power-off node3",
    ],
)
def test_a_new_master_goes_on_after_a_crash(cluster, shells, crash_at):
    cluster.crash_at = tuple(crash_at.split())
    assert cluster.run("-f node1 node3").code == 1
    before = list(cluster.done)
    cluster.crash_at = None
    ((_, words),) = shells.ran
    assert cluster.run(" ".join(words)).code == 0
    assert not set(before) & set(cluster.done)
    states = {
        n: (node["powered"], node["offline"]) for n, node in cluster.nodes.items()
    }
    off = (False, True)
    assert states == {"node1": off, "node2": (True, False), "node3": off}


# Crashes
def steps(direction):
    """Return what happens in one undisturbed run."""
    cluster = Cluster()
    if direction == "--on":
        off(cluster)
    cluster.run(f"-f {direction} --all".replace("--off ", ""))
    return [tuple(word.split()) for word in cluster.done]


@pytest.mark.parametrize(
    ("direction", "crash_at"),
    [(way, step) for way in ("--off", "--on") for step in steps(way)],
)
def test_a_run_after_a_crash_goes_on_with_the_rest(direction, crash_at):
    cluster = Cluster()
    if direction == "--on":
        off(cluster)
    words = f"-f {direction} --all".replace("--off ", "")
    cluster.crash_at = crash_at
    assert cluster.run(words).code != 0
    before = list(cluster.done)
    cluster.crash_at = None
    assert cluster.run(words).code == 0
    assert not set(before) & set(cluster.done)
    wanted = direction == "--on"
    for node in cluster.nodes.values():
        if not node["master"]:
            assert node["powered"] is wanted
            assert node["offline"] is not wanted
            assert (TAG in node["tags"]) is not wanted
    states = {i["name"]: i["status"] for i in cluster.instances.values()}
    state = "running" if wanted else "ERROR_down"
    assert states == {"web": state, "db": state, "old": "ADMIN_down"}
