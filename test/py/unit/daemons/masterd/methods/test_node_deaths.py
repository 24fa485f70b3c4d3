"""Deaths of nodes on the master: facts, and steps that are one commit."""

import dataclasses
import threading

import msgspec
import pytest

from fakes import clusters
from fakes.master import Master
from fakes.patience import PATIENCE_S, job_status, until
from ganeti.base import errors
from ganeti.daemons.masterd.methods import node_deaths
from ganeti.decisions.repair import node_death
from ganeti.decisions.repair.journal import NODE_DEATH
from ganeti.decisions.repair.node_lives import DeathState
from ganeti.protocols.rpc import Result

DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 0.001, "on_master": True}
SILENT = Result("version", "n", fail_msg="no answer", is_silent=True)


class Site:
    """Four candidates; the first one is the master."""

    def __init__(self, root):
        snapshot = clusters.snapshot(nodes=4, instances=0)
        self.uuids = sorted(snapshot.nodes, key=lambda u: snapshot.nodes[u].name)
        self.names = [snapshot.nodes[uuid].name for uuid in self.uuids]
        self.dead = set()
        self.reaching = set()
        self.ssh = False
        #: Reader -> its answer about heartbeats.
        self.heard = {}
        script = {"version": self.version, "node_reaches": self.reaches}
        script["node_heartbeats"] = self.heartbeats
        self.master = Master(root, snapshot, script)

    def version(self, node, _args):
        if node in self.dead:
            return SILENT
        return 3010000

    def reaches(self, node, args):
        if node in self.dead:
            return SILENT
        (places,) = args
        return [[node in self.reaching, False] for _ in places]

    def heartbeats(self, node, args):
        if node in self.dead:
            return SILENT
        (names,) = args
        return self.heard.get(node, [None for _ in names])


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path / "node1.example.com")
    made.master.start()
    deps = made.master.service.deps
    object.__setattr__(deps, "server_reacts", lambda _address, _port: made.ssh)
    with made.master.client() as made.client:
        yield made
    made.master.stop()


def switch(site, value=True, **more):
    op = {"OP_ID": "OP_CLUSTER_SET_PARAMS", "node_death": value, **more}
    assert job_status(site.client, site.client.call("SubmitJob", [[op]])) == "success"


def facts(site, probe=True):
    return site.client.call("QueryNodeDeaths", [probe])


def change(site, serial=1, phase="fencing", job=-1, ops=(DELAY,), node=1):
    uuid = site.uuids[node]
    death = {"node": uuid, "name": site.names[node], "phase": phase, "job": job}
    jobs = [{"node": uuid, "ops": list(ops)}] if ops else []
    entry = {"round": "r", "automaton": NODE_DEATH}
    args = [serial, {"deaths": [death]}, jobs, entry]
    return site.client.call("ChangeNodeDeaths", args)


def test_nobody_is_asked_while_it_is_off(site):
    site.dead = {site.uuids[1]}
    answer = facts(site)
    assert (answer["is_enabled"], answer["is_probed"], answer["nodes"]) == (
        *(False, False),
        [],
    )
    assert not site.master.rpc.called("version")


def test_a_silent_node_is_looked_at_by_the_candidates(site):
    switch(site)
    assert facts(site)["nodes"] == []
    assert not site.master.rpc.called("node_reaches")
    site.dead = {site.uuids[1]}
    answer = facts(site)
    (view,) = answer["nodes"]
    assert (view["name"], view["daemon"], view["ssh"]) == (site.names[1], False, False)
    assert site.names[0] not in view["asked"]
    assert (view["reached_by"], view["helper"]) == ([], "")
    assert answer["answered"] == 1 + len(view["asked"])
    site.reaching = {uuid for uuid in site.uuids if uuid != site.uuids[1]}
    site.ssh = True
    (view,) = facts(site)["nodes"]
    assert (view["reached_by"], view["ssh"]) == (view["asked"], True)


RUN, OTHER = "0" * 32, "1" * 32


def test_heartbeats_come_from_the_master_and_two_candidates(site):
    switch(site)
    site.dead = {site.uuids[1]}
    site.heard = {
        site.uuids[0]: [[RUN, 5]],
        site.uuids[2]: [[RUN, 5]],
        site.uuids[3]: [[OTHER, 2]],
    }
    (view,) = facts(site)["nodes"]
    assert view["heartbeats"] == [[RUN, 5], [OTHER, 2]]
    calls = site.master.rpc.called("node_heartbeats")
    asked = [site.uuids[0], site.uuids[2], site.uuids[3]]
    assert calls == [(uuid, ([site.names[1]],)) for uuid in asked]


@pytest.mark.parametrize("answer", [[], [None, None], [[RUN, 1], [RUN, 2]]])
def test_heartbeats_of_another_number_of_nodes_do_not_count(site, answer):
    switch(site)
    site.dead = {site.uuids[1]}
    site.heard = {site.uuids[0]: answer}
    assert facts(site)["nodes"][0]["heartbeats"] == []


def test_heartbeats_are_not_asked_for_without_shared_storage(site):
    switch(site, enabled_disk_templates=["drbd", "plain"])
    site.dead = {site.uuids[1]}
    assert facts(site)["nodes"][0]["heartbeats"] == []
    assert not site.master.rpc.called("node_heartbeats")


def test_others_are_asked_about_a_known_silence_while_the_node_is_asked(site):
    """A dead node costs its whole time limit, once."""
    switch(site)
    site.dead = {site.uuids[1]}
    change(site, phase="suspected", job=0, ops=())
    both = threading.Barrier(2, timeout=PATIENCE_S)
    asked, reaches = site.version, site.reaches

    def version(node, args):
        if node in site.dead:
            both.wait()
        return asked(node, args)

    def look(node, args):
        if node == site.uuids[2]:
            both.wait()
        return reaches(node, args)

    site.master.rpc.script |= {"version": version, "node_reaches": look}
    answer = facts(site)
    (view,) = answer["nodes"]
    assert (view["daemon"], view["ssh"]) == (False, False)
    assert view["asked"] == [site.names[2], site.names[3]]
    assert answer["answered"] == 3


def test_a_candidate_that_is_held_and_answers_is_a_witness(site):
    """One whose helper lies stays held, whatever it answers."""
    switch(site)
    deaths = [
        {"node": site.uuids[n], "name": site.names[n], "phase": phase}
        for n, phase in ((1, "held"), (2, "suspected"))
    ]
    entry = {"round": "r", "automaton": NODE_DEATH}
    site.client.call("ChangeNodeDeaths", [1, {"deaths": deaths}, [], entry])
    site.dead = {site.uuids[2]}
    answer = facts(site)
    views = {view["name"]: view for view in answer["nodes"]}
    assert set(views[site.names[2]]["asked"]) == {site.names[1], site.names[3]}
    assert (views[site.names[1]]["daemon"], answer["answered"]) == (True, 3)


def test_a_candidate_that_is_silent_itself_is_no_witness(site):
    switch(site)
    change(site, phase="suspected", job=0, ops=())
    site.dead = {site.uuids[1]}
    site.master.rpc.script["version"] = lambda node, _args: (
        SILENT if node in site.uuids[1:3] else 3010000
    )
    answer = facts(site)
    views = {view["name"]: view for view in answer["nodes"]}
    for name in site.names[1:3]:
        assert views[name]["asked"] == [site.names[3]]
    assert answer["answered"] == 2


def test_a_daemon_that_refuses_or_is_busy_answers(site):
    switch(site)
    busy = dataclasses.replace(SILENT, is_silent=False)
    for result in (dataclasses.replace(SILENT, refused=True), busy):
        site.master.rpc.script["version"] = lambda _node, _args, r=result: r
        assert facts(site)["nodes"] == []


def test_answers_of_another_length_do_not_count(site):
    switch(site)
    site.dead = {site.uuids[1]}
    site.master.rpc.script["node_reaches"] = []
    answer = facts(site)
    assert (answer["answered"], answer["nodes"][0]["asked"]) == (1, [])


def test_a_step_stores_the_phase_and_submits_its_job_at_once(site):
    switch(site)
    answer = change(site)
    (death,) = answer["deaths"]
    assert answer["serial_no"] == 2
    assert death["jobs"] == [death["job"]]
    assert job_status(site.client, death["job"]) == "success"
    answer = facts(site, probe=False)
    assert answer["state"]["deaths"] == [death]
    (end,) = answer["ended"]
    assert (end["job"], end["is_success"], end["is_off"]) == (death["job"], True, False)
    assert "does not confirm" in end["text"]
    (entry,) = site.client.call("QueryJournal", [{"automaton": NODE_DEATH}])
    assert entry["round"] == "r"
    with pytest.raises(errors.OpPrereqError, match="have the serial 2 by now"):
        change(site, serial=1)


@pytest.mark.parametrize(
    "wrong", [{"ops": ()}, {"job": 0}, {"ops": ({"OP_ID": "OP_NO_SUCH"},)}]
)
def test_a_step_without_its_job_is_refused(site, wrong):
    switch(site)
    with pytest.raises(errors.GenericError):
        change(site, **wrong)
    assert facts(site)["state"]["deaths"] == []


def test_no_job_is_accepted_when_it_is_off_or_in_a_freeze(site):
    with pytest.raises(errors.OpPrereqError, match="not to be handled"):
        change(site)
    switch(site)
    site.client.call("FreezeAutomation", ["work"])
    with pytest.raises(errors.OpPrereqError, match="frozen"):
        change(site)
    # A change without jobs is accepted.
    assert change(site, phase="suspected", job=0, ops=())["serial_no"] == 2


def test_a_job_that_is_gone_has_failed(site):
    switch(site)
    change(site, job=0, ops=(), phase="suspected")
    state = site.client.call("QueryNodeDeaths", [False])["state"]
    state["deaths"][0]["job"] = 999
    entry = {"round": "s", "automaton": NODE_DEATH}
    site.client.call("ChangeNodeDeaths", [2, state, [], entry])
    (end,) = facts(site, probe=False)["ended"]
    assert (end["is_success"], end["text"]) == (
        False,
        "job 999 is not in the queue any more",
    )


def test_a_job_that_failed_has_its_text(site):
    switch(site)
    change(site, ops=({**DELAY, "on_nodes": ["gone.example.com"]},))
    job = site.client.call("QueryNodeDeaths", [False])["state"]["deaths"][0]["job"]
    assert job_status(site.client, job) == "error"
    (end,) = facts(site, probe=False)["ended"]
    assert end["text"] == "Node 'gone.example.com' not known"


def test_the_state_survives_a_restart_and_is_in_metrics_and_limits(site):
    switch(site)
    change(site, phase="suspected", job=0, ops=())
    state = msgspec.convert(facts(site, probe=False)["state"], DeathState)
    held = msgspec.structs.replace(state.deaths[0], limit=node_death.NO_HELPER)
    now = 1_700_000_000.0
    new = msgspec.structs.replace(
        state, deaths=(held,), fenced=((now, "n"),), mass_event=now
    )
    entry = {"round": "s", "automaton": NODE_DEATH}
    site.client.call("ChangeNodeDeaths", [2, msgspec.to_builtins(new), [], entry])
    site.master.stop()
    site.master.start()
    with site.master.client() as client:
        kept = client.call("QueryNodeDeaths", [False])["state"]
        numbers = client.call("QueryMetrics")
        known = client.call("QueryAutomation")
    assert (kept["serial_no"], kept["deaths"][0]["limit"]) == (3, "no-helper")
    assert numbers["node_deaths"] == {"suspected": 1}
    assert (numbers["refused_deaths"], numbers["fenced"]) == ({"no-helper": 1}, 1)
    assert (known["mass_event"], known["fenced"]) == (now, [now])
    assert known["node_death"] is True


def test_limits_are_known_while_a_mass_event_is_remembered(site):
    """The quiet time is one of them: the event is forgotten after it."""
    switch(site, automation_limits={"quiet-time": 7200.0})
    assert facts(site, probe=False)["automation"]["limits"] == {}
    entry = {"round": "r", "automaton": NODE_DEATH}
    site.client.call("ChangeNodeDeaths", [1, {"mass_event": 1.0}, [], entry])
    answer = facts(site, probe=False)
    assert answer["nodes"] == []
    assert answer["automation"]["limits"] == {"quiet-time": 7200.0}


@pytest.mark.parametrize(
    ("result", "is_off"),
    [
        ([[[0, "n"], [0, {"powered": False}]]], True),
        ([[[0, "n"], [0, {"powered": True}]]], False),
        ([[[0, "n"], [0, {"powered": None}]]], False),
        ([[[0, "n"], [2, None]]], False),
        ([], False),
        (None, False),
        ("off", False),
        ([[[0, "n"], [0, {"powered": 0}]]], False),
    ],
)
def test_only_a_clear_answer_about_one_node_is_off(result, is_off):
    assert node_deaths._says_off(result) is is_off


def test_no_and_yes_within_one_round_forget_everything(site):
    switch(site)
    change(site)
    switch(site, value=False)
    switch(site)
    answer = facts(site, probe=False)
    assert (answer["is_enabled"], answer["state"]["is_given_up"]) == (True, True)
    assert answer["state"]["serial_no"] == 3
    # A step that was based on the state before is refused.
    with pytest.raises(errors.OpPrereqError, match="serial 3"):
        change(site, serial=2)


class WatchedLock:
    """A lock that reports when a thread has to wait for it."""

    def __init__(self):
        self.inner, self.is_wanted = threading.Lock(), False

    def __enter__(self):
        self.is_wanted = self.inner.locked()
        self.inner.acquire()

    def __exit__(self, *_exc):
        self.inner.release()


def test_a_no_during_a_step_is_not_overwritten(site, monkeypatch):
    switch(site)
    change(site)
    deaths = site.master.service.deps.config.node_deaths
    read, lock, jobs = deaths.state, WatchedLock(), []

    def state():
        present = read()
        if not jobs:
            op = {"OP_ID": "OP_CLUSTER_SET_PARAMS", "node_death": False}
            with site.master.client() as other:
                jobs.append(other.call("SubmitJob", [[op]]))
                until("the no", lambda: lock.is_wanted or has_ended(other))
        return present

    def has_ended(client):
        return client.call("QueryJobs", [jobs, ["status"]]) == [["success"]]

    monkeypatch.setattr(deaths, "lock", lock, raising=False)
    monkeypatch.setattr(deaths, "state", state)
    change(site, serial=2)
    assert job_status(site.client, jobs[0]) == "success"
    assert deaths.state().is_given_up
