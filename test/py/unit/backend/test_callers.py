"""A list of permitted callers that another node passes on."""

import os

import pytest

from fakes import nodes
from fakes.clusters import node_uuid
from ganeti import errors
from ganeti.backend import master_term
from ganeti.quorum import Term

MASTER, OTHER = node_uuid(3), node_uuid(1)
OLD, NEW = (":".join([byte] * 20) for byte in ("0A", "1B"))
LIST = {OTHER: OLD, MASTER: NEW}


@pytest.fixture
def node(tmp_path):
    made = nodes.make_node(tmp_path)
    os.makedirs(made.paths.data_dir)
    os.makedirs(made.paths.lock_dir, exist_ok=True)
    terms = master_term.TermGuard(made.paths.data("term"), "cluster")
    terms.check(Term(4, OTHER))
    object.__setattr__(made, "terms", terms)
    nodes.call(
        made, "write_ssconf_files", {"master_candidates_certs": f"{OTHER}={OLD}"}
    )
    return made


def adopt(node, term=(5, MASTER), callers=LIST):
    nodes.call(node, "callers_adopt", list(term), dict(callers))


def listed(node):
    return node.ssconf.master_candidates_certs()


def test_the_list_of_a_new_master_is_taken(node):
    adopt(node)
    assert listed(node) == LIST
    # The master shows its term itself, with the certificate that is accepted now.
    assert node.terms.seen == Term(4, OTHER)


@pytest.mark.parametrize("term", [(3, MASTER), (4, MASTER), (10**15, MASTER)])
def test_that_of_a_replaced_or_impossible_master_is_not(node, term):
    with pytest.raises(errors.GenericError, match="term"):
        adopt(node, term)
    assert listed(node) == {OTHER: OLD}


def test_a_late_list_of_a_listed_master_is_not_taken(node):
    adopt(node)
    demoted = {MASTER: NEW}
    nodes.call(
        node, "write_ssconf_files", {"master_candidates_certs": f"{MASTER}={NEW}"}
    )
    with pytest.raises(errors.RpcError, match="already"):
        adopt(node)
    assert listed(node) == demoted


@pytest.mark.parametrize(
    "callers",
    [
        {OTHER: OLD},
        {**LIST, "x": NEW},
        {**LIST, f"{OTHER}\n": NEW},
        {**LIST, node_uuid(2): f"{NEW}\n{node_uuid(4)}={NEW}"},
        {**LIST, node_uuid(2): NEW.lower()},
        {},
    ],
)
@pytest.mark.parametrize("call", ["adopt", "relay"])
def test_a_damaged_list_changes_nothing(node, callers, call):
    with pytest.raises(errors.RpcError, match="permitted callers"):
        if call == "adopt":
            adopt(node, callers=callers)
        else:
            target = [node_uuid(4), "node4", "192.0.2.4"]
            nodes.call(node, "callers_relay", [5, MASTER], target, callers)
    assert listed(node) == {OTHER: OLD}


@pytest.mark.parametrize(
    "target", [["node4", "node4", "192.0.2.4"], [node_uuid(4), "node4", "file:///etc"]]
)
def test_only_a_node_at_an_address_is_called(node, target):
    with pytest.raises(errors.RpcError, match="no node"):
        nodes.call(node, "callers_relay", [5, MASTER], target, LIST)
