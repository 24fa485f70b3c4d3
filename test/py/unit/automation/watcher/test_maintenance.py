"""Node maintenance: only an undisputed answer that the node is offline stops guests."""

import logging
import pathlib

import pytest

from ganeti.automation.watcher import node_part
from ganeti.base import errors
from ganeti.base.constants.protocols import confd
from ganeti.node.hypervisor import NodeEffects
from ganeti.node.hypervisor.fake import FakeHypervisor
from ganeti.protocols.confd import Result, wire

IPS = ("192.0.2.11", "192.0.2.12", "192.0.2.13")
OFFLINE = confd.CONFD_NODE_ROLE_OFFLINE


class Candidates:
    """Stands for the confd of the candidates; notes what it was asked."""

    def __init__(self):
        self.asked = []
        self.result = answer(OFFLINE)
        self.accepted = {wire.MAGIC_SHA1}
        self.is_accepted = True

    def __call__(self, key, peers, *, magic, **_options):
        self.is_accepted = magic in self.accepted
        self.asked.append((key, tuple(peers)))
        return self

    def ask(self, kind, query, *, coverage, timeout_s):
        self.asked.append((kind, query, coverage))
        assert timeout_s < 60
        if isinstance(self.result, Exception):
            raise self.result
        if not self.is_accepted:
            return Result(None, (), is_inconsistent=False, is_complete=False)
        return self.result


def answer(value, *, status=confd.CONFD_REPL_STATUS_OK, complete=True, odd=False):
    reply = wire.Reply(1, status, value, 77)
    return Result(reply, IPS[:2], is_inconsistent=odd, is_complete=complete)


@pytest.fixture
def candidates(monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    made = Candidates()
    monkeypatch.setattr(node_part, "ConfdClient", made)
    return made


@pytest.fixture
def guests(node):
    """The driver of a node with two guests, on a cluster that wants maintenance."""
    node.ssconf(
        maintain_node_health="True",
        master_candidates_ips="\n".join(IPS),
        hypervisor_list="fake\nvmware",
    )
    pathlib.Path(node.paths.hmac_key).write_bytes(b"key\n")
    driver = FakeHypervisor(NodeEffects(node.paths, node.runner, node.clock))
    directory = pathlib.Path(driver._dir)
    directory.mkdir(parents=True)
    for name in ("web1", "web2"):
        (directory / name).write_text("0\n128\n1\n")
    return driver


def test_an_offline_node_stops_all_its_guests(node, guests, candidates, caplog):
    assert guests.list_names() == ["web1", "web2"]
    node_part.run_node_maintenance(node.watch())
    assert guests.list_names() == []
    assert candidates.asked == [
        (b"key\n", IPS),
        (confd.CONFD_REQ_NODE_ROLE_BYNAME, node.paths.hostname, -1),
    ]
    assert "instance web1: killing its guest, because this node is offline" in (
        caplog.text
    )
    assert "hypervisor vmware is not offered here" in caplog.text


def test_a_cluster_that_accepts_other_signatures_is_asked_with_those(
    node, guests, candidates
):
    candidates.accepted = {wire.MAGIC_SHA256}
    node_part.run_node_maintenance(node.watch())
    assert guests.list_names() == []


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (answer(OFFLINE, complete=False), "too few master candidates answered"),
        (answer(OFFLINE, odd=True), "different answers"),
        (answer(0, status=confd.CONFD_REPL_STATUS_ERROR), "know no node"),
        (answer("2"), "wanted the number of a role, found '2'"),
        (answer(True), "wanted the number of a role, found True"),
        (answer([2]), "wanted the number of a role"),
        (errors.ConfdClientError("cannot send"), "cannot send"),
    ],
)
def test_in_doubt_nothing_is_stopped(node, guests, candidates, caplog, result, text):
    candidates.result = result
    node_part.run_node_maintenance(node.watch())
    assert guests.list_names() == ["web1", "web2"]
    assert "node maintenance: skipped, the role is unknown" in caplog.text
    assert text in caplog.text


@pytest.mark.parametrize("role", [0, 1, 3, 4])
def test_other_roles_keep_their_guests(node, guests, candidates, role, caplog):
    candidates.result = answer(role)
    node_part.run_node_maintenance(node.watch())
    assert guests.list_names() == ["web1", "web2"]
    assert f"role {role}" in caplog.text


def test_a_cluster_that_does_not_want_it_asks_nobody(node, guests, candidates):
    node.ssconf(maintain_node_health="False")
    node_part.run_node_maintenance(node.watch())
    assert (candidates.asked, len(guests.list_names())) == ([], 2)


def test_a_node_without_the_key_does_nothing_and_says_so(
    node, guests, candidates, caplog
):
    pathlib.Path(node.paths.hmac_key).unlink()
    node_part.run_node_maintenance(node.watch())
    assert len(guests.list_names()) == 2
    assert "the role is unknown" in caplog.text


def test_a_guest_that_cannot_be_stopped_does_not_keep_the_others(
    node, guests, candidates, caplog, monkeypatch
):
    stop = FakeHypervisor.stop

    def stop_some(self, name, **options):
        if name == "web1":
            raise errors.HypervisorError("instance web1: stuck")
        stop(self, name, **options)

    monkeypatch.setattr(FakeHypervisor, "stop", stop_some)
    node_part.run_node_maintenance(node.watch())
    assert guests.list_names() == ["web1"]
    assert "could not be stopped: instance web1: stuck" in caplog.text
