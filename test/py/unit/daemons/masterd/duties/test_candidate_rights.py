"""A candidate that was away at its promotion gets its rights when it answers."""

import functools
import threading

import msgspec
import pytest

from fakes import clusters
from fakes.clocks import FakeClock
from fakes.engine import Engine
from fakes.rpc import failure
from ganeti.base import errors
from ganeti.base.constants.protocols import nodeverify
from ganeti.daemons.masterd.duties.candidate_rights import (
    AWAY_S,
    KEYS_PERIOD_S,
    LOOK_S,
    PERIOD_S,
    CandidateRights,
    unrecorded,
)
from ganeti.decisions.repair.node_lives import Death, DeathState, Phase
from ganeti.master.config import topology
from ganeti.master.config.node_deaths import KEY, TABLE
from ganeti.master.locking import Level, LockManager, Request
from ganeti.master.locking.manager import BGL
from ganeti.model.objects import Update
from ganeti.store import Document

MASTER, AWAY = clusters.node_uuid(1), clusters.node_uuid(2)
_SSH_QUESTIONS = {nodeverify.NV_SSH_SETUP, nodeverify.NV_SSH_CANDIDATE_KEYS}
TOKEN = [["ssl", clusters.DIGEST]]


class Site:
    """Two candidates; the certificate of the second one is not recorded."""

    def __init__(self, root, **changes):
        data = root / "var/lib/ganeti"
        data.mkdir(parents=True)
        (data / "server-key.pem").write_text("secret")
        self.engine = Engine(
            clusters.snapshot(nodes=2, candidate_certs={MASTER: "AA"}, **changes),
            {
                "node_crypto_tokens": TOKEN,
                "upload_file": None,
                "node_ssh_key_add": [],
                "write_ssconf_files": None,
                "node_verify": {},
            },
            root=str(root),
        )
        self.engine.locks = LockManager(FakeClock(), {Level.NODE: [MASTER, AWAY]})
        self.rights = CandidateRights(self.engine.deps())

    @property
    def certs(self):
        return self.engine.snapshot.cluster.candidate_certs

    def called(self):
        """Return the calls but the questions for SSH keys, which have their own test."""
        return [
            (name, node)
            for name, node, args in self.engine.rpc.calls
            if not (name == "node_verify" and args[0].keys() & _SSH_QUESTIONS)
        ]


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path, modify_ssh_setup=True)


def test_a_candidate_that_answers_gets_all_that_it_missed(site):
    site.rights.sweep()
    assert site.called() == [
        ("node_crypto_tokens", AWAY),
        ("upload_file", AWAY),
        ("write_ssconf_files", MASTER),
        ("node_ssh_key_add", MASTER),
    ]
    assert site.certs == {MASTER: "AA", AWAY: clusters.DIGEST}
    site.engine.rpc.calls.clear()
    site.rights.sweep()
    assert site.called() == []


def test_one_that_is_still_away_is_asked_again(site):
    site.engine.rpc.script["node_crypto_tokens"] = failure("no route")
    site.rights.sweep()
    assert AWAY not in site.certs
    site.engine.rpc.script["node_crypto_tokens"] = TOKEN
    site.rights.sweep()
    assert AWAY in site.certs


def test_a_token_that_is_no_digest_is_not_recorded(site):
    site.engine.rpc.script["node_crypto_tokens"] = [["ssl", "x\ny=z"]]
    site.rights.sweep()
    assert AWAY not in site.certs


def test_a_node_that_a_job_has_is_left_to_it(site, monkeypatch):
    locks = site.engine.locks
    locks.acquire(Request(Level.CLUSTER, [BGL], shared=True))
    locks.acquire(Request(Level.NODE, [AWAY]))
    at_once = functools.partial(LockManager.acquire, locks, timeout_s=0.0)
    monkeypatch.setattr(locks, "acquire", lambda request, _limit_s: at_once(request))
    thread = threading.Thread(target=site.rights.sweep)
    thread.start()
    thread.join()
    assert site.called() == []
    locks.release_all()


def test_the_node_is_locked_while_it_gets_its_rights(site):
    seen = []

    def answer(_node, _args):
        seen.append({row.name: row.mode for row in site.engine.locks.lock_info()})
        return TOKEN

    site.engine.rpc.script["node_crypto_tokens"] = answer
    site.rights.sweep()
    assert seen == [{f"cluster/{BGL}": "shared", f"node/{AWAY}": "exclusive"}]
    assert site.engine.locks.lock_info() == []


def test_a_failed_admission_leaves_no_lock(site):
    def refuse(_node, _args):
        raise errors.StorageError("disk full")

    site.engine.rpc.script["node_crypto_tokens"] = refuse
    with pytest.raises(errors.StorageError):
        site.rights.sweep()
    assert site.engine.locks.lock_info() == []


def test_after_a_stop_nobody_is_admitted(site):
    site.rights.stop()
    site.rights.sweep()
    assert site.called() == []
    assert AWAY not in site.certs


class Pauses(FakeClock):
    """Calls a function at the beginning of each pause, which takes no time."""

    def __init__(self, *acts):
        super().__init__()
        self.acts, self.pauses, self.is_over = list(acts), [], threading.Event()

    def wait(self, event, timeout_s):
        self.pauses.append(timeout_s)
        if not self.acts:
            self.is_over.set()
            return True
        self.acts.pop(0)()
        return event.is_set()


@pytest.mark.parametrize("error", [errors.StorageError("full"), KeyError("bug")])
def test_the_thread_goes_on_after_an_error_and_ends_with_the_master(
    site, error, caplog
):
    def fail(_node, _args):
        raise error

    def script(answer):
        site.engine.rpc.script["node_crypto_tokens"] = answer

    # Between two sweeps only SSH keys are looked at.
    keys = [lambda: None] * (round(PERIOD_S / KEYS_PERIOD_S) - 1)
    acts = [*keys, lambda: script(fail), *keys, lambda: script(TOKEN)]
    clock = site.engine.clock = Pauses(*acts)
    rights = CandidateRights(site.engine.deps())
    rights.start()
    assert clock.is_over.wait(60)
    assert clock.pauses == [KEYS_PERIOD_S] * (len(acts) + 1)
    assert AWAY in site.certs
    assert str(error) in caplog.text


def test_a_node_that_lost_its_role_meanwhile_gets_nothing(site):
    class Locks(LockManager):
        def acquire(self, request, *args, **kwargs):
            held = super().acquire(request, *args, **kwargs)
            node = site.engine.snapshot.nodes[AWAY].replace(master_candidate=False)
            site.engine.store.commit([Update("nodes", AWAY, node)])
            return held

    site.engine.locks = Locks(FakeClock(), {Level.NODE: [MASTER, AWAY]})
    CandidateRights(site.engine.deps()).sweep()
    assert site.called() == []


def test_nodes_without_the_role_and_offline_ones_are_left_alone(tmp_path):
    extra = [
        clusters.node(2, master_candidate=False),
        clusters.node(3, offline=True),
    ]
    start = clusters.snapshot(nodes=1, extra=extra, candidate_certs={MASTER: "AA"})
    assert unrecorded(start) == []


def test_ssh_is_left_alone_where_the_cluster_does_not_manage_it(tmp_path):
    site = Site(tmp_path, modify_ssh_setup=False)
    site.rights.sweep()
    assert ("node_ssh_key_add", MASTER) not in site.called()
    assert AWAY in site.certs


def test_one_that_takes_no_secrets_is_not_admitted(site):
    site.engine.rpc.script["upload_file"] = failure("disk full")
    site.rights.sweep()
    assert AWAY not in site.certs
    site.engine.rpc.script["upload_file"] = None
    site.rights.sweep()
    assert AWAY in site.certs


class TestLostSecrets:
    """A candidate with a recorded certificate gets the secrets that it has lost."""

    @pytest.fixture
    def site(self, tmp_path):
        site = Site(tmp_path)
        site.rights.sweep()
        site.engine.rpc.calls.clear()
        return site

    def look(self, site, *, has_key):
        paths = site.engine.deps().paths

        def answer(_node, args):
            # A node of a virtual cluster takes no other paths.
            asked = {
                path: "00"
                for path in args[0].get(nodeverify.NV_FILELIST, ())
                if paths.localize(path) == paths.server_key_pem
            }
            return {"filelist": asked if has_key else {}}

        site.engine.rpc.script["node_verify"] = answer
        site.engine.clock.now += LOOK_S
        site.rights.sweep()
        return site.called()

    def test_it_gets_what_it_lacks(self, site):
        assert self.look(site, has_key=False) == [
            ("node_verify", AWAY),
            ("upload_file", AWAY),
        ]
        assert site.engine.locks.lock_info() == []

    def test_one_that_has_them_is_left_alone(self, site):
        assert self.look(site, has_key=True) == [("node_verify", AWAY)]
        site.rights.sweep()
        assert site.called() == [("node_verify", AWAY)]

    def test_one_that_is_away_is_asked_again_soon(self, site):
        site.engine.rpc.script["node_verify"] = failure("no route")
        site.engine.clock.now += LOOK_S
        site.rights.sweep()
        site.engine.clock.now += AWAY_S
        site.rights.sweep()
        assert site.called() == [("node_verify", AWAY)] * 2


SPARES = clusters.node_uuid(3), clusters.node_uuid(4)
VERSION = 1


def widen(site, *names, **flags):
    """Add nodes that are no candidates; the pool wants three."""
    site.engine.locks = LockManager(FakeClock(), {Level.NODE: [MASTER, AWAY, *SPARES]})
    site.engine.rpc.script["version"] = VERSION
    with site.engine.config.edit("test") as edit:
        cluster = edit.snapshot.cluster
        edit.update(cluster.replace(candidate_pool_size=3))
        for number in names:
            topology.add_node(
                edit, clusters.node(number, master_candidate=False, **flags)
            )
    site.rights = CandidateRights(site.engine.deps())


def kill(site, uuid=AWAY, **death):
    """Mark a node offline as a job about its death does."""
    with site.engine.config.edit("test") as edit:
        node = edit.snapshot.nodes[uuid]
        edit.update(node.replace(offline=True, master_candidate=False))
    state = DeathState(fenced=((1.0, node.name),))
    if death:
        state = DeathState(deaths=(Death(node=uuid, name=node.name, **death),))
    site.engine.store.commit([Document(TABLE, KEY, msgspec.json.encode(state))])


def candidates(site):
    nodes = site.engine.snapshot.nodes.values()
    return {node.uuid for node in nodes if node.master_candidate}


@pytest.mark.parametrize("death", [{}, {"phase": Phase.OFFLINE}])
def test_a_dead_candidate_is_replaced(site, death):
    widen(site, 3)
    kill(site, **death)
    site.rights.sweep()
    assert candidates(site) == {MASTER, SPARES[0]}
    assert site.engine.locks.lock_info() == []


def test_two_candidates_that_die_at_once_are_replaced(site):
    widen(site, 3, 4)
    kill(site)
    site.rights.sweep()
    assert candidates(site) == {MASTER, *SPARES}
    site.rights.sweep()
    assert candidates(site) == {MASTER, *SPARES}


def test_a_node_that_a_person_demoted_stays_as_it_is(site):
    """It would get the secrets of candidates again."""
    widen(site, 3, 4)
    site.rights.sweep()
    assert candidates(site) == {MASTER, AWAY}
    # Neither does a node that a person marked offline, or one that came back.
    kill(site, phase=Phase.SUSPECTED)
    site.rights.sweep()
    assert candidates(site) == {MASTER}
    kill(site)
    with site.engine.config.edit("test") as edit:
        node = edit.snapshot.nodes[AWAY]
        edit.update(node.replace(offline=False))
    site.rights.sweep()
    assert candidates(site) == {MASTER}


def test_a_node_that_does_not_answer_takes_no_place_of_a_dead_one(site):
    """With it, the master would soon lack the majority of the candidates."""
    widen(site, 3, 4)
    kill(site)
    silent = SPARES[0]
    site.engine.rpc.script["version"] = lambda node, _args: (
        failure("no route", is_silent=True) if node == silent else VERSION
    )
    site.rights.sweep()
    assert candidates(site) == {MASTER, SPARES[1]}
    silent = None
    site.rights.sweep()
    assert candidates(site) == {MASTER, *SPARES}


@pytest.mark.parametrize(
    "flags", [{"offline": True}, {"drained": True}, {"master_capable": False}]
)
def test_nobody_is_promoted_who_may_be_no_candidate(site, flags):
    widen(site, 3, **flags)
    kill(site)
    site.rights.sweep()
    assert candidates(site) == {MASTER}


def test_a_node_that_a_job_has_is_not_promoted_but_another_one(site):
    widen(site, 3, 4)
    kill(site)
    locks = site.engine.locks
    locks.acquire(Request(Level.CLUSTER, [BGL], shared=True))
    locks.acquire(Request(Level.NODE, [SPARES[0]]))
    thread = threading.Thread(target=site.rights.sweep)
    thread.start()
    thread.join()
    assert candidates(site) == {MASTER, SPARES[1]}
    locks.release_all()


def test_a_full_pool_promotes_nobody(site):
    widen(site, 3)
    with site.engine.config.edit("test") as edit:
        assert topology.promote_if_missing(edit, MASTER) is None
        assert topology.promote_if_missing(edit, "no-such-node") is None
        cluster = edit.snapshot.cluster
        edit.update(cluster.replace(candidate_pool_size=2))
        assert topology.promote_if_missing(edit, SPARES[0]) is None
