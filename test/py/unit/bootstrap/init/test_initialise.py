"""Creation of a cluster: steps in order, plans, refusals, and undoing them."""

import dataclasses
import os
import pathlib
import stat

import pytest

from fakes.clocks import FakeClock
from fakes.luxi_master import Connection
from fakes.processes import FakeRunner
from fakes.rpc import FakeRunner as FakeNodes
from fakes.rpc import failure
from ganeti import store
from ganeti.base import errors
from ganeti.base.constants import versions
from ganeti.base.pathutils import Paths
from ganeti.bootstrap import cluster_files, crypto, jobs
from ganeti.bootstrap.init import checks, initialise, machine_defaults
from ganeti.bootstrap.options import InitOptions
from ganeti.model.objects import Snapshot
from ganeti.node.calls.membership import uploads
from ganeti.node.storage import allowed
from ganeti.protocols.ssh import authorized_keys, keys

NODE, CLUSTER = "n1.example.com", "c1.example.com"
HOSTS = {NODE: "192.0.2.1", CLUSTER: "192.0.2.100"}
STARTS = [
    "daemon-util start ganeti-noded",
    "daemon-util start-master",
    "daemon-util start ganeti-confd",
    "daemon-util start ganeti-mond",
]


class Machine:
    """A machine whose daemons, node daemon and master daemon are fakes.

    ``master`` is asked after the daemons were started, and ``nodes`` records the calls
    of the node daemon.
    """

    def __init__(self, folder):
        self.paths = Paths(str(folder / "n1"), NODE)
        os.makedirs(self.paths.conf_dir)
        self.process = FakeRunner(daemon_util=FakeRunner.DONE, ip=FakeRunner.DONE)
        self.nodes = FakeNodes(
            Snapshot,
            {"version": versions.PROTOCOL_VERSION, "etc_hosts_modify": None},
        )
        self.master = Connection()
        self.master.master.results["OP_CLUSTER_POST_INIT"] = True
        self.lines = []

    def options(self, **options):
        return InitOptions(
            **{
                "cluster_name": CLUSTER,
                "enabled_hypervisors": ("fake",),
                "enabled_disk_templates": ("file",),
                "master_netdev": "lo",
                "modify_ssh_setup": False,
                "default_iallocator": "hail",
                **options,
            }
        )

    def create(self, **options):
        initialise.init_cluster(
            self.paths,
            self.process,
            FakeClock(),
            self.options(**options),
            feedback=self.lines.append,
        )

    def plan(self, **options):
        return initialise.plan(
            self.paths, self.process, FakeClock(), self.options(**options)
        )

    def left(self):
        """Return the files of the cluster that exist."""
        return cluster_files.of_node(self.paths)


@pytest.fixture
def machine(tmp_path, monkeypatch):
    actual = Machine(tmp_path)
    netutils = checks.netutils
    monkeypatch.setattr(
        netutils, "lookup_host", lambda name, *_args, **_more: (name, [HOSTS[name]])
    )
    monkeypatch.setattr(netutils, "tcp_ping", lambda *_args, **_more: False)
    monkeypatch.setattr(
        netutils, "owns_address", lambda address: address == HOSTS[NODE]
    )
    monkeypatch.setattr(initialise, "_static_runner", lambda *_args: actual.nodes)
    monkeypatch.setattr(
        jobs.luxi.Client, "of_node", classmethod(lambda _cls, _paths: actual.master)
    )
    return actual


def test_a_cluster_is_created_in_order(machine):
    machine.create()
    assert machine.process.lines == STARTS
    assert [procedure for procedure, *_rest in machine.nodes.calls] == [
        "version",
        "etc_hosts_modify",
    ]
    ((_node, args),) = machine.nodes.called("etc_hosts_modify")
    assert args == ("add", NODE, "192.0.2.1")
    ((op,),) = machine.master.master.jobs.values()
    assert op.op_id() == "OP_CLUSTER_POST_INIT"
    steps = [line for line in machine.lines if not line.startswith("Warning")]
    assert [step for step in steps if "disk files" not in step][-4:] == [
        "Writing certificates and keys",
        "Writing the first configuration",
        "Starting the node daemon",
        "Starting the master daemon",
    ]


def test_the_files_of_a_cluster_are_there_before_its_daemons(machine):
    seen = []
    machine.process.answers["daemon-util"] = lambda argv: (
        seen.append({os.path.basename(path) for path in machine.left()})
        or FakeRunner.DONE
    )
    machine.create()
    assert seen[0] >= {
        *("server.pem", "client.pem", "hmac.key", "cluster-domain-secret"),
        *("known_hosts", "store.db", "ssconf_cluster_name", "ssconf_master_node"),
    }
    data = machine.paths.data
    for name in ("server.pem", "client.pem", "hmac.key", "cluster-domain-secret"):
        mode = stat.S_IMODE(os.stat(data(name)).st_mode)
        assert not mode & 0o037, (name, oct(mode))


def test_the_first_node_is_master_and_its_certificate_is_recorded(machine):
    machine.create()
    copy = store.Follower(machine.paths.store_db)
    snapshot = copy.snapshot()
    copy.close()
    (node,) = snapshot.nodes.values()
    assert (node.name, node.master_candidate) == (NODE, True)
    assert snapshot.cluster.master_node == node.uuid
    assert list(snapshot.cluster.candidate_certs) == [node.uuid]
    assert snapshot.cluster.cluster_name == CLUSTER


def test_names_of_nodes_stay_out_of_the_hosts_file_on_request(machine):
    assert not any(
        "hosts file" in step for step in machine.plan(modify_etc_hosts=False)
    )
    machine.create(modify_etc_hosts=False)
    assert machine.nodes.called("etc_hosts_modify") == []


def test_a_plan_lists_the_steps_and_takes_none(machine):
    steps = machine.plan()
    assert not os.path.exists(machine.paths.data_dir)
    assert os.listdir(machine.paths.conf_dir) == []
    assert machine.process.commands == machine.nodes.calls == []
    assert steps[-4:] == [
        "start ganeti-noded",
        f"add {NODE} to the hosts file",
        "start ganeti-masterd",
        "submit OP_CLUSTER_POST_INIT, which runs hooks",
    ]
    (written,) = [step for step in steps if step.startswith("write the configuration")]
    assert f"cluster {CLUSTER}, address 192.0.2.100/32, master {NODE}" in written
    assert "hypervisors fake, disk templates file" in written


def test_a_node_of_a_cluster_is_refused_and_keeps_its_files(machine):
    machine.create()
    before = machine.left()
    commands = len(machine.process.commands)
    for act in (machine.create, machine.plan):
        with pytest.raises(errors.OpPrereqError, match="already in a cluster"):
            act()
    assert machine.left() == before
    assert len(machine.process.commands) == commands


def _failing(*words):
    """Return daemon-util that fails for one command."""
    return lambda argv: (
        (1, "", "no room\n") if tuple(argv[1:]) == words else FakeRunner.DONE
    )


@pytest.mark.parametrize(
    ("words", "ran"),
    [
        (("start", "ganeti-noded"), 1),
        (("start-master",), 2),
        (("start", "ganeti-confd"), 3),
        (("start", "ganeti-mond"), 4),
    ],
)
def test_a_daemon_that_does_not_start_undoes_the_cluster(machine, words, ran):
    machine.process.answers["daemon-util"] = _failing(*words)
    with pytest.raises(errors.OpExecError, match=f"{' '.join(words)} .*no room"):
        machine.create()
    assert machine.process.lines == [*STARTS[:ran], "daemon-util stop-all"]
    assert machine.left() == []
    assert not os.path.exists(allowed.list_file(machine.paths))


def test_files_are_removed_after_the_daemons_that_use_them_have_stopped(machine):
    at_stop = []

    def util(argv):
        if argv[1] == "stop-all":
            at_stop.extend(machine.left())
        return _failing("start-master")(argv)

    machine.process.answers["daemon-util"] = util
    with pytest.raises(errors.OpExecError):
        machine.create()
    assert machine.paths.store_db in at_stop


def test_daemons_that_do_not_stop_do_not_hide_the_first_error(machine):
    machine.process.answers["daemon-util"] = lambda argv: (
        (1, "", "hung\n")
        if argv[1] in ("start-master", "stop-all")
        else FakeRunner.DONE
    )
    with pytest.raises(errors.OpExecError, match="start-master"):
        machine.create()
    assert "stop-all" in machine.lines[-1]
    assert machine.lines[-1].startswith("Warning: ")
    assert machine.left() == []


def test_a_node_daemon_may_take_a_while_to_answer(machine):
    answers = iter([failure("timed out"), failure("timed out")])
    machine.nodes.script["version"] = lambda _node, _args: next(
        answers, versions.PROTOCOL_VERSION
    )
    machine.create()
    assert [call[0] for call in machine.nodes.calls].count("version") == 3


def test_a_node_daemon_of_another_version_is_named(machine):
    machine.nodes.script["version"] = versions.PROTOCOL_VERSION + 1
    with pytest.raises(
        errors.OpExecError,
        match=f"wanted a node daemon of version {versions.PROTOCOL_VERSION}, found",
    ):
        machine.create()
    assert machine.process.lines == [STARTS[0], "daemon-util stop-all"]
    assert machine.left() == []


@pytest.mark.parametrize(
    ("procedure", "text"),
    [
        ("version", "cannot reach the new node daemon, see .*node-daemon.log"),
        ("etc_hosts_modify", "cannot add this node to the hosts file"),
    ],
)
def test_a_node_daemon_that_refuses_is_an_error(machine, procedure, text):
    machine.nodes.script[procedure] = failure("no entry")
    with pytest.raises(errors.OpExecError, match=f"{text}.*no entry"):
        machine.create()
    assert STARTS[1] not in machine.process.lines
    assert machine.left() == []


def test_a_failed_first_job_undoes_the_cluster(machine):
    machine.master.master.results["OP_CLUSTER_POST_INIT"] = errors.OpExecError("hook")
    with pytest.raises(errors.OpExecError, match="hook"):
        machine.create()
    assert machine.process.lines == [*STARTS, "daemon-util stop-all"]
    assert machine.left() == []


def test_a_second_attempt_succeeds_after_a_failed_one(machine):
    machine.process.answers["daemon-util"] = _failing("start-master")
    with pytest.raises(errors.OpExecError):
        machine.create()
    machine.process.answers["daemon-util"] = FakeRunner.DONE
    machine.create()
    assert machine.left()


LISTED = f"192.0.2.1 {NODE}{uploads.MARK}\n"


@pytest.mark.parametrize(
    "text",
    [
        LISTED,
        "127.0.0.1 localhost\n",
        f"127.0.1.1 {NODE} n1\n",
        f"127.0.1.1 {NODE} n1\n{LISTED}",
    ],
    ids=["listed", "other", "loopback", "both"],
)
def test_a_failure_leaves_the_hosts_file_as_it_was(machine, text):
    path = pathlib.Path(machine.paths.at("/etc/hosts"))
    path.write_text(text)
    machine.nodes.script["etc_hosts_modify"] = lambda _node, args: (
        uploads.etc_hosts_modify(machine, *args) and None
    )
    machine.process.answers["daemon-util"] = _failing("start-master")
    with pytest.raises(errors.OpExecError):
        machine.create()
    assert path.read_text() == text


@pytest.mark.parametrize("is_removed", [True, False])
def test_lines_that_a_person_adds_to_the_hosts_file_since_stay(machine, is_removed):
    path = pathlib.Path(machine.paths.at("/etc/hosts"))

    def change(_node, args):
        if args[0] == "remove" and not is_removed:
            return failure("hung")
        uploads.etc_hosts_modify(machine, *args)
        return None

    def daemon_util(argv):
        if "start-master" in argv:
            path.write_text(f"{path.read_text()}192.0.2.7 n7\n")
        return _failing("start-master")(argv)

    machine.nodes.script["etc_hosts_modify"] = change
    machine.process.answers["daemon-util"] = daemon_util
    with pytest.raises(errors.OpExecError, match="start-master"):
        machine.create()
    assert path.read_text().endswith("192.0.2.7 n7\n")
    assert (NODE in path.read_text()) != is_removed
    warning = "Warning: the hosts file keeps this node"
    assert (warning in str(machine.lines)) != is_removed


def test_an_administrators_list_of_directories_survives_a_failure(machine):
    path = allowed.list_file(machine.paths)
    with open(path, "w", encoding="utf-8") as stream:
        stream.write("/srv/mine\n")
    machine.process.answers["daemon-util"] = _failing("start-master")
    with pytest.raises(errors.OpExecError):
        machine.create()
    with open(path, encoding="utf-8") as stream:
        assert stream.read() == "/srv/mine\n"


class TestBridge:
    """The bridge that `--create-bridge` asks for."""

    @pytest.fixture(autouse=True)
    def _wanted(self, machine, monkeypatch):
        resolved = machine_defaults.resolve

        def with_bridge(*args):
            return dataclasses.replace(resolved(*args), new_bridge="br0")

        monkeypatch.setattr(machine_defaults, "resolve", with_bridge)
        machine.process.answers["sh"] = self._managed_by("networkd")

    @staticmethod
    def _managed_by(manager):
        """Answer the script about the network's manager; write files for the other."""

        def run_script(argv):
            _sh, _option, script, _name, path = argv
            if "systemctl" in script:
                return 0, f"{manager}\n", ""
            with open(path, "w", encoding="utf-8"):
                return FakeRunner.DONE

        return run_script

    @staticmethod
    def _files(machine):
        folder = machine.paths.at("/etc/systemd/network")
        return sorted(os.listdir(folder)) if os.path.isdir(folder) else []

    def test_it_is_made_before_the_files_of_the_cluster(self, machine):
        os.makedirs(machine.paths.at("/etc/systemd/network"))
        machine.create()
        assert machine.process.lines[:2] == [
            "ip link add name br0 type bridge",
            "ip link set dev br0 up",
        ]
        assert self._files(machine) == ["60-ganeti-br0.netdev", "60-ganeti-br0.network"]

    def test_it_is_removed_with_its_files_after_a_failure(self, machine):
        os.makedirs(machine.paths.at("/etc/systemd/network"))
        machine.process.answers["daemon-util"] = _failing("start-master")
        with pytest.raises(errors.OpExecError, match="start-master"):
            machine.create()
        assert machine.process.lines[-2:] == [
            "daemon-util stop-all",
            "ip link del dev br0",
        ]
        assert self._files(machine) == []

    def test_without_a_manager_of_the_network_it_lasts_until_a_reboot(self, machine):
        machine.process.answers["sh"] = self._managed_by("")
        machine.create()
        (line,) = [text for text in machine.lines if "reboot" in text]
        assert line.startswith("Warning: bridge br0 is gone after a reboot")

    def test_a_plan_names_it(self, machine):
        assert "create the bridge br0, without ports" in machine.plan()


@pytest.fixture
def host_key(machine):
    host = keys.generate("rsa", 2048)
    folder = machine.paths.at("/etc/ssh")
    os.makedirs(folder)
    for name, text in ("", host.private), (".pub", host.public):
        with open(f"{folder}/ssh_host_rsa_key{name}", "w", encoding="utf-8") as stream:
            stream.write(text)


WITH_KEYS = {"modify_ssh_setup": True, "ssh_key_type": "ecdsa", "ssh_key_bits": 384}


@pytest.mark.parametrize("is_authorized", [False, True])
def test_a_failure_authorizes_no_key(machine, host_key, is_authorized):
    path = crypto.authorized_keys_path(machine.paths)
    if is_authorized:
        pair = crypto.ensure_root_key(machine.paths, "ecdsa", 384)
        authorized_keys.add(path, [pair.public])
    before = authorized_keys.read(path)
    machine.process.answers["daemon-util"] = _failing("start-master")
    with pytest.raises(errors.OpExecError):
        machine.create(**WITH_KEYS)
    assert authorized_keys.read(path) == before


def test_keys_of_root_are_made_on_request(machine, host_key):
    step = "generate and authorize SSH keys of root (ecdsa, 384 bits)"
    assert step in machine.plan(**WITH_KEYS)
    machine.create(**WITH_KEYS)
    with open(crypto.authorized_keys_path(machine.paths), encoding="utf-8") as stream:
        assert stream.read().startswith("ecdsa-sha2-nistp384 ")
    with open(machine.paths.data("known_hosts"), encoding="utf-8") as stream:
        assert stream.read().startswith(f"{machine.paths.hostname},{CLUSTER} ssh-rsa ")
