"""Names and addresses."""

import os
import socket

import pytest

from ganeti import errors
from ganeti.pathutils import Paths
from ganeti.utils import netutils


@pytest.fixture
def listening():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock.getsockname()[1]


def test_a_virtual_nodes_hosts_file_comes_first(tmp_path):
    paths = Paths(root=str(tmp_path), hostname="n1.tst")
    os.makedirs(tmp_path / "etc")
    (tmp_path / "etc/hosts").write_text("# all\n127.9.9.9 other n2.tst # two\n")
    assert netutils.lookup("n2.tst", paths) == "127.9.9.9"
    assert netutils.lookup("192.0.2.7", paths) == "192.0.2.7"
    with pytest.raises(errors.ResolverError) as caught:
        netutils.lookup("no-such-name.invalid", paths)
    assert caught.value.args[0] == "no-such-name.invalid"
    for wrong in ("bogus..", "x" * 70 + ".tst"):
        with pytest.raises(errors.ResolverError):
            netutils.lookup(wrong, paths)


def test_ping_needs_somebody_who_listens(listening):
    assert netutils.tcp_ping("127.0.0.1", listening, live_port_needed=True)


def test_a_refusal_is_an_answer_unless_a_service_is_wanted(listening):
    unused = "127.0.0.2"
    assert netutils.tcp_ping(unused, listening, timeout_s=1)
    assert not netutils.tcp_ping(unused, listening, timeout_s=1, live_port_needed=True)


def test_whose_address_it_is():
    assert netutils.owns_address("127.44.0.1")
    assert not netutils.owns_address("192.0.2.123")
    with pytest.raises(errors.GenericError, match="no-such-device"):
        netutils.interface_address("no-such-device")
    assert netutils.interface_address("lo") == "127.0.0.1"


def test_families():
    assert netutils.family("::1") == socket.AF_INET6
    with pytest.raises(errors.IPAddressError, match="example"):
        netutils.family("example")
