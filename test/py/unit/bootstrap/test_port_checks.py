"""The check of packet filters: real connections, by a real shell and from Python."""

import contextlib
import socket

import pytest

from fakes.processes import FakeRunner
from ganeti.base import errors
from ganeti.base.process import RunResult, SystemRunner
from ganeti.bootstrap import port_checks
from ganeti.bootstrap.port_checks import Machine, Ports

HERE = "127.0.0.1"
NODE, MASTER = Machine("node2", HERE), Machine("node1", HERE)


@contextlib.contextmanager
def listener(backlog=8):
    with socket.create_server((HERE, 0), backlog=backlog) as server:
        yield server.getsockname()[1]


@contextlib.contextmanager
def silent_port():
    """A port that drops connections: the queue of its listener is full."""
    with listener(0) as port, contextlib.ExitStack() as stack:
        for _ in range(2):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex((HERE, port))
        yield port


def check(ports, shell=None, listening=()):
    runner = shell or SystemRunner()
    wanted = Ports(ports, {}, listening)
    return port_checks.warnings(runner, NODE, MASTER, wanted, connect_s=0.3)


def test_open_and_refused_ports_need_no_warning():
    with socket.create_server((HERE, 0)) as server:
        unused = server.getsockname()[1]
    with listener() as port:
        assert check({port: "node daemon", unused: "live migration"}) == []


def test_silent_ports_are_named_with_both_machines_and_their_purpose():
    with listener() as fine, silent_port() as dropped:
        first, second = check({fine: "SSH", dropped: "node daemon"})
    assert first.startswith("Warning: node2 gets no answer from node1 on TCP port ")
    assert second.startswith("Warning: node1 gets no answer from node2 on TCP port ")
    for text in (first, second):
        assert f"port {dropped} (node daemon). A packet filter" in text
        assert f"inet filter input ip saddr {HERE} tcp dport {dropped} accept" in text
        assert str(fine) not in text


class Broken:
    """A machine without a shell."""

    def __init__(self, error):
        self.error = error

    def run(self, _argv, *, timeout_s=None):
        assert timeout_s
        raise self.error


def test_a_node_that_cannot_run_the_check_is_named():
    with listener() as port:
        [line] = check({port: "SSH"}, Broken(errors.CommandError("no shell")))
    assert line.startswith("Warning: it was not checked whether node2 reaches node1")


def test_a_refusal_where_the_master_listens_comes_from_a_filter():
    with socket.create_server((HERE, 0)) as server:
        unused = server.getsockname()[1]
    [line] = check({unused: "node daemon"}, listening={unused})
    assert line.startswith(f"Warning: node2 is refused by node1 on TCP port {unused}")


class Printing:
    """A machine whose shell prints a text."""

    def __init__(self, text):
        self.text = text

    def run(self, argv, *, timeout_s=None):
        assert timeout_s
        return RunResult(tuple(argv), 0, None, self.text, "")


def test_an_answer_that_lacks_a_port_is_none():
    with listener() as port:
        [line] = check({port: "SSH"}, Printing("1 open\n2 filtered\n"))
    assert "it was not checked" in line


def test_both_families_get_a_rule_for_all_their_ports():
    node = Machine("node2", "::1")
    ports = Ports({1: "node daemon", 2: "SSH"}, {})
    lines = port_checks.warnings(
        Printing("1 rejected\n2 rejected\n"), node, MASTER, ports, connect_s=0.3
    )
    assert "is rejected by node1 on TCP port 1 (node daemon), 2 (SSH)." in lines[0]
    assert "input ip6 saddr ::1 tcp dport { 1, 2 } accept" in lines[0]


CHAINS = """\
table inet filter {
	chain input {
		type filter hook input priority filter; policy drop;
	}
	chain forward {
		type filter hook forward priority filter; policy drop;
	}
}
table ip nat {
	chain post {
		type nat hook postrouting priority srcnat; policy accept;
	}
}
"""


def test_a_filter_of_this_machine_that_drops_is_noted():
    ports = port_checks.of_nodes(2222)
    [line] = port_checks.notes(Printing(CHAINS), ports)
    assert "nftables: inet filter, chain input" in line
    assert "TCP { 1811, 2222, 8102 } and UDP 1814" in line
    accepting = CHAINS.replace("policy drop", "policy accept")
    assert port_checks.notes(Printing(accepting), ports) == []


def test_a_machine_without_nftables_needs_no_note():
    ports = port_checks.of_nodes(22)
    assert port_checks.notes(Broken(errors.CommandError("no nft")), ports) == []


def test_a_filter_that_could_not_be_read_is_noted():
    runner = FakeRunner(nft=(1, "", "Operation not permitted"))
    [line] = port_checks.notes(runner, port_checks.of_nodes(22))
    assert line.startswith("Note: it was not checked whether the packet filter")
    assert "'nft list chains' exited with code 1" in line


def test_a_broken_connection_ends_the_check():
    with pytest.raises(errors.SshError):
        check({1: "SSH"}, Broken(errors.SshError("gone")))
