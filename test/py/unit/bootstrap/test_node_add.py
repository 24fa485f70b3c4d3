"""Preparation of a joining machine: what is asked, sent, checked and refused."""

import contextlib
import json
import os

import pytest

from fakes.rpc import FakeRunner, failure
from ganeti.base import errors
from ganeti.base.constants import misc, versions
from ganeti.base.pathutils import Paths
from ganeti.base.process import RunResult
from ganeti.base.tls import x509
from ganeti.bootstrap import crypto, node_add
from ganeti.bootstrap.options import JoinRequest
from ganeti.model import objects
from ganeti.protocols import luxi, rpc, ssconf
from ganeti.protocols.ssh import authorized_keys, keys
from ganeti.protocols.ssh import client as ssh_client

MASTER, NEW = "n1.example.com", "n9.example.com"


def host_key(line):
    """Return a public key line without its comment."""
    return " ".join(line.split()[:2])


class Master:
    """The answers of the master daemon; a call that is not listed fails the test."""

    def __init__(self):
        self.config = ["c1.example.com", MASTER, True, "ed25519", 256]
        self.nodes = [
            [MASTER, "u1", "127.0.0.1", "198.51.100.1", "M"],
            ["n2.example.com", "u2", "192.0.2.2", "198.51.100.2", "R"],
        ]
        self.ports = [[22]]
        self.nic = {"mode": "bridged", "link": "br9"}
        self.hypervisors = ["kvm"]
        self.hvparams = {
            "kvm": {"migration_port": 8102},
            "xen-hvm": {"migration_port": 8002},
            "lxc": {},
        }

    def call(self, method, args):
        if method == "QueryClusterInfo":
            return {
                "nicparams": {"default": self.nic},
                "enabled_hypervisors": self.hypervisors,
                "hvparams": self.hvparams,
            }
        if method == "QueryConfigValues":
            return self.config
        if method == "QueryNodes":
            return self.nodes
        assert method == "QueryGroups", method
        return self.ports[:1] if args[0] else self.ports


class Shell:
    """A machine on which programs answer as listed by their base name."""

    def __init__(self, site, target):
        self.site, self.target = site, target
        self.is_closed = False

    def run(self, argv, *, stdin=None, timeout_s=None):
        assert not self.is_closed
        name = os.path.basename(argv[0])
        if name == "cat" and "ssh_host_" in argv[1]:
            kind = os.path.basename(argv[1]).split("_")[2]
            text = self.site.host_keys.get(kind)
            code = 1 if text is None else 0
            return RunResult(tuple(argv), code, None, text or "", "")
        if name == "cat" and argv[1].endswith("/.ssh/authorized_keys"):
            return RunResult(tuple(argv), 0, None, self.site.authorized, "")
        self.site.ran.append(
            (name, argv, stdin, timeout_s, bool(self.target.host_keys))
        )
        code, text = self.site.programs[name]
        return RunResult(tuple(argv), code, None, text, "")

    @property
    def host_key(self):
        return self.site.proved

    def close(self):
        self.is_closed = True


class Site:
    """The master's node, and a machine that joins."""

    def __init__(self, folder):
        self.paths = Paths(str(folder / MASTER), MASTER)
        for path in (self.paths.data_dir, self.paths.sshd_dir):
            os.makedirs(path)
        x509.write_cluster_certificate(self.paths.server_pem)
        with open(self.paths.hmac_key, "w") as out:
            out.write("secret\n")
        values = {"cluster_name": "c1.example.com\n", "ssh_ports": f"{MASTER}=2022\n"}
        ssconf.write(self.paths, values)
        own, other = (keys.generate("ed25519").public for _ in range(2))
        authorized_keys.update_node_keys(
            self.paths.data(crypto.PUBLIC_KEYS), "add", {"u1": [own], "u2": [other]}
        )
        own = keys.generate("ecdsa")
        keys.save(own, keys.host_key_path(self.paths.sshd_dir, "ecdsa"))
        self.host_keys = {
            kind: keys.generate(kind, comment="root@stranger").public
            for kind in ("ed25519", "ecdsa")
        }
        self.proved = host_key(self.host_keys["ed25519"])
        self.key = keys.generate("ed25519").public
        self.authorized = ""
        self.master = Master()
        self.ran, self.targets, self.shells, self.lines = [], [], [], []
        self.programs = {
            "rm": (0, ""),
            "prepare-node-join": (0, ""),
            "node-daemon-setup": (0, ""),
            "ssh-update": (0, ""),
            "node-cleanup": (0, ""),
            "test": (0, ""),
            "cmp": (0, ""),
            "cat": (0, self.key),
            "sh": (0, "bridge\n"),
        }
        self.port_checks = []
        self.script = {"version": versions.PROTOCOL_VERSION}
        self.runner = None

    def connect(self, target):
        self.targets.append(target)
        self.shells.append(Shell(self, target))
        return self.shells[-1]

    def make_runner(self, targets, _paths):
        self.at = targets
        self.runner = FakeRunner(objects.Snapshot, self.script)
        return self.runner

    def check_ports(self, _shell, node, master, ports):
        self.port_checks.append((node, master, ports))
        return ["Warning: port 8102 is filtered"]

    def join(self, name=NEW, **options):
        request = JoinRequest(name=name, **options)
        return node_add.join(
            self.paths, request, feedback=self.lines.append, connect=self.connect
        )

    def tools(self):
        """Return the arguments of Ganeti's own programs on the node."""
        return [argv for name, argv, *_rest in self.ran if "-" in name]

    def certificate(self, path=None):
        """Return the certificate of a file without its key."""
        certificate = x509.load_certificate(path or self.paths.server_pem)
        return x509.certificate_pem(certificate).decode()

    def message(self, program):
        ((_, _, stdin, _, _),) = [row for row in self.ran if row[0] == program]
        return json.loads(stdin)


@pytest.fixture
def site(tmp_path, monkeypatch):
    actual = Site(tmp_path)
    monkeypatch.setattr(
        luxi.Client, "of_node", lambda _paths: contextlib.nullcontext(actual.master)
    )
    monkeypatch.setattr(rpc, "StaticRunner", actual.make_runner)
    monkeypatch.setattr(node_add.checks, "canonical_name", lambda name, _paths: name)
    monkeypatch.setattr(node_add.netutils, "lookup", lambda *_a: "192.0.2.9")
    monkeypatch.setattr(node_add, "_RETRY_S", 0.0)
    monkeypatch.setattr(node_add.machine_checks, "port_warnings", actual.check_ports)
    return actual


def test_filtered_ports_are_reported_in_both_directions(site):
    site.join()
    ((node, master, ports),) = site.port_checks
    assert node == (NEW, "192.0.2.9")
    assert master == (MASTER, "127.0.0.1")
    assert ports.tcp == {1811: "node daemon", 22: "SSH", 8102: "live migration"}
    assert (ports.udp, ports.listening) == ({1814: "confd"}, {1811})
    assert "Warning: port 8102 is filtered" in site.lines


def test_the_ports_of_live_migration_are_those_of_the_cluster(site):
    site.master.hypervisors = ["lxc", "xen-hvm", "kvm"]
    site.master.hvparams["kvm"] = {"migration_port": 8200}
    site.join()
    ((_node, _master, ports),) = site.port_checks
    assert ports.tcp == {
        1811: "node daemon",
        22: "SSH",
        8002: "live migration",
        8200: "live migration",
    }


def test_a_machine_is_prepared_with_the_clusters_files(site):
    joined = site.join(secondary_ip="198.51.100.9")
    read = tuple(host_key(site.host_keys[kind]) for kind in ("ecdsa", "ed25519"))
    assert joined == node_add.Joined(NEW, "192.0.2.9", "198.51.100.9", read)
    assert [row[0] for row in site.ran] == [
        "prepare-node-join",
        "sh",
        "node-daemon-setup",
    ]
    # The second login accepts the host keys that were read over the first one.
    assert [row[4] for row in site.ran] == [False, True, True]
    assert all(row[3] for row in site.ran)
    assert all(shell.is_closed for shell in site.shells)
    # Until the job has recorded the node, the cluster knows nothing of it.
    assert set(authorized_keys.read_node_keys(site.paths.data(crypto.PUBLIC_KEYS))) == {
        "u1",
        "u2",
    }


def test_only_candidates_may_log_in_and_no_private_key_of_the_cluster_is_sent_early(
    site,
):
    site.join()
    message = site.message("prepare-node-join")
    assert set(message["authorized_keys"]) == {"u1"}
    assert message["cluster_name"] == "c1.example.com"
    assert "PRIVATE KEY" not in message["node_daemon_certificate"]
    assert "ssh_host_key" not in message
    assert (message["ssh_key_type"], message["ssh_key_bits"]) == ("ed25519", 256)
    assert "debug" not in message


def test_the_daemon_gets_certificate_secret_and_simple_configuration(site):
    site.join()
    message = site.message("node-daemon-setup")
    assert "PRIVATE KEY" in message["node_daemon_certificate"]
    assert message["hmac_key"] == "secret\n"
    assert message["ssconf"]["cluster_name"].strip() == "c1.example.com"
    assert message["node_name"] == NEW
    assert message["start_node_daemon"] is True


def test_debug_output_is_asked_for_by_option(site):
    site.join(debug=True)
    assert [argv[1:] for argv in site.tools()] == [["--debug"], ["--debug"]]
    site.ran.clear()
    site.join("n8.example.com")
    assert all(len(argv) == 1 for argv in site.tools())


def test_without_managed_ssh_only_the_daemon_is_set_up(site):
    site.master.config[2] = False
    site.join()
    assert [row[0] for row in site.ran] == ["sh", "node-daemon-setup"]
    assert [target.host_keys for target in site.targets] == [()]


@pytest.mark.parametrize(
    ("name", "readd", "text"),
    [
        ("n2.example.com", False, "already in the cluster, use --readd"),
        (NEW, True, "not in the cluster, add it without --readd"),
        (MASTER, True, "is the master, which cannot be readded"),
    ],
)
def test_requests_that_contradict_the_configuration(site, name, readd, text):
    with pytest.raises(errors.OpPrereqError, match=text):
        site.join(name, readd=readd)
    with pytest.raises(errors.OpPrereqError, match=text):
        node_add.plan(site.paths, JoinRequest(name=name, readd=readd))
    assert site.targets == []


def test_a_node_that_is_added_again_keeps_its_secondary_address(site):
    joined = site.join("n2.example.com", readd=True, secondary_ip="203.0.113.7")
    assert joined.secondary_ip == "198.51.100.2"


def test_a_node_that_is_added_again_forgets_a_former_authority(site):
    site.programs["cat"] = (0, site.certificate())
    site.join("n2.example.com", readd=True)
    assert "rm" not in [row[0] for row in site.ran]
    site.ran.clear()
    other = site.paths.data("other.pem")
    x509.write_cluster_certificate(other)
    site.programs["cat"] = (0, site.certificate(other))
    site.join("n2.example.com", readd=True)
    _cat, (name, argv, *_rest) = site.ran[:2]
    assert (name, argv[1]) == ("rm", "-f")
    assert argv[2].endswith("/n2.example.com/var/lib/ganeti/server.pem")
    site.programs["rm"] = (1, "read-only")
    with pytest.raises(errors.OpExecError, match=r"n2.*server\.pem cannot be removed"):
        site.join("n2.example.com", readd=True)
    site.ran.clear()
    site.join(NEW)
    assert "rm" not in [row[0] for row in site.ran]


@pytest.mark.parametrize(
    ("rows", "options", "port"),
    [
        ([[22]], {}, 22),
        ([[2222], [2222]], {}, 2222),
        ([[2222], [22]], {"group": "g1"}, 2222),
        ([[2222], [22]], {"ssh_port": 99, "group": "g1"}, 99),
        ([[2222], [2223]], {}, 2022),
    ],
)
def test_the_ssh_port(site, rows, options, port):
    site.master.ports = rows
    site.join(**options)
    assert {target.port for target in site.targets} == {port}


def test_a_tool_that_fails_is_named_with_its_last_line(site):
    site.programs["prepare-node-join"] = (1, "trace\nERROR: in another cluster\n")
    with pytest.raises(
        errors.OpExecError, match="exited with code 1: ERROR: in another"
    ):
        site.join()
    site.programs["prepare-node-join"] = (1, "")
    with pytest.raises(errors.OpExecError, match="no output"):
        site.join()
    assert all(shell.is_closed for shell in site.shells)


def taken_back(site):
    """Return what the undoing of a preparation has run and removed."""
    at = [row[0] for row in site.ran].index("test")
    rest = site.ran[at:]
    [stdin] = [row[2] for row in rest if row[0] == "ssh-update"] or ["null"]
    return [row[0] for row in rest], json.loads(stdin)


def test_a_machine_that_is_refused_gets_rid_of_the_clusters_files(site):
    joined = site.join()
    joined.undo()
    ran, message = taken_back(site)
    assert ran == ["test", "cmp", "ssh-update", "node-cleanup"]
    action, given = message["authorized_keys"]
    assert (action, set(given)) == ("remove", {"u1"})
    assert site.lines[-1] == f"Files of the cluster were removed from {NEW} again"


def test_a_refused_machine_keeps_the_keys_that_it_had(site):
    """Without the master's own, the request could not be repeated."""
    [own] = authorized_keys.read_node_keys(site.paths.data(crypto.PUBLIC_KEYS))["u1"]
    site.authorized = f"# ours\nno-pty {host_key(own)} root@here\n"
    site.join().undo()
    _ran, message = taken_back(site)
    assert message["authorized_keys"] == ["remove", {"u1": []}]


def test_files_of_another_preparation_or_of_a_node_are_left_alone(site):
    joined = site.join()
    site.programs["cmp"] = (1, "")
    joined.undo()
    assert taken_back(site)[0] == ["test", "cmp"]
    site.ran.clear()
    site.master.nodes.append([NEW, "u9", "192.0.2.9", "192.0.2.9", "R"])
    joined.undo()
    assert site.ran == []


def test_a_machine_of_another_cluster_keeps_its_files(site):
    site.programs |= {"prepare-node-join": (1, "no"), "test": (1, "")}
    site.programs["ssh-update"] = (1, "ERROR: in another cluster")
    with pytest.raises(errors.OpExecError, match="prepare-node-join"):
        site.join()
    assert taken_back(site)[0] == ["test", "ssh-update"]
    assert "run node-cleanup there" in site.lines[-1]


def test_a_node_that_is_added_again_keeps_what_it_got(site):
    joined = site.join("n2.example.com", readd=True)
    before = list(site.ran)
    joined.undo()
    assert site.ran == before


def test_only_the_proved_key_counts_if_the_files_are_not_those_of_the_server(site):
    site.proved = host_key(keys.generate("rsa", 1024).public)
    assert site.join().ssh_host_keys == (site.proved,)
    site.host_keys.clear()
    assert site.join(NEW).ssh_host_keys == (site.proved,)


@pytest.mark.parametrize(
    "text",
    [
        "{key}\nattacker ssh-ed25519 AAAA\n",
        "{key}\r{key}\n",
        'command="x" {key}\n',
        "@cert-authority * {key}\n",
        "{key} " + "x" * 10000,
        "ssh-ed25519 AAAA\n",
        "\0",
        "",
    ],
)
def test_a_machine_cannot_inject_lines_with_its_host_keys(site, text):
    site.host_keys["ecdsa"] = text.format(key=host_key(site.host_keys["ecdsa"]))
    with pytest.raises(errors.OpPrereqError, match=r"SSH public key: wanted"):
        site.join()
    assert site.ran == []


def test_the_new_daemon_must_answer_with_our_version(site, monkeypatch):
    site.join()
    (target,) = site.at
    assert (target.name, target.address, target.port) == (NEW, "192.0.2.9", 1811)
    site.script["version"] = versions.PROTOCOL_VERSION + 1
    with pytest.raises(errors.OpExecError, match="wanted a node daemon of version"):
        site.join()
    answers = [failure("refused"), failure("refused"), versions.PROTOCOL_VERSION]
    site.script["version"] = lambda *_args: answers.pop(0)
    site.join()
    assert answers == []
    site.script["version"] = failure("refused")
    monkeypatch.setattr(node_add, "ANSWER_TIMEOUT_S", -1.0)
    text = f"new node daemon has not answered .*/node-daemon.log of {NEW}"
    with pytest.raises(errors.OpExecError, match=text):
        site.join()


def test_a_plan_has_the_steps_and_touches_no_machine(site):
    steps = node_add.plan(site.paths, JoinRequest(name=NEW))
    assert len(steps) == 7
    assert f"log in to {NEW} (192.0.2.9, port 22) as root" in steps[0]
    site.master.config[2] = False
    assert len(node_add.plan(site.paths, JoinRequest(name=NEW))) == 3
    assert site.targets == site.ran == []


@pytest.mark.parametrize("check", [True, False])
def test_host_keys_of_unknown_machines_are_checked_unless_the_caller_objects(
    site, monkeypatch, check
):
    opened = []
    monkeypatch.setattr(ssh_client, "Client", lambda *args, **more: opened.append(args))

    def ask(*_words):
        return True

    request = JoinRequest(
        name=NEW, ssh_key_check=check, ask_host_key=ask, ask_password=str
    )
    state = node_add._ask_master(site.master)
    connect = node_add._ssh_connect(site.paths, request, state)
    for host_keys in ((), ("ssh-ed25519 AAAA",)):
        connect(node_add.NewNode(NEW, "192.0.2.9", 22, host_keys))
    (name, port, stranger), (_, _, member) = opened
    assert (name, port) == (NEW, 22)
    assert stranger.check_host_key is check
    assert (stranger.ask_host_key, stranger.ask_password) == (ask, str)
    assert "/etc/ssh/ssh_known_hosts" in stranger.personal_hosts
    # The host keys of the machine are certain: nobody is asked.
    assert member.check_host_key
    assert member.pinned == ("ssh-ed25519 AAAA",)
    assert (member.ask_host_key, member.ask_password) == (None, None)
    assert member.alias == "c1.example.com"


def test_a_missing_bridge_of_guests_is_named(site):
    site.programs["sh"] = (0, "missing\n")
    site.join()
    assert any(f"{NEW} has no bridge br9" in line for line in site.lines)


def test_a_bridge_is_created_before_the_machine_becomes_a_node(site):
    site.programs |= {"sh": (0, "missing\n"), "ip": (0, "")}
    site.join(create_bridge=True)
    ran = [name for name, *_ in site.ran]
    assert ran.index("ip") < ran.index("node-daemon-setup")


@pytest.mark.parametrize(
    "nic",
    [
        {"mode": "routed", "link": "100"},
        {"mode": "bridged", "link": misc.USER_NETWORK},
    ],
)
def test_a_cluster_without_bridges_needs_none(site, nic):
    site.master.nic = nic
    site.join()
    assert "sh" not in [name for name, *_ in site.ran]
    with pytest.raises(errors.OpPrereqError, match="--create-bridge: NICs of this"):
        site.join(create_bridge=True)


# A machine that joins and sends more than its own key.

VICTIM = "00000000-0000-4000-8000-000000000001"


def read_back(text, kind="ed25519"):
    """Return the key that a node shows, as the job that adds it records it."""
    return keys.one_public_key(text, kind, "root@n9")


def test_the_one_key_is_recorded_without_its_comment():
    public = keys.generate("ed25519", comment="root@n1 from='*'").public
    assert read_back(public) == f"ssh-ed25519 {keys.body(public)} root@n9"


@pytest.mark.parametrize("separator", ["\n", "\r", "\n\n", "\x0b", "\x85", "\u2028"])
def test_a_second_line_never_becomes_the_key_of_another_node(separator):
    own, evil = (keys.generate("ed25519").public.strip() for _ in range(2))
    with pytest.raises(errors.OpPrereqError, match="exactly one key"):
        read_back(f"{own}{separator}{VICTIM} {evil}\n")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ssh-ed25519",
        "ssh-ed25519 AAAA",
        "ssh-ed25519 !!!!",
        'command="x" ' + keys.generate("ed25519").public,
        keys.generate("ecdsa").public,
        "ssh-ed25519 " + keys.body(keys.generate("ecdsa").public),
        keys.generate("ed25519").public.strip() + " " + "x" * 10000,
    ],
    ids=["empty", "no-body", "short", "no-base64", "options", "type", "other", "long"],
)
def test_other_texts_are_no_key(text):
    with pytest.raises(errors.OpPrereqError, match="SSH public key"):
        read_back(text)


def test_no_file_of_keys_takes_two_lines_as_one(tmp_path):
    evil = "ssh-rsa AAAA x\nssh-rsa BBBB y"
    with pytest.raises(errors.OpPrereqError, match="one line"):
        authorized_keys.update_node_keys(str(tmp_path / "pub"), "add", {VICTIM: [evil]})
    with pytest.raises(errors.OpPrereqError, match="one line"):
        authorized_keys.add(str(tmp_path / ".ssh" / "authorized_keys"), [evil])
