"""The cluster's address on a node: its script, its hooks, its netmask."""

import dataclasses

import pytest

from fakes import nodes
from fakes.processes import FakeRunner
from ganeti.base import errors
from ganeti.base.net import netutils

ADDRESS = {
    "uuid": "u1",
    "ip": "192.0.2.100",
    "netmask": 24,
    "netdev": "eth0",
    "ip_family": 2,
}
SET_UP = {
    "PATH": "/sbin:/bin:/usr/sbin:/usr/bin",
    "MASTER_NETDEV": "eth0",
    "MASTER_IP": "192.0.2.100",
    "MASTER_NETMASK": "24",
    "CLUSTER_IP_VERSION": "4",
}


def node_with(tmp_path, answer=FakeRunner.DONE):
    runner = FakeRunner(master_ip_setup=answer)
    return dataclasses.replace(nodes.make_node(tmp_path), process=runner)


@pytest.mark.parametrize(
    ("call", "action"),
    [("node_activate_master_ip", "start"), ("node_deactivate_master_ip", "stop")],
)
@pytest.mark.parametrize("is_external", [False, True])
def test_the_script_gets_the_address(tmp_path, call, action, is_external):
    node = node_with(tmp_path)
    nodes.call(node, call, ADDRESS, is_external)
    ((command, options),) = node.process.commands
    own, external = node.paths.tools_dir, f"{node.paths.conf_dir}/scripts"
    folder = external if is_external else own
    assert command == (f"{folder}/master-ip-setup", action)
    assert options["env"] == SET_UP
    assert options["timeout_s"] > 0


def test_an_address_of_ipv6_says_so(tmp_path):
    node = node_with(tmp_path)
    nodes.call(node, "node_activate_master_ip", ADDRESS | {"ip_family": 10}, False)
    ((_command, options),) = node.process.commands
    assert options["env"]["CLUSTER_IP_VERSION"] == "6"


def test_a_script_that_fails_is_an_error_with_its_output(tmp_path):
    node = node_with(tmp_path, (3, "no such device\n", ""))
    text = r"cannot stop the address 192\.0\.2\.100 of the cluster: .*no such device$"
    with pytest.raises(errors.OpExecError, match=text):
        nodes.call(node, "node_deactivate_master_ip", ADDRESS, False)


@pytest.fixture
def changes(monkeypatch):
    """Changes of addresses; this machine has 192.0.2.100 and refuses a netmask of 9."""
    made = []

    def add(interface, address, prefix):
        if prefix == 9:
            raise errors.IPAddressError("permission denied")
        made.append(("add", interface, address, prefix))

    def remove(*row):
        made.append(("remove", *row))

    monkeypatch.setattr(netutils, "owns_address", lambda ip: ip == "192.0.2.100")
    monkeypatch.setattr(netutils, "add_address", add)
    monkeypatch.setattr(netutils, "remove_address", remove)
    return made


def change(tmp_path, old, new, address="192.0.2.100"):
    node = nodes.make_node(tmp_path)
    nodes.call(node, "node_change_master_netmask", old, new, address, "eth0")


def test_a_new_netmask_is_there_before_the_old_one_goes(tmp_path, changes):
    change(tmp_path, 24, 25)
    assert changes == [
        ("add", "eth0", "192.0.2.100", 25),
        ("remove", "eth0", "192.0.2.100", 24),
    ]


@pytest.mark.parametrize(
    ("old", "new", "address"), [(24, 24, "192.0.2.100"), (24, 25, "127.0.0.1")]
)
def test_an_equal_netmask_and_a_loopback_address_change_nothing(
    tmp_path, changes, old, new, address
):
    change(tmp_path, old, new, address)
    assert changes == []


@pytest.mark.parametrize(
    ("new", "address", "text"),
    [
        (25, "192.0.2.7", r"^address 192\.0\.2\.7: not on this machine$"),
        (9, "192.0.2.100", "^cannot change the netmask: permission denied$"),
    ],
)
def test_a_netmask_that_cannot_change_is_an_error(
    tmp_path, changes, new, address, text
):
    with pytest.raises(errors.OpExecError, match=text):
        change(tmp_path, 24, new, address)
    assert changes == []
