"""Checks of packet filters, units and cron: by a real shell and from Python."""

import contextlib
import socket
import subprocess

import pytest

from fakes import ports
from fakes.processes import FakeRunner
from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.base.process import RunResult, SystemRunner
from ganeti.bootstrap import machine_checks
from ganeti.bootstrap.machine_checks import Machine, Ports

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
    return machine_checks.port_warnings(runner, NODE, MASTER, wanted, connect_s=0.3)


def test_open_and_refused_ports_need_no_warning():
    unused = ports.free()
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
    unused = ports.free()
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
    lines = machine_checks.port_warnings(
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
    ports = machine_checks.of_nodes(2222, {8102})
    [line] = machine_checks.filter_notes(Printing(CHAINS), ports)
    assert "nftables: inet filter, chain input" in line
    assert "TCP { 1811, 2222, 8102 } and UDP 1814" in line
    accepting = CHAINS.replace("policy drop", "policy accept")
    assert machine_checks.filter_notes(Printing(accepting), ports) == []


def test_migration_ports_are_those_of_enabled_hypervisors():
    given = {"kvm": {"migration_port": 8200}, "xen-hvm": {"migration_port": 8300}}
    assert machine_checks.migration_ports(["kvm", "lxc", "fake"], given) == [8200]
    assert machine_checks.migration_ports(["xen-pvm", "xen-hvm"], {}) == [8002]


def test_a_machine_without_nftables_needs_no_note():
    ports = machine_checks.of_nodes(22, {8102})
    assert (
        machine_checks.filter_notes(Broken(errors.CommandError("no nft")), ports) == []
    )


def test_a_filter_that_could_not_be_read_is_noted():
    runner = FakeRunner(nft=(1, "", "Operation not permitted"))
    [line] = machine_checks.filter_notes(runner, machine_checks.of_nodes(22, {8102}))
    assert line.startswith("Note: it was not checked whether the packet filter")
    assert "'nft list chains' exited with code 1" in line


def test_a_broken_connection_ends_the_check():
    with pytest.raises(errors.SshError):
        check({1: "SSH"}, Broken(errors.SshError("gone")))


# The check of units and cron: by a real shell, with a stand-in for systemctl.

REAL = Paths(hostname="node1.example.com")
UNITS = (
    "ganeti.target",
    "ganeti.service",
    "ganeti-noded.service",
    "ganeti-confd.service",
    "ganeti-mond.service",
    "ganeti-master.target",
    "ganeti-masterd.service",
    "ganeti-rapi.service",
)
CRON, LOGROTATE = "/etc/cron.d/ganeti", "/etc/logrotate.d/ganeti"
END = "end of the check"


def answers(missing="", code=0, end=END, **states):
    default = states.pop("default", "enabled")
    by_name = {
        name.replace("__", ".").replace("_", "-"): s for name, s in states.items()
    }
    lines = "".join(f"{unit} {by_name.get(unit, default)}\n" for unit in UNITS)
    lost = f"{missing} missing\n" if missing else ""
    return FakeRunner(sh=(code, f"{lost}{lines}{end}\n", ""))


def test_enabled_units_and_present_files_need_no_warning():
    assert machine_checks.boot_warnings(REAL, answers()) == []


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        ("disabled", "disabled"),
        ("masked", "masked"),
        ("", "not installed"),
        ("not-found", "not installed"),
        ("\x1b[31mred", "not installed"),
    ],
)
def test_units_that_do_not_start_are_named(state, shown):
    (line,) = machine_checks.boot_warnings(REAL, answers(ganeti_noded__service=state))
    assert f": ganeti-noded.service is {shown}; run there: systemctl" in line
    assert "on this machine" in line


@pytest.mark.parametrize("unit", UNITS)
def test_every_unit_counts(unit):
    state = {unit.replace(".", "__").replace("-", "_"): "disabled"}
    (line,) = machine_checks.boot_warnings(REAL, answers(**state))
    assert f": {unit} is disabled; run there" in line


@pytest.mark.parametrize(
    ("path", "effect", "example"),
    [
        (CRON, "cron does not restart daemons", "ganeti.cron"),
        (LOGROTATE, "logrotate does not rotate the logs", "ganeti.logrotate"),
    ],
)
def test_a_missing_file_is_named_with_the_machine(path, effect, example):
    runner = answers(missing=path)
    (line,) = machine_checks.boot_warnings(REAL, runner, host="node2.example.com")
    assert effect in line
    assert f"on node2.example.com: {path} is missing; copy" in line
    assert line.endswith(f"/examples/{example} there")


def test_output_of_something_else_is_ignored():
    lines = f"evil.service enabled\nnonsense\n\n/etc/passwd missing\n{END}\n"
    assert machine_checks.boot_warnings(REAL, FakeRunner(sh=(0, lines, ""))) == []


class NoShell:
    """A machine on which no program starts."""

    def run(self, argv, **_options):
        raise errors.CommandError(f"{argv[0]}: not found")


@pytest.mark.parametrize(
    ("shell", "reason"),
    [
        (NoShell(), "sh: not found"),
        (answers(code=1), "the check exited with code 1"),
        (answers(end=""), "the check printed no end"),
    ],
)
def test_a_check_that_could_not_look_is_reported(shell, reason):
    (line,) = machine_checks.boot_warnings(REAL, shell, host="node2.example.com")
    assert line.startswith("Warning: it was not checked whether daemons start on node2")
    assert f"{CRON} and {LOGROTATE}: {reason};" in line


def test_virtual_nodes_are_not_checked(tmp_path):
    runner = answers(missing=CRON)
    paths = Paths(root=str(tmp_path / "n1"), hostname="n1")
    assert machine_checks.boot_warnings(paths, runner) == []
    assert runner.commands == []


SYSTEMCTL = '[ "$1" = is-enabled ] && echo disabled; exit 1'


@pytest.mark.parametrize(
    ("running", "systemctl", "present", "code", "expected"),
    [
        (True, SYSTEMCTL, True, 0, {f"{u} disabled" for u in UNITS} | {END}),
        (False, SYSTEMCTL, True, 0, {END}),
        (False, "", False, 0, {"CRON missing", "LOGROTATE missing", END}),
        (True, "", True, 1, set()),
    ],
)
def test_the_script_looks_at_units_and_files(
    tmp_path, running, systemctl, present, code, expected
):
    for name in ("CRON", "LOGROTATE") if present else ():
        (tmp_path / name).touch()
    programs = tmp_path / "bin"
    programs.mkdir()
    if systemctl:
        (programs / "systemctl").write_text(f"#!/bin/sh\n{systemctl}\n")
        (programs / "systemctl").chmod(0o755)
    if running:
        (tmp_path / "running").mkdir()
    script = machine_checks._BOOT_SCRIPT.replace(
        "/run/systemd/system", str(tmp_path / "running")
    )
    script = script.replace(CRON, "CRON").replace(LOGROTATE, "LOGROTATE")
    done = subprocess.run(
        ["/bin/sh", "-c", script],
        env={"PATH": str(programs)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, set(done.stdout.splitlines())) == (code, expected)
