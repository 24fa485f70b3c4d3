"""The switch of a node, against a recorded ``ovs-vsctl``."""

import dataclasses
import os

import pytest

from fakes import nodes
from fakes.processes import FakeRunner
from ganeti.base import errors


@pytest.fixture
def node(tmp_path):
    return dataclasses.replace(
        nodes.make_node(tmp_path), process=FakeRunner(ovs_vsctl=FakeRunner.DONE)
    )


def test_a_switch_with_its_port_is_created_once(node):
    nodes.call(node, "node_configure_ovs", "switch1", "lo")
    nodes.call(node, "node_configure_ovs", "switch1", "")
    nodes.call(node, "node_configure_ovs", "switch1", None)
    create = "ovs-vsctl --timeout=60 -- --may-exist add-br switch1"
    assert node.process.lines == [
        f"{create} -- --may-exist add-port switch1 lo",
        create,
        create,
    ]


@pytest.mark.parametrize(
    ("name", "link", "text"),
    [
        ("", "", "wanted the name of a switch, found ''"),
        ("--db", "", "wanted the name of a switch"),
        ("a b", "", "wanted the name of a switch"),
        ("switch1", "none0", "link of switch1, found 'none0'"),
        ("switch1", "../lo", "link of switch1"),
        ("switch1", "-x", "link of switch1"),
    ],
)
def test_malformed_names_and_absent_interfaces_are_refused(node, name, link, text):
    with pytest.raises(errors.GenericError, match=text):
        nodes.call(node, "node_configure_ovs", name, link)
    assert node.process.lines == []


def test_the_words_of_the_tool_are_passed_on(node):
    node.process.answers["ovs-vsctl"] = (1, "", "database connection failed")
    with pytest.raises(errors.GenericError, match="database connection failed"):
        nodes.call(node, "node_configure_ovs", "switch1", "")


def test_a_node_without_the_package_says_which_one(tmp_path):
    if os.path.exists("/usr/bin/ovs-vsctl"):
        pytest.skip("Open vSwitch is installed here")
    node = nodes.make_node(tmp_path)
    with pytest.raises(errors.GenericError, match="package openvswitch-switch"):
        nodes.call(node, "node_configure_ovs", "switch1", "")
