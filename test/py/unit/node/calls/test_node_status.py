"""The report of a node for the state of the cluster."""

import os

import pytest

from fakes import nodes
from ganeti.base import errors
from ganeti.base.constants import versions
from ganeti.base.tls import x509
from ganeti.protocols.rpc import PROCEDURES, Result


@pytest.fixture
def node(tmp_path):
    made = nodes.make_node(tmp_path)
    os.makedirs(made.paths.data_dir, exist_ok=True)
    return made


def answer(node, *hypervisors):
    """Return the answer as the master reads it."""
    payload = nodes.call(node, "node_status", list(hypervisors))
    read = PROCEDURES["node_status"].read(Result("node_status", "n", payload))
    assert not read.failed, read.fail_msg
    return read.payload


def test_a_node_reports_release_memory_and_certificates(node):
    x509.write_cluster_certificate(node.paths.server_pem)
    with open(node.paths.client_pem, "w", encoding="ascii") as stream:
        stream.write("damaged")
    actual = answer(node, "fake")
    assert actual.release == versions.RELEASE_VERSION
    assert actual.guests == {}
    assert actual.host.memory_total >= actual.host.memory_free > 0
    assert set(actual.certificates) == {"server.pem"}
    assert actual.certificates["server.pem"] > 86400


def test_a_node_without_hypervisor_has_no_guests(node):
    actual = answer(node)
    assert (actual.guests, actual.host.memory_total) == ({}, None)
    assert actual.certificates == {}


def test_a_hypervisor_that_is_not_there_is_named(node):
    with pytest.raises(errors.HypervisorError, match="vax"):
        nodes.call(node, "node_status", ["vax"])
