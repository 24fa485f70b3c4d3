"""command and copyfile: which nodes are asked how, and what is printed about each."""

import pytest

from fakes import commands
from fakes.luxi_master import FakeMaster
from ganeti.base import errors
from ganeti.base.process import RunResult
from ganeti.protocols.ssh import client


class Shells:
    """SSH connections in memory, by node.

    Attributes:
        results: node -> Result of its command, or the error of the connection.
        opened: (node, port, address, environment) of each connection.
        ran: (node, words) of each command.
        files: (node, path, content, mode) of each file that was sent.
    """

    def __init__(self):
        self.results, self.opened, self.ran, self.files = {}, [], [], []

    def __call__(self, node, port, identity, *, address, environment):
        assert identity.host_keys_for == "c.tst"
        self.opened.append((node, port, address, environment))
        actual = self.results.get(node)
        if isinstance(actual, errors.GenericError):
            raise actual
        return Shell(self, node, actual)


class Shell:
    def __init__(self, owner, node, result):
        self._owner, self._node, self._result = owner, node, result

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        pass

    def run(self, words):
        self._owner.ran.append((self._node, words))
        return self._result

    def put_file(self, path, data, *, mode):
        self._owner.files.append((self._node, path, data, mode))


class Identity:
    def __init__(self, _paths, cluster):
        self.host_keys_for = cluster


@pytest.fixture
def shells(monkeypatch):
    made = Shells()
    monkeypatch.setattr(client, "Client", made)
    monkeypatch.setattr(client, "cluster_identity", Identity)
    return made


def node(name, number, *, port=None, offline=False, group="default"):
    return {
        "name": name,
        "offline": offline,
        "group": group,
        "group.uuid": f"uuid of {group}",
        "pip": f"192.0.2.{number}",
        "sip": f"198.51.100.{number}",
        "ndp/ssh_port": port,
    }


@pytest.fixture
def master():
    fake = FakeMaster()
    fake.values = {"cluster_name": "c.tst", "master_node": "n1.tst"}
    fake.objects["node"] = [
        node("n1.tst", 1),
        node("n2.tst", 2, port=2022),
        node("n3.tst", 3, offline=True),
        node("n4.tst", 4, group="other"),
    ]
    return fake


def result(code=0, stdout="", stderr="", signal=None):
    return RunResult((), code, signal, stdout, stderr)


RULER = "-" * 48


def test_a_command_runs_on_the_nodes_that_are_online_and_on_the_master_last(
    shells, master
):
    for name in ("n1.tst", "n2.tst", "n4.tst"):
        shells.results[name] = result(stdout=f"{name} is up\n")
    done = commands.run(["gnt-cluster", "command", "uptime", "-p"], master)
    assert done.code == 0
    words = ["sh", "-c", "uptime -p"]
    assert shells.ran == [("n2.tst", words), ("n4.tst", words), ("n1.tst", words)]
    assert shells.opened == [
        ("n2.tst", 2022, "192.0.2.2", {}),
        ("n4.tst", 22, "192.0.2.4", {}),
        ("n1.tst", 22, "192.0.2.1", {}),
    ]
    parts = [
        f"{RULER}\nnode: {name}\n{name} is up\n\nreturn code = 0\n"
        for name in ("n2.tst", "n4.tst", "n1.tst")
    ]
    assert done.out == "".join(parts)
    assert done.err == "Note: skipping offline node(s): n3.tst\n"


def test_only_failures_are_printed_if_wanted(shells, master):
    shells.results["n1.tst"] = result()
    shells.results["n2.tst"] = result(3, "out\n", "problem\n")
    line = "gnt-cluster command --failure-only -n n1 -n n2 false"
    done = commands.run(line, master)
    assert done.code == 0
    expected = f"{RULER}\nnode: n2.tst\nout\nproblem\n\nreturn code = 3\n"
    assert done.out == expected


def test_each_line_has_the_name_of_its_node_if_wanted(shells, master):
    shells.results["n2.tst"] = result(None, "one\ntwo\n", signal=9)
    done = commands.run("gnt-cluster command -M -n n2 ls", master)
    assert done.out == f"{RULER}\nn2.tst: one\nn2.tst: two\nreturn code = signal 9\n"


def test_a_node_that_cannot_be_reached_has_the_exit_code_of_ssh(shells, master):
    shells.results["n4.tst"] = errors.SshError("n4.tst: no route to host")
    done = commands.run("gnt-cluster command -g other ls", master)
    assert done.code == 0
    assert [row[0] for row in shells.opened] == ["n4.tst"]
    expected = f"{RULER}\nnode: n4.tst\nn4.tst: no route to host\n\nreturn code = 255\n"
    assert done.out == expected


def test_a_group_without_such_nodes_is_an_error(shells, master):
    done = commands.run("gnt-cluster command -g none ls", master)
    assert done.code == 1
    assert "none of these nodes is in group 'none'" in done.err
    assert shells.opened == []


def test_a_file_goes_to_all_nodes_but_the_master(shells, master, tmp_path):
    path = tmp_path / "motd"
    path.write_bytes(b"\xffhello")
    path.chmod(0o4640)
    done = commands.run(["gnt-cluster", "copyfile", str(path)], master)
    assert (done.code, done.out) == (0, "")
    assert shells.opened == [
        ("n2.tst", 2022, "192.0.2.2", {}),
        ("n4.tst", 22, "192.0.2.4", {}),
    ]
    assert shells.files == [
        (name, str(path), b"\xffhello", 0o640) for name in ("n2.tst", "n4.tst")
    ]


def test_a_file_goes_over_the_replication_network_if_wanted(shells, master, tmp_path):
    (tmp_path / "f").write_bytes(b"x")
    words = ["gnt-cluster", "copyfile", "--use-replication-network", "-n", "n2"]
    done = commands.run([*words, str(tmp_path / "f")], master)
    assert done.code == 0
    assert shells.opened == [("n2.tst", 2022, "198.51.100.2", {})]


def test_a_copy_that_fails_does_not_prevent_the_others(shells, master, tmp_path):
    path = tmp_path / "a file"
    path.write_bytes(b"x")
    refused = errors.SshError("connection refused")
    shells.results = {"n2.tst": refused, "n4.tst": refused}
    done = commands.run(["gnt-cluster", "copyfile", str(path)], master)
    assert done.code == 0
    assert done.err == (
        "Note: skipping offline node(s): n3.tst\n"
        f"Copy of file '{path}' to node n2.tst:2022 failed\n  connection refused\n"
        f"Copy of file '{path}' to node n4.tst:22 failed\n  connection refused\n"
    )


def test_a_missing_file_is_an_error_before_any_node_is_asked(shells, master, tmp_path):
    path = tmp_path / "none"
    done = commands.run(["gnt-cluster", "copyfile", str(path)], master)
    assert done.code == 1
    assert f"cannot read {path}: No such file or directory" in done.err
    assert master.calls == []
