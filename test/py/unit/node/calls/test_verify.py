"""Checks of node_verify."""

import os
import socket
import threading

import pytest

from fakes import nodes
from ganeti.base import errors, pathutils
from ganeti.base.constants import versions
from ganeti.base.tls import x509
from ganeti.node.calls import verify

V = pathutils.VIRTUAL_PREFIX


@pytest.fixture
def node(tmp_path):
    made = nodes.make_node(tmp_path)
    os.makedirs(made.paths.data_dir)
    return made


def check(node, **asked):
    wanted = {key.replace("_", "-"): value for key, value in asked.items()}
    answer = nodes.call(node, "node_verify", wanted, "c1", {})
    return answer if len(wanted) != 1 else answer.get(next(iter(wanted)), "left out")


def test_files_are_compared_by_checksum(node):
    with open(node.paths.data("hmac.key"), "w") as stream:
        stream.write("abc")
    present, missing = f"{V}/var/lib/ganeti/hmac.key", f"{V}/var/lib/ganeti/rapi.pem"
    assert check(node, filelist=[present, missing]) == {
        present: "a9993e364706816aba3e25717850c26c9cd0d89d"
    }


def test_the_client_certificate(node):
    assert check(node, client_cert=None)[0] == "ERROR"
    x509.write_cluster_certificate(node.paths.server_pem)
    x509.write_cluster_certificate(node.paths.client_pem)
    level, text = check(node, client_cert=None)
    assert level == "ERROR"
    assert "self-signed" in text
    digest = x509.write_client_certificate(
        node.paths.client_pem, server_pem=node.paths.server_pem, name="n", serial=2
    )
    assert check(node, client_cert=None) == (None, digest)


def test_checks_that_wait_for_other_nodes_run_beside_the_others(node, monkeypatch):
    others_run = threading.Event()

    def logins(_node, _asked):
        assert others_run.wait(60)
        return {}

    monkeypatch.setitem(verify.CHECKS, "nodelist", logins)
    monkeypatch.setitem(verify.CHECKS, "time", lambda *_: others_run.set())
    assert check(node, nodelist={}, time=None) == {"nodelist": {}, "time": None}


def test_a_check_of_other_nodes_that_fails_is_left_out(node, monkeypatch):
    def logins(_node, _asked):
        raise errors.SshError("no key")

    monkeypatch.setitem(verify.CHECKS, "nodelist", logins)
    assert list(check(node, nodelist={}, version=None)) == ["version"]


@pytest.mark.parametrize(("days", "level"), [(20, "WARNING"), (3, "ERROR")])
def test_a_certificate_about_to_end(node, days, level):
    server = x509.create_self_signed()
    pair = x509.create_signed(server, "n", serial=2, validity_s=days * 86400)
    with open(node.paths.client_pem, "wb") as stream:
        stream.write(pair.pem)
    assert check(node, client_cert=None)[0] == level


def test_unreachable_peers_are_named(node, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        monkeypatch.setattr(verify, "node_port", lambda: port)
        peers = [
            [node.paths.hostname, "127.0.0.1", "127.0.0.1"],
            ["n2", "127.0.0.1", "127.0.0.5"],
            ["n3", "127.0.0.6", "127.0.0.6"],
        ]
        actual = check(node, node_net_test=peers)
        assert "secondary" in actual.pop("n2")
        assert "primary" in actual.pop("n3")
        assert actual == {}
        assert check(node, master_ip=["n2", "127.0.0.1"]) is True
    assert "not in the list" in check(node, node_net_test=[])[node.paths.hostname]


def test_programs(node, tmp_path):
    good, plain = tmp_path / "good", tmp_path / "plain"
    for path, mode in ((good, 0o755), (plain, 0o644)):
        path.write_text("")
        path.chmod(mode)
    good_text, plain_text, gone = check(
        node, oob_paths=[str(good), str(plain), str(tmp_path / "gone")]
    )
    assert good_text is None
    assert "not executable" in plain_text
    assert "does not exist" in gone
    script = f"{V}/etc/ganeti/scripts/x"
    assert check(node, user_scripts=[script]) == [script]


def test_hypervisors(node):
    assert check(node, hypervisor=["fake", "vax"])["fake"] is None
    assert "vax" in check(node, hypervisor=["fake", "vax"])["vax"]
    ((origin, name, text),) = check(node, hvparms=[["cluster", "fake", {"bad": 1}]])
    assert (origin, name) == ("cluster", "fake")
    assert "bad" in text
    assert check(node, instancelist=["fake"]) == []
    assert check(node, hvinfo="fake")["cpu_total"] >= 1


def test_facts(node):
    actual = check(node, version=None, time=None, nodesetup=None, bridges=["none0"])
    assert actual["version"] == (versions.PROTOCOL_VERSION, versions.RELEASE_VERSION)
    assert abs(actual["time"][0] - node.clock.time()) < 60
    assert actual["bridges"] == ["none0"]


def test_compression_tools_that_transfers_cannot_run(node):
    tools = ["gzip", "gzip-fast", "gzip-slow", "lzop-of-nobody"]
    assert check(node, compression_tools=tools) == ["lzop-of-nobody"]


def test_storage_paths(node):
    assert check(node, file_storage_path=nodes.STORAGE_DIR) is None
    assert "/elsewhere" in check(node, shared_file_storage_path="/elsewhere")
    assert check(node, allowed_file_storage_paths=True) == []


def test_nodes_without_instances_skip_those_checks(node):
    asked = {
        "nonvmnodes": [node.paths.hostname],
        "hypervisor": ["fake"],
        "version": None,
    }
    assert list(nodes.call(node, "node_verify_light", asked, "c1", {})) == ["version"]


def test_unknown_and_failing_checks_are_left_out(node):
    assert check(node, drbd_version=None, hvinfo="vax") == {}
