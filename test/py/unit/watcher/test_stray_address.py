"""The address of the cluster on a node that is not the master."""

import logging

import pytest

from ganeti.watcher import stray_address

ADDRESS = "192.0.2.10"


@pytest.fixture
def dropped(node, monkeypatch):
    """Another master; this machine has the address. Returns the removed addresses."""
    node.ssconf(master_node="n2.tst", master_ip=ADDRESS, nodegroups="")
    dropped = []
    monkeypatch.setattr(stray_address, "has_address", lambda address: True)
    monkeypatch.setattr(
        stray_address, "_drop", lambda _watch, address: dropped.append(address)
    )
    return dropped


def masterd(node, *, runs):
    node.runner.answers["daemon-util"] = (0 if runs else 1, "", "")


def test_the_address_of_another_master_is_removed(node, dropped, caplog):
    caplog.set_level(logging.DEBUG)
    masterd(node, runs=False)
    stray_address.remove(node.watch())
    assert dropped == [ADDRESS]
    assert "but the master is n2.tst; removing" in caplog.text


def test_a_running_master_daemon_keeps_it(node, dropped):
    masterd(node, runs=True)
    stray_address.remove(node.watch())
    assert dropped == []


def test_the_master_keeps_it(node, dropped):
    masterd(node, runs=False)
    node.ssconf(master_node=node.paths.hostname)
    stray_address.remove(node.watch())
    assert dropped == []


@pytest.mark.parametrize("address", ["127.0.0.1", ADDRESS, "nonsense"])
def test_addresses_of_other_machines_and_loopback_do_not_count(address):
    assert stray_address.has_address(address) is False
