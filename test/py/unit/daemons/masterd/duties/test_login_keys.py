"""Nodes whose key files lack something get the keys of all nodes."""

import functools
import logging
import threading

import pytest

from fakes import clusters
from fakes.clocks import FakeClock
from fakes.engine import Engine
from fakes.rpc import failure
from ganeti.base.constants.protocols import nodeverify
from ganeti.daemons.masterd.duties.candidate_rights import (
    LOOK_S,
    RETRY_S,
    CandidateRights,
)
from ganeti.master.locking import Level, LockManager, Request
from ganeti.master.locking.manager import BGL

MASTER, SECOND, THIRD = (clusters.node_uuid(n) for n in (1, 2, 3))
LACKS = "does not authorise the key of master candidate node2"


class Site:
    """Three candidates that have all rights; `problems` are those of their key files."""

    def __init__(self, root, **changes):
        self.problems, self.candidate_keys, self.shown = {}, None, None
        self.removed = []
        uuids = (MASTER, SECOND, THIRD)
        self.engine = Engine(
            clusters.snapshot(
                nodes=3, candidate_certs=dict.fromkeys(uuids, "AA"), **changes
            ),
            {
                "node_verify": self.verify,
                "node_ssh_key_add": self.add,
                "node_ssh_key_remove": self.remove,
                "write_ssconf_files": None,
            },
            root=str(root),
        )
        locks = LockManager(FakeClock(), {Level.NODE: list(uuids)})
        self.engine.locks = locks
        self.rights = CandidateRights(self.engine.deps())

    def verify(self, node, args):
        if nodeverify.NV_SSH_CANDIDATE_KEYS in args[0]:
            wanted = args[0][nodeverify.NV_SSH_CANDIDATE_KEYS]
            assert node == MASTER
            known = self.candidate_keys
            if known is None:
                nodes = self.engine.snapshot.nodes
                capable = [uuid for uuid in wanted if nodes[uuid].master_capable]
                known = {uuid: [f"ssh-rsa {uuid}"] for uuid in capable}
            return {nodeverify.NV_SSH_CANDIDATE_KEYS: known}
        if nodeverify.NV_SSH_AUTHORISED in args[0]:
            self.shown = args[0][nodeverify.NV_SSH_AUTHORISED]
            lines = self.problems.get(node, [])
            return {nodeverify.NV_SSH_AUTHORISED: lines}
        if nodeverify.NV_SSH_SETUP not in args[0]:
            return {nodeverify.NV_FILELIST: dict.fromkeys(args[0]["filelist"], "x")}
        lines = self.problems.get(node, [])
        return {nodeverify.NV_SSH_SETUP: lines} if isinstance(lines, list) else lines

    def add(self, _node, args):
        self.problems.pop(args[0], None)
        return []

    def remove(self, _node, args):
        self.removed.append((args[0], *args[4:6]))
        return []

    def change(self, uuid, **changes):
        with self.engine.config.edit("test") as edit:
            edit.update(self.engine.snapshot.nodes[uuid].replace(**changes))

    def sweep(self, times=2):
        """Return who was asked, and who was sent keys."""
        self.engine.rpc.calls.clear()
        for _ in range(times):
            self.rights.sweep()
        asked = [
            node
            for name, node, args in self.engine.rpc.calls
            if name == "node_verify" and nodeverify.NV_SSH_SETUP in args[0]
        ]
        sent = [
            (node, args)
            for name, node, args in self.engine.rpc.calls
            if name == "node_ssh_key_add"
        ]
        return asked, sent


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path, modify_ssh_setup=True)


def test_all_are_asked_at_the_start_and_then_rarely(site):
    assert site.sweep() == ([MASTER, SECOND, THIRD], [])
    site.engine.clock.now += LOOK_S - 1
    assert site.sweep() == ([], [])
    site.engine.clock.now += 1
    assert site.sweep() == ([MASTER, SECOND, THIRD], [])


def test_a_node_that_lacks_keys_gets_those_of_all(site, caplog):
    caplog.set_level(logging.WARNING)
    site.problems[THIRD] = [LACKS]
    _asked, sent = site.sweep()
    name = "node3.example.com"
    capable = [f"node{n}.example.com" for n in (1, 2, 3)]
    assert sent == [(MASTER, (THIRD, name, capable, False, False, True))]
    assert f"SSH keys: node {name}: {LACKS}" in caplog.text
    site.engine.clock.now += LOOK_S
    assert site.sweep()[1] == []


def test_a_node_does_not_fill_the_log(site, caplog):
    caplog.set_level(logging.WARNING)
    site.problems[THIRD] = [f"{LACKS}\n" + 100_000 * "y"] + 1000 * [LACKS]
    site.sweep()
    [line] = [line for line in caplog.messages if "node3" in line]
    assert len(line) < 1000
    assert "\n" not in line
    assert line.endswith(f"yyy; {LACKS}; {LACKS}; 998 more")


STILL = "authorises the key of node node3.example.com, which is not a candidate"


def test_the_key_of_a_former_candidate_is_withdrawn(site):
    site.change(THIRD, master_candidate=False)
    site.problems[SECOND] = [STILL]
    assert site.sweep()[1] == []
    assert site.removed == [(THIRD, True, False)]


def test_a_node_cannot_name_a_candidate_as_a_former_one(site):
    site.problems[SECOND] = [STILL, STILL.replace("node3", "node9")]
    site.sweep()
    assert site.removed == []


def test_a_public_key_too_many_is_removed_with_the_list_of_the_master(site):
    site.problems[THIRD] = ["has a public key of x, which is not a potential candidate"]
    assert [node for node, _args in site.sweep()[1]] == [MASTER]
    assert not site.problems


def test_a_key_that_the_master_lacks_is_fetched_and_spread(site):
    site.candidate_keys = {uuid: ["ssh-rsa AA"] for uuid in (MASTER, SECOND)}
    ((node, args),) = site.sweep()[1]
    assert (node, args[0], args[3:]) == (MASTER, THIRD, (True, True, True))


def test_a_key_of_a_node_that_is_never_a_candidate_is_withdrawn(site):
    site.change(THIRD, master_candidate=False, master_capable=False)
    site.candidate_keys = {uuid: ["ssh-rsa AA"] for uuid in (MASTER, SECOND, THIRD)}
    site.sweep()
    assert site.removed == [(THIRD, True, True)]


def test_nodes_are_asked_when_a_changed_role_has_settled(site):
    site.sweep()
    site.change(THIRD, offline=True)
    assert site.sweep(1) == ([], [])
    assert site.sweep() == ([MASTER, SECOND], [])
    site.change(THIRD, offline=False)
    assert site.sweep(1) == ([], [])
    assert site.sweep() == ([MASTER, SECOND, THIRD], [])


def test_other_changes_ask_nobody(site):
    site.sweep()
    site.change(THIRD, drained=True)
    assert site.sweep() == ([], [])


def test_nodes_that_never_become_candidates_are_asked_for_keys_of_candidates(site):
    site.change(THIRD, master_candidate=False, master_capable=False)
    assert site.sweep() == ([MASTER, SECOND], [])
    assert site.shown == {
        "node1.example.com": [f"ssh-rsa {MASTER}"],
        "node2.example.com": [f"ssh-rsa {SECOND}"],
    }
    site.problems[THIRD] = [LACKS]
    site.engine.clock.now += LOOK_S
    capable = [f"node{n}.example.com" for n in (1, 2)]
    sent = (MASTER, (THIRD, "node3.example.com", capable, False, False, True))
    assert site.sweep()[1] == [sent]
    site.engine.clock.now += LOOK_S
    assert site.sweep()[1] == []


@pytest.mark.parametrize("keys", [{}, [], {"stranger": ["ssh-rsa x"]}, {SECOND: "x"}])
def test_without_keys_of_candidates_nobody_is_asked_for_them(site, keys):
    site.change(THIRD, master_candidate=False, master_capable=False)
    site.candidate_keys = keys
    site.sweep()
    assert site.shown is None


@pytest.mark.parametrize(
    "answer",
    [
        failure("no route"),
        *({nodeverify.NV_SSH_SETUP: value} for value in ("yes", ["x", 1], {"a": 1})),
        {},
    ],
    ids=["fails", "text", "numbers", "mapping", "nothing"],
)
def test_an_answer_that_is_none_causes_nothing(site, answer):
    site.problems[THIRD] = answer
    assert site.sweep()[1] == []


def test_a_node_that_a_job_has_is_asked_again_later(site, monkeypatch):
    site.problems[THIRD] = [LACKS]
    locks = site.engine.locks
    locks.acquire(Request(Level.CLUSTER, [BGL], shared=True))
    locks.acquire(Request(Level.NODE, [THIRD]))
    at_once = functools.partial(LockManager.acquire, locks, timeout_s=0.0)
    with monkeypatch.context() as patch:
        patch.setattr(locks, "acquire", lambda request, _limit_s: at_once(request))
        results = []
        thread = threading.Thread(target=lambda: results.append(site.sweep()))
        thread.start()
        thread.join()
    locks.release_all()
    assert results[0][1] == []
    site.engine.clock.now += RETRY_S
    assert len(site.sweep()[1]) == 1


def test_keys_that_the_administrator_distributes_are_left_alone(tmp_path):
    assert Site(tmp_path, modify_ssh_setup=False).sweep() == ([], [])


def test_after_a_stop_nobody_is_asked(site):
    site.rights.stop()
    assert site.sweep() == ([], [])
