"""Rounds of the maintenance daemon over a small cluster that carries out each job."""

import dataclasses
import itertools
import json

import pytest

from ganeti.decisions.repair import rounds
from ganeti.decisions.repair.incidents import (
    TAG_PAUSE_S,
    Action,
    Incident,
    IncidentState,
    MaintenanceState,
    as_reported,
)
from ganeti.decisions.repair.limits import Automation, Freeze
from ganeti.decisions.repair.rounds import Move, NodeView, Seen

EVACUATE = {"status": "evacuate", "details": {"part": "psu2"}}
NOW = 1_700_000_000.0


class SmallCluster:
    """A cluster that does what jobs say, and a daemon that may die after any step."""

    def __init__(self, count=4, instances=(("web1", 2), ("web2", 2))):
        self.now = NOW
        self.nodes = {
            f"u{n}": NodeView(f"u{n}", f"node{n}", "g1", is_master=n == 1)
            for n in range(1, count + 1)
        }
        self.places = {name: f"u{number}" for name, number in instances}
        self.reports = {}
        self.state = MaintenanceState()
        self.ends = {}
        self.failing = set()
        self.done = []
        self.ids = itertools.count(100)
        self.uuids = itertools.count(1)
        self.notes = []

    def seen(self):
        nodes = {
            uuid: dataclasses.replace(
                node, primaries=[n for n, at in self.places.items() if at == uuid]
            )
            for uuid, node in self.nodes.items()
        }
        usable = [u for u, n in nodes.items() if not n.offline and not n.drained]
        moves = {
            name: Move(
                name,
                [
                    {"OP_ID": "OP_INSTANCE_MIGRATE", "instance_name": name}
                    | {"target_node": nodes[usable[-1]].name, "mode": "live"}
                ],
                frozenset({at, usable[-1]}),
            )
            for name, at in self.places.items()
            if usable and (nodes[at].drained or nodes[at].offline)
        }
        ended = {job: self.ends.get(job, False) for job in self.state.jobs}
        reports = {u: self.reports.get(u, {"status": "Ok"}) for u in usable}
        reports |= {u: r for u, r in self.reports.items() if not nodes[u].offline}
        return Seen(
            self.now, nodes, reports, ended, moves, lambda: f"i{next(self.uuids)}"
        )

    def round(self, *, dies=False):
        """Play one round; the daemon may die before its commit."""
        plan = rounds.decide(self.state, self.seen())
        if dies:
            return plan
        ids = [next(self.ids) for _ in plan.jobs]
        named = [(job.incident, job.is_tag) for job in plan.jobs]
        self.state = rounds.with_jobs(plan.state, named, ids)
        self.notes += plan.notes
        used = set()
        for job, id_ in zip(plan.jobs, ids, strict=True):
            kinds = [op["OP_ID"] for op in job.ops]
            is_failing = bool(self.failing & set(kinds))
            self.ends[id_] = not is_failing
            if not is_failing:
                used |= self.carry_out(job)
        return plan

    def carry_out(self, job):
        for op in job.ops:
            self.done.append(op)
            if op["OP_ID"] == "OP_NODE_SET_PARAMS":
                self.change(
                    op["node_name"],
                    **{k: op[k] for k in ("drained", "offline") if k in op},
                )
            elif op["OP_ID"] == "OP_TAGS_SET":
                self.change(op["name"], tags=[*self.node(op["name"]).tags, *op["tags"]])
            elif op["OP_ID"].startswith("OP_INSTANCE"):
                self.places[op["instance_name"]] = self.node(op["target_node"]).uuid
        return set()

    def node(self, name):
        return next(node for node in self.nodes.values() if node.name == name)

    def change(self, name, **changes):
        node = self.node(name)
        self.nodes[node.uuid] = dataclasses.replace(node, **changes)

    def kinds(self):
        return [op["OP_ID"] for op in self.done]

    def only(self):
        (incident,) = self.state.incidents
        return incident


def test_an_evacuation_from_the_report_to_the_acknowledgement():
    cluster = SmallCluster()
    cluster.reports["u2"] = EVACUATE
    for _ in range(6):
        cluster.round()
        cluster.now += 5
    assert cluster.kinds() == [
        "OP_NODE_SET_PARAMS",
        *["OP_INSTANCE_MIGRATE"] * 2,
        "OP_NODE_SET_PARAMS",
        "OP_TAGS_SET",
    ]
    incident = cluster.only()
    assert incident.state is IncidentState.COMPLETED
    assert cluster.nodes["u2"].offline
    assert cluster.nodes["u2"].tags == ["maintd:repairready:i1"]
    assert set(cluster.places.values()) == {"u4"}
    assert cluster.state.evacuated == ("web1", "web2")
    shown = as_reported(incident)
    assert shown["id"] == "i1"
    assert shown["repair-status"] == "completed"
    assert shown["original"] == EVACUATE
    assert shown["jobs"] == [100, 101, 102, 103]
    # Reasons name the daemon and the event.
    for op in cluster.done:
        assert [entry[0] for entry in op["reason"]] == ["gnt:daemon:maintd"] * 2
        assert op["reason"][1][1] == "event i1"
    # The repaired node is back, and the tag removed: the incident is over.
    cluster.change("node2", offline=False, drained=False)
    cluster.round()
    assert cluster.state.incidents
    cluster.change("node2", tags=[])
    cluster.round()
    assert cluster.state.incidents, "it is still observed"
    cluster.reports["u2"] = {"status": "Ok"}
    cluster.round()
    assert not cluster.state.incidents
    count = len(cluster.done)
    cluster.round()
    assert len(cluster.done) == count


@pytest.mark.parametrize("cut", range(7))
def test_a_daemon_that_dies_in_any_round_does_nothing_twice(cut):
    plain, crashed = SmallCluster(), SmallCluster()
    for cluster in (plain, crashed):
        cluster.reports["u2"] = EVACUATE
    for number in range(7):
        if number == cut:
            crashed.round(dies=True)
        plain.round()
        crashed.round()
    assert crashed.kinds() == plain.kinds()
    assert crashed.only().state is IncidentState.COMPLETED


def test_nothing_is_submitted_while_jobs_run_but_incidents_are_noted():
    cluster = SmallCluster()
    cluster.reports["u2"] = EVACUATE
    cluster.round()
    (job,) = cluster.state.jobs
    cluster.ends[job] = None
    cluster.reports["u3"] = {"status": "evacuate", "details": 3}
    plan = cluster.round()
    assert plan.is_waiting
    assert not plan.jobs
    assert len(cluster.state.incidents) == 2
    assert cluster.state.jobs == (job,)


def test_a_failed_job_ends_the_incident_until_a_person_removes_the_tag():
    cluster = SmallCluster()
    cluster.reports["u2"] = EVACUATE
    cluster.failing = {"OP_INSTANCE_MIGRATE"}
    for _ in range(5):
        cluster.round()
    incident = cluster.only()
    assert incident.state is IncidentState.FAILED
    assert "job 101 failed" in incident.note
    assert incident.tag == "maintd:repairfailed:i1"
    assert cluster.nodes["u2"].tags == [incident.tag]
    assert cluster.kinds() == ["OP_NODE_SET_PARAMS", "OP_TAGS_SET"]
    # The removal starts the flow again.
    cluster.failing = set()
    cluster.change("node2", tags=[])
    for _ in range(6):
        cluster.round()
    assert cluster.only().uuid == "i2"
    assert cluster.only().state is IncidentState.COMPLETED


def test_a_tag_that_could_not_be_set_is_set_again_after_a_pause():
    cluster = SmallCluster()
    cluster.reports["u2"] = {"status": "live-repair", "command": "../fix"}
    cluster.failing = {"OP_TAGS_SET"}
    for _ in range(50):
        cluster.round()
        cluster.now += 1
    assert cluster.only().state is IncidentState.FAILED
    assert cluster.only().jobs == (100,), "one job, not one per round"
    assert "the next attempt is in 600 seconds" in cluster.notes[-1]
    cluster.now = NOW + TAG_PAUSE_S - 1
    cluster.round()
    assert cluster.only().jobs == (100,)
    cluster.failing = set()
    cluster.now += 3
    cluster.round()
    assert cluster.only().jobs == (100, 101)
    assert cluster.nodes["u2"].tags == ["maintd:repairfailed:i1"]
    assert "is not the name of a repair command" in cluster.only().note


def test_the_tag_of_a_failure_follows_a_tag_of_success_at_once():
    cluster = SmallCluster()
    cluster.reports["u2"] = {"status": "live-repair", "command": "fix"}
    cluster.round()
    cluster.failing = {"OP_TAGS_SET"}
    cluster.round()
    assert cluster.only().state is IncidentState.PENDING, "without its tag"
    cluster.failing = set()
    cluster.round()
    assert cluster.only().state is IncidentState.FAILED
    assert cluster.nodes["u2"].tags == ["maintd:repairfailed:i1"]


@pytest.mark.parametrize("command", [{}, {"command": None}, {"command": ""}])
def test_a_live_repair_without_a_command_is_left_to_people(command):
    cluster = SmallCluster()
    cluster.reports["u2"] = {"status": "live-repair", "details": "swap fan"} | command
    cluster.round()
    assert cluster.only().state is IncidentState.PENDING
    assert cluster.kinds() == ["OP_TAGS_SET"]
    assert cluster.nodes["u2"].tags == ["maintd:repairready:i1"]
    cluster.round()
    assert cluster.only().state is IncidentState.COMPLETED
    assert not cluster.nodes["u2"].offline


@pytest.mark.parametrize(
    "command",
    ["../fix", "/bin/sh", "fix now", "fix\n", ".", "f\u00fcx", "x" * 256, "x/" * 8000],
)
def test_a_command_that_is_no_file_name_fails_without_a_job(command):
    cluster = SmallCluster()
    cluster.reports["u2"] = {"status": "live-repair", "command": command}
    for _ in range(3):
        cluster.round()
    incident = cluster.only()
    assert incident.state is IncidentState.FAILED
    assert "is not the name of a repair command" in incident.note
    assert cluster.kinds() == ["OP_TAGS_SET"]
    assert len(incident.note) < 200
    assert all(len(note) < 300 for note in cluster.notes)


def test_a_live_repair_gets_the_whole_object():
    cluster = SmallCluster()
    original = {"status": "live-repair", "command": "fix", "details": [1]}
    cluster.reports["u3"] = original
    for _ in range(3):
        cluster.round()
    repair, tag = cluster.done
    assert (repair["OP_ID"], repair["command"]) == ("OP_REPAIR_COMMAND", "fix")
    assert (repair["node_name"], json.loads(repair["input"])) == ("node3", original)
    assert tag["tags"] == ["maintd:repairready:i1"]
    assert not cluster.nodes["u3"].offline
    assert not cluster.nodes["u3"].drained


def test_a_report_causes_actions_on_its_own_node_alone():
    cluster = SmallCluster()
    cluster.reports["u3"] = {"status": "evacuate", "node": "node2", "details": "node4"}
    for _ in range(3):
        cluster.round()
    assert {op["node_name"] for op in cluster.done if "node_name" in op} == {"node3"}


def test_failover_instead_of_migration():
    cluster = SmallCluster()
    cluster.reports["u2"] = {"status": "evacuate-failover"}
    for _ in range(3):
        cluster.round()
    move = cluster.done[1]
    assert move["OP_ID"] == "OP_INSTANCE_FAILOVER"
    assert move["ignore_consistency"] is True
    assert "mode" not in move


def test_the_more_severe_incident_of_a_node_comes_first():
    cluster = SmallCluster()
    cluster.reports["u3"] = {"status": "live-repair", "command": "fix"}
    cluster.now += 1
    plan = rounds.decide(cluster.state, cluster.seen())
    cluster.state = plan.state
    cluster.reports["u3"] = EVACUATE
    cluster.round()
    assert [op["OP_ID"] for op in cluster.done] == ["OP_NODE_SET_PARAMS"]
    assert {item.action for item in cluster.state.incidents} == {
        Action.LIVE_REPAIR,
        Action.EVACUATE,
    } or len(cluster.state.incidents) == 1


def test_evacuations_of_a_group_are_limited_per_hour():
    cluster = SmallCluster(count=6, instances=())
    for node in ("u2", "u3", "u4"):
        cluster.reports[node] = EVACUATE
    for _ in range(5):
        cluster.round()
    offline = [uuid for uuid, node in cluster.nodes.items() if node.offline]
    assert len(offline) == 2
    waiting = next(i for i in cluster.state.incidents if not i.state.is_final)
    assert "the limit is 2" in waiting.note
    cluster.now += 3601
    for _ in range(3):
        cluster.round()
    assert cluster.nodes[waiting.node].offline


def test_the_master_is_not_drained():
    cluster = SmallCluster()
    cluster.reports["u1"] = EVACUATE
    cluster.round()
    assert not cluster.done
    assert "master-failover" in cluster.only().note
    cluster.change("node1", is_master=False)
    cluster.round()
    assert cluster.kinds() == ["OP_NODE_SET_PARAMS"]


def test_a_move_needs_nodes_that_no_incident_concerns():
    cluster = SmallCluster(count=3, instances=(("web1", 2),))
    cluster.reports["u2"] = EVACUATE
    cluster.round()
    cluster.reports["u3"] = {"status": "live-repair", "command": "fix"}
    cluster.round()
    assert "OP_INSTANCE_MIGRATE" not in cluster.kinds()
    evacuation = next(i for i in cluster.state.incidents if i.node == "u2")
    assert "cannot be emptied now" in evacuation.note


def test_canceled_incidents_cause_nothing_and_end_with_the_fault():
    cluster = SmallCluster()
    cluster.reports["u2"] = EVACUATE
    cluster.state = rounds.decide(cluster.state, cluster.seen()).state
    item = cluster.only().entered(IncidentState.CANCELED, cluster.now)
    cluster.state = MaintenanceState(incidents=(item,))
    cluster.round()
    assert not cluster.done
    assert cluster.only().state is IncidentState.CANCELED
    cluster.reports["u2"] = {"status": "Ok"}
    cluster.round()
    assert not cluster.state.incidents


def test_a_diagnosis_that_always_changes_does_not_fill_the_configuration():
    cluster = SmallCluster()
    for number in range(20):
        cluster.reports["u1"] = {"status": "evacuate", "details": number}
        plan = rounds.decide(cluster.state, cluster.seen())
        cluster.state = plan.state
    assert len(cluster.state.incidents) <= rounds.MAX_PER_NODE


def test_a_node_that_goes_offline_is_not_ready_while_instances_are_on_it():
    cluster = SmallCluster()
    cluster.reports["u2"] = EVACUATE
    cluster.round()
    cluster.change("node2", offline=True, drained=False)
    cluster.round()
    assert cluster.only().state is IncidentState.PENDING
    for _ in range(4):
        cluster.round()
    assert cluster.only().state is IncidentState.COMPLETED
    assert "u2" not in cluster.places.values()
    assert cluster.kinds() == [
        "OP_NODE_SET_PARAMS",
        *["OP_INSTANCE_MIGRATE"] * 2,
        "OP_TAGS_SET",
    ]


def test_the_reason_why_no_moves_are_planned_is_shown_and_others_go_on():
    cluster = SmallCluster(instances=(("web1", 2),))
    cluster.reports["u2"] = EVACUATE
    cluster.round()
    cluster.reports["u3"] = {"status": "live-repair", "command": "fix"}
    seen = dataclasses.replace(
        cluster.seen(), moves={}, unplanned={"g1": "node4 does not answer"}
    )
    plan = rounds.decide(cluster.state, seen)
    notes = {item.node: item.note for item in plan.state.incidents}
    assert "cannot be emptied now: node4 does not answer" in notes["u2"]
    assert [job.ops[0]["OP_ID"] for job in plan.jobs] == ["OP_REPAIR_COMMAND"]


def test_unknown_status_and_removed_nodes():
    cluster = SmallCluster(instances=())
    for data in ({"status": "explode"}, [1], None, {}):
        cluster.reports["u2"] = data
        plan = cluster.round()
        assert "no known status" in plan.notes[0]
    cluster.reports = {"u2": EVACUATE}
    cluster.round()
    del cluster.nodes["u2"], cluster.reports["u2"]
    cluster.round()
    assert not cluster.state.incidents


def test_states_follow_the_table():
    for before in IncidentState:
        item = Incident(uuid="i", node="u", original={}, action=Action.OK, state=before)
        for after in IncidentState:
            allowed = {
                IncidentState.NOTED: {"pending", "canceled", "failed", "completed"},
                IncidentState.PENDING: {"canceled", "failed", "completed"},
                IncidentState.COMPLETED: {"failed"},
            }.get(before, set())
            if after.value in allowed:
                assert item.entered(after, NOW).state is after
            else:
                with pytest.raises(ValueError, match="incident i"):
                    item.entered(after, NOW)


# Journal
def test_jobs_and_items_have_one_order_and_items_name_incident_and_instance():
    cluster = SmallCluster(instances=(("web1", 2), ("web2", 3)))
    cluster.reports["u2"] = EVACUATE
    cluster.reports["u3"] = {"status": "live-repair", "command": "fix"}
    plans = [cluster.round() for _ in range(3)]
    for plan in plans:
        assert [item.jobs for item in plan.items if item.jobs] == [(0,)] * len(
            plan.jobs
        )
    noted = [item for item in plans[0].items if item.action == "note an incident"]
    assert [item.name for item in noted] == ["node2", "node3"]
    (moved,) = [i for plan in plans for i in plan.items if i.kind == "instance"]
    assert (moved.name, moved.nodes) == ("web1", ("node2",))
    assert len(moved.ids) == 1


def test_waiting_is_in_each_round_and_the_same_in_all_of_them():
    cluster = SmallCluster()
    cluster.reports["u1"] = EVACUATE
    first, *later = [cluster.round() for _ in range(3)]
    assert "master-failover" in first.items[-1].reason
    for plan in later:
        (waiting,) = plan.items
        assert waiting == first.items[-1]
        assert waiting.decision == "waiting"


def test_diagnoses_that_are_not_used_are_refusals():
    cluster = SmallCluster()
    cluster.reports["u3"] = {"status": "odd"}
    seen = dataclasses.replace(cluster.seen(), unused={"u2": "its signature is wrong"})
    plan = rounds.decide(cluster.state, seen)
    assert [(item.name, item.decision) for item in plan.items] == [
        ("node2", "refused"),
        ("node3", "refused"),
    ]
    assert plan.items[0].reason == "its signature is wrong"


def test_the_reason_trail_names_the_round():
    cluster = SmallCluster()
    cluster.reports["u2"] = EVACUATE
    seen = dataclasses.replace(cluster.seen(), round="r1")
    (job,) = rounds.decide(cluster.state, seen).jobs
    assert job.ops[0]["reason"][-1][:2] == ["gnt:journal", "round r1"]


# Limits
def limited(cluster, **values):
    seen = cluster.seen
    actual = Automation(**values)
    cluster.seen = lambda: dataclasses.replace(seen(), automation=actual)


def test_a_freeze_holds_every_job_and_the_incident_says_why():
    cluster = SmallCluster()
    limited(cluster, freeze=Freeze("work", NOW))
    cluster.reports["u2"] = EVACUATE
    cluster.reports["u3"] = {"status": "live-repair", "command": "fix"}
    plans = [cluster.round() for _ in range(2)]
    assert not any(plan.jobs for plan in plans)
    assert {item.limit for item in plans[1].items} == {"frozen"}
    assert all("(work)" in item.note for item in cluster.state.incidents)
    limited(cluster)
    assert len(cluster.round().jobs) == 2


def test_a_freeze_holds_the_tag_of_an_emptied_node():
    cluster = SmallCluster(instances=())
    cluster.reports["u2"] = EVACUATE
    cluster.round()
    limited(cluster, freeze=Freeze("", NOW))
    for _ in range(3):
        cluster.round()
    assert cluster.only().state is IncidentState.PENDING
    assert "OP_TAGS_SET" not in cluster.kinds()
    limited(cluster)
    cluster.round()
    assert "OP_TAGS_SET" in cluster.kinds()


def test_instances_wait_for_the_limit_of_moves():
    cluster = SmallCluster()
    cluster.reports["u2"] = EVACUATE
    cluster.round()
    limited(cluster, limits={"moved-share": 50.0}, instances=2, moving=("other",))
    plan = cluster.round()
    assert not plan.jobs
    (refused,) = plan.items
    assert (refused.limit, refused.decision) == ("moved-share", "refused")
    limited(cluster, limits={"moved-share": 50.0}, instances=2)
    assert [item.moves for item in cluster.round().items if item.jobs] == [True]
