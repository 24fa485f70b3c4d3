"""A list of permitted callers that another node passes on."""

import os

import pytest

from fakes import nodes
from fakes.clusters import node_uuid
from ganeti.base import errors
from ganeti.decisions.quorum import Term
from ganeti.node.calls.membership import master_term
from ganeti.node.calls.trust import callers
from ganeti.protocols.rpc import Result, Target

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


class Runner:
    """A caller of other nodes, with one answer."""

    def __init__(self, answer):
        self.answer, self.targets, self.calls, self.is_closed = answer, [], [], False

    def __call__(self, targets, paths):
        self.targets.append((targets, paths))
        return self

    def call_one(self, procedure, node, *args, timeout_s):
        self.calls.append((procedure, node, args, timeout_s))
        return self.answer

    def close(self):
        self.is_closed = True


def relay(node, monkeypatch, answer):
    runner = Runner(answer)
    monkeypatch.setattr(callers.rpc, "StaticRunner", runner)
    monkeypatch.setattr(callers.rpc, "node_port", lambda: 1811)
    target = [node_uuid(4), "node4", "192.0.2.4"]
    nodes.call(node, "callers_relay", [5, MASTER], target, LIST)
    return runner


def test_a_list_is_passed_on_to_the_node(node, monkeypatch):
    runner = relay(node, monkeypatch, Result("callers_adopt", "node4", None))
    target = Target(node_uuid(4), "node4", "192.0.2.4", 1811)
    assert runner.targets == [([target], node.paths)]
    expected = ("callers_adopt", node_uuid(4), ((5, MASTER), LIST), 10.0)
    assert runner.calls == [expected]
    assert runner.is_closed


def test_a_node_that_does_not_take_the_list_is_reported(node, monkeypatch):
    refused = Result("callers_adopt", "node4", None, fail_msg="old term")
    text = "permitted callers not replaced: .*old term"
    with pytest.raises(errors.RpcError, match=text):
        relay(node, monkeypatch, refused)
