"""master-ip-setup and ensure-dirs."""

import os
import socket
import stat
import struct
import sys
import time

import pytest

from fakes.processes import FakeRunner
from ganeti.base import errors, process
from ganeti.base.net import netutils
from ganeti.base.pathutils import Paths
from ganeti.tools import ensure_dirs, master_ip_setup

ENV = {
    "MASTER_NETDEV": "br0",
    "MASTER_IP": "192.0.2.10",
    "MASTER_NETMASK": "24",
    "CLUSTER_IP_VERSION": "4",
}


@pytest.fixture
def kernel(monkeypatch):
    """Record changes of addresses instead of making them."""
    done = []
    monkeypatch.setattr(
        netutils, "add_address", lambda *a, **k: done.append(("add", *a))
    )
    monkeypatch.setattr(netutils, "remove_address", lambda *a: done.append(("del", *a)))
    monkeypatch.setattr(master_ip_setup, "announce", lambda _a: done.append("announce"))
    monkeypatch.setattr(netutils, "own_addresses", lambda: [("eth9", "192.0.2.77", 24)])
    return done


def address(**changes):
    return master_ip_setup.read_environment({**ENV, **changes})


def test_a_free_address_is_taken_and_announced(kernel):
    master_ip_setup.start(address(), FakeRunner(fping=(1, "", "")))
    assert kernel == [("add", "br0", "192.0.2.10", 24), "announce"]


def test_an_address_in_use_is_left_alone(kernel):
    with pytest.raises(errors.OpExecError, match="another machine"):
        master_ip_setup.start(address(), FakeRunner(fping=(0, "", "")))
    assert kernel == []


def test_states_that_are_reached_already_are_fine(kernel):
    master_ip_setup.start(address(MASTER_IP="192.0.2.77"), FakeRunner())
    master_ip_setup.stop(address())
    for change in (
        lambda a: master_ip_setup.start(a, FakeRunner()),
        master_ip_setup.stop,
    ):
        change(address(MASTER_IP="127.0.0.42"))
    assert kernel == []


def test_an_address_elsewhere_is_not_taken_away(kernel):
    with pytest.raises(errors.OpExecError, match="eth9"):
        master_ip_setup.stop(address(MASTER_IP="192.0.2.77"))
    here = address(MASTER_IP="192.0.2.77", MASTER_NETDEV="eth9")
    master_ip_setup.stop(here)
    assert kernel == [("del", "eth9", "192.0.2.77", 24)]


@pytest.mark.parametrize(
    "changes",
    [{"MASTER_NETMASK": "x"}, {"CLUSTER_IP_VERSION": "6"}, {"CLUSTER_IP_VERSION": "5"}],
)
def test_wrong_variables_are_refused(changes):
    with pytest.raises(errors.ParameterError):
        address(**changes)
    with pytest.raises(errors.ParameterError, match="MASTER_IP"):
        master_ip_setup.read_environment({"MASTER_NETDEV": "x"})


def test_the_announcement_is_a_gratuitous_arp_reply():
    frame = master_ip_setup.gratuitous_arp(b"\x02\x00\x00\x00\x00\x01", "192.0.2.10")
    assert len(frame) == 42
    assert frame[:6] == b"\xff" * 6
    kind, operation = struct.unpack("!H", frame[12:14])[0], frame[20:22]
    assert (kind, operation) == (0x0806, b"\x00\x02")
    assert frame[28:32] == frame[38:42] == bytes([192, 0, 2, 10])


class FakeLink:
    """A packet socket of one device that refuses what it does not expect."""

    def __init__(self, *, problem=None):
        self.sent = []
        self.problem = problem
        self.is_bound = self.is_closed = False

    def __call__(self, family, kind):
        assert (family, kind) == (socket.AF_PACKET, socket.SOCK_RAW)
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_exc):
        self.is_closed = True

    def bind(self, place):
        if self.problem:
            raise self.problem
        assert place == ("br0", 0)
        self.is_bound = True

    def getsockname(self):
        assert self.is_bound
        return ("br0", 0, 0, 1, b"\x02\x00\x00\x00\x00\x01")

    def send(self, frame):
        assert not self.is_closed
        self.sent.append(frame)


@pytest.fixture
def link_of(monkeypatch):
    """Return a function that puts a link in the place of packet sockets."""
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)

    def use(link):
        monkeypatch.setattr(socket, "socket", link)
        return link

    return use


def test_an_ipv4_address_is_announced_three_times_on_its_device(link_of):
    link = link_of(FakeLink())
    master_ip_setup.announce(address())
    frame = master_ip_setup.gratuitous_arp(b"\x02\x00\x00\x00\x00\x01", "192.0.2.10")
    assert link.sent == [frame] * 3
    assert link.is_closed


def test_an_ipv6_address_is_announced_by_the_kernel_alone(link_of):
    link = link_of(FakeLink())
    master_ip_setup.announce(address(MASTER_IP="2001:db8::1", CLUSTER_IP_VERSION="6"))
    assert not link.is_bound
    assert link.sent == []


def test_an_address_that_cannot_be_announced_is_kept(link_of, caplog):
    link = link_of(FakeLink(problem=OSError("no such device")))
    master_ip_setup.announce(address())
    assert "cannot announce 192.0.2.10: no such device" in caplog.text
    assert link.sent == []


def test_an_address_is_taken_when_nobody_can_be_asked_for_it(kernel, caplog):
    class NoProgram:
        def run(self, argv, *, timeout_s):
            assert argv[0] == "fping"
            assert argv[-1] == "192.0.2.10"
            assert timeout_s > 0
            raise errors.CommandError("fping: not installed")

    master_ip_setup.start(address(), NoProgram())
    assert kernel == [("add", "br0", "192.0.2.10", 24), "announce"]
    assert "fping: not installed" in caplog.text


def run_main(monkeypatch, *arguments, **environ):
    monkeypatch.setattr(sys, "argv", ["/x/master-ip-setup", *arguments])
    for name, value in {**ENV, **environ}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", "/tmp/of-a-stranger")
    return master_ip_setup.main()


@pytest.mark.parametrize("arguments", [(), ("restart",), ("start", "stop")])
def test_the_program_shows_its_usage(kernel, monkeypatch, capsys, arguments):
    assert run_main(monkeypatch, *arguments) == 1
    assert capsys.readouterr().err == "Usage: master-ip-setup start|stop\n"
    assert kernel == []


def test_the_program_takes_the_address_away(kernel, monkeypatch):
    own = {"MASTER_IP": "192.0.2.77", "MASTER_NETDEV": "eth9"}
    assert run_main(monkeypatch, "stop", **own) == 0
    assert kernel == [("del", "eth9", "192.0.2.77", 24)]
    assert os.environ["PATH"] == process.SAFE_PATH


def test_the_program_names_the_failed_step(kernel, monkeypatch, capsys):
    assert run_main(monkeypatch, "stop", MASTER_IP="192.0.2.77") == 1
    shown = capsys.readouterr().err
    assert shown.startswith("stop: 192.0.2.77: wanted on device br0, found on eth9")
    assert run_main(monkeypatch, "start", CLUSTER_IP_VERSION="6") == 1
    assert capsys.readouterr().err.startswith("start: 192.0.2.10 is not an address")
    assert kernel == []


def test_directories_and_modes_are_put_right(tmp_path):
    paths = Paths(root=str(tmp_path / "n1"), hostname="n1")
    ensure_dirs.run(paths)
    with open(paths.server_pem, "w") as stream:
        stream.write("x")
    os.chmod(paths.server_pem, 0o666)
    os.chmod(paths.socket_dir, 0o777)
    ensure_dirs.run(paths)
    assert stat.S_IMODE(os.stat(paths.server_pem).st_mode) == 0o440
    assert stat.S_IMODE(os.stat(paths.socket_dir).st_mode) == 0o770
    assert stat.S_IMODE(os.stat(f"{paths.run_dir}/crypto").st_mode) == 0o700


def test_the_group_of_the_state_directory_reads_what_confd_reads(tmp_path):
    if os.getuid() != 0:
        pytest.skip("changing owners needs root")
    paths = Paths(root=str(tmp_path / "n1"), hostname="n1")
    ensure_dirs.run(paths)
    os.chown(paths.data_dir, 0, 65534)
    for path in (paths.store_db, paths.hmac_key, paths.server_pem):
        with open(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600), "w"):
            pass
    ensure_dirs.run(paths)

    def rights(path):
        info = os.stat(path)
        return stat.S_IMODE(info.st_mode), info.st_gid

    assert rights(paths.store_db) == (0o640, 65534)
    assert rights(paths.hmac_key) == (0o440, 65534)
    assert rights(paths.server_pem) == (0o440, 0)


def test_links_in_the_place_of_files_are_not_followed(tmp_path):
    paths = Paths(root=str(tmp_path / "n1"), hostname="n1")
    ensure_dirs.run(paths)
    target = tmp_path / "target"
    target.write_text("")
    target.chmod(0o600)
    os.symlink(target, paths.server_pem)
    with pytest.raises(OSError, match="server"):
        ensure_dirs.run(paths)
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
