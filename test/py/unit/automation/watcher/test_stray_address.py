"""The address of the cluster on a node that is not the master."""

import logging
import os

import pytest

from fakes import clusters
from ganeti.automation.watcher import stray_address
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.model.objects import Update
from ganeti.protocols.rpc import Result
from ganeti.store import open_master

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


@pytest.mark.parametrize("form", ["answer", "error"])
def test_an_address_that_stays_is_an_error_in_the_log(
    node, dropped, monkeypatch, caplog, form
):
    def drop(_watch, _address):
        if form == "error":
            raise errors.StorageError("no route")
        return "no route"

    monkeypatch.setattr(stray_address, "_drop", drop)
    masterd(node, runs=False)
    stray_address.remove(node.watch())
    assert f"address {ADDRESS} of the cluster: not removed: no route" in caplog.text


def test_a_node_that_does_not_know_the_master_keeps_it(node, dropped):
    masterd(node, runs=False)
    os.unlink(node.paths.data("ssconf_master_node"))
    stray_address.remove(node.watch())
    assert dropped == []


@pytest.mark.parametrize("is_external", [False, True, None])
def test_the_node_daemon_gets_the_parameters_of_the_cluster(
    node, monkeypatch, is_external
):
    from ganeti.master import address_removal as cluster_address

    asked = []

    def drop(_paths, own, parameters, *, is_external):
        asked.append((own, parameters, is_external))
        return Result("node_deactivate_master_ip", "n")

    monkeypatch.setattr(cluster_address, "drop", drop)
    name = node.paths.hostname
    node.ssconf(
        master_netmask="28",
        master_netdev="eth1",
        primary_ip_family="2",
        node_primary_ips=f"{name} 192.0.2.7",
    )
    if is_external is not None:
        cluster = clusters.cluster(use_external_mip_script=is_external)
        db = open_master(
            node.paths.store_db, replicate=None, clock=SystemClock(), node="x"
        )
        db.commit([Update("cluster", "", cluster)])
        db.close()
    assert stray_address._drop(node.watch(), ADDRESS) is None
    wanted = {
        "uuid": name,
        "ip": ADDRESS,
        "netmask": 28,
        "netdev": "eth1",
        "ip_family": 2,
    }
    ((own, parameters, used),) = asked
    assert (own, used) == ("192.0.2.7", bool(is_external))
    assert {**parameters, "netmask": int(parameters["netmask"])} == wanted
