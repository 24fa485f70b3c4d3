"""The bridge of guests on a machine, with a real shell and files of its own."""

import os
import pathlib

import pytest

from ganeti.base import errors
from ganeti.base.process import RunResult, SystemRunner
from ganeti.bootstrap.init import bridge

NODE = "n9.example.com"


class Machine:
    """A machine whose programs ``ip`` and ``systemctl`` are scripts of the test."""

    def __init__(self, folder):
        self.root, self.bin = str(folder / "root"), folder / "bin"
        self.bin.mkdir()
        self.log = folder / "log"
        self.state = "missing"
        self.program("ip", f'echo "$@" >> {self.log}')
        self.program("systemctl", "exit 1")
        self.lines = []

    def program(self, name, text):
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def file(self, path, text):
        path = self.root + path
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as out:
            out.write(text)

    def run(self, argv, *, stdin=None, timeout_s=None):
        if "/sys/class/net" in "".join(argv):
            return RunResult(tuple(argv), 0, None, f"{self.state}\n", "")
        env = {"PATH": f"{self.bin}:{os.environ['PATH']}"}
        return SystemRunner().run(argv, env=env, stdin=stdin, timeout_s=timeout_s)

    def prepare(self, *, wanted):
        bridge.prepare_node(
            *(self, NODE, self.root, "br9"), wanted=wanted, feedback=self.lines.append
        )

    def commands(self):
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_a_bridge_that_exists_is_left_alone(machine):
    machine.state = "bridge"
    machine.prepare(wanted=True)
    assert (machine.lines, machine.commands()) == ([], [])


@pytest.mark.parametrize("state", ["missing", "other"])
def test_a_missing_bridge_is_named_with_its_machine(machine, state):
    machine.state = state
    machine.prepare(wanted=False)
    (line,) = machine.lines
    assert line.startswith(f"Warning: {NODE} has no bridge br9, so instances with")
    assert "--create-bridge" in line
    assert machine.commands() == []


def test_an_interface_of_that_name_is_not_replaced(machine):
    machine.state = "other"
    with pytest.raises(errors.OpPrereqError, match=f"interface of {NODE}, but not a"):
        machine.prepare(wanted=True)
    assert machine.commands() == []


def test_a_bridge_is_created_and_lost_at_a_reboot_if_nothing_manages_networks(machine):
    machine.prepare(wanted=True)
    assert machine.commands() == [
        "link add name br9 type bridge",
        "link set dev br9 up",
    ]
    assert machine.lines[0] == f"Creating the bridge br9 on {NODE}, without ports"
    assert "br9 is gone after a reboot" in machine.lines[1]


@pytest.mark.parametrize(
    ("line", "is_read"),
    [
        ("source /etc/network/interfaces.d/*", True),
        ("  source-directory /etc/network/interfaces.d  ", True),
        ("# source /etc/network/interfaces.d/*", False),
        ("source /etc/network/other.d/*", False),
    ],
)
def test_ifupdown_gets_a_file_if_it_reads_the_directory(machine, line, is_read):
    machine.file("/etc/network/interfaces", f"auto lo\n{line}\n")
    machine.file("/etc/network/interfaces.d/README", "")
    machine.prepare(wanted=True)
    path = f"{machine.root}/etc/network/interfaces.d/ganeti-br9"
    assert os.path.exists(path) is is_read
    assert len(machine.lines) == (1 if is_read else 2)
    if is_read:
        text = pathlib.Path(path).read_text()
        assert "auto br9\niface br9 inet manual\n" in text
        assert os.stat(path).st_mode & 0o777 == 0o644


def test_networkd_gets_two_files(machine):
    machine.program("systemctl", "exit 0")
    machine.file("/etc/systemd/network/README", "")
    machine.prepare(wanted=True)
    folder = f"{machine.root}/etc/systemd/network"
    device, network = (
        pathlib.Path(f"{folder}/60-ganeti-br9.{kind}").read_text()
        for kind in ("netdev", "network")
    )
    assert "Kind=bridge" in device
    assert "[Match]\nName=br9" in network
    assert len(machine.lines) == 1


def test_a_file_that_cannot_be_written_is_named(machine):
    machine.program("systemctl", "exit 0")
    with pytest.raises(errors.OpExecError, match=r"br9: .*60-ganeti-br9.netdev cannot"):
        machine.prepare(wanted=True)


def test_a_kernel_without_bridges_is_named(machine):
    machine.program("ip", "echo RTNETLINK answers: Operation not supported; exit 2")
    with pytest.raises(errors.OpExecError, match="br9: cannot be created: RTNETLINK"):
        machine.prepare(wanted=True)


def test_a_bridge_is_removed_again(machine):
    bridge.remove(machine, "br9")
    assert machine.commands() == ["link del dev br9"]
