"""Rounds over LUXI: in which order the cluster is looked at, and what a failure stops."""

import itertools

import msgspec
import pytest

from fakes.clocks import FakeClock
from ganeti.automation.maintenance.diagnoses import NOT_REPEATED, Diagnosis, Steady
from ganeti.automation.maintenance.service import Maintenance
from ganeti.base import errors
from ganeti.decisions.repair.incidents import (
    Action,
    Incident,
    IncidentState,
    MaintenanceState,
)
from ganeti.decisions.repair.journal import Round

FAULT = {"status": "live-repair", "command": "fix"}
TAG = "maintd:repairfailed:i1"


class SmallMaster:
    """Answers the calls of a round; each node is in the group that has its number."""

    def __init__(self, **incident):
        item = Incident(uuid="i1", node="u2", tag=TAG, **incident)
        self.state = MaintenanceState(jobs=item.jobs[-1:], incidents=(item,))
        self.job = "success"
        self.interval_s = 5
        self.nodes = {
            f"u{n}": {"role": "M" if n == 1 else "C", "tags": []} for n in (1, 2, 3)
        }
        self.refusal = None
        self.submitted = []
        self.rounds = []

    def call(self, method, args):
        return getattr(self, f"on_{method}")(*args)

    def on_QueryMaintenance(self):
        return msgspec.to_builtins(self.state)

    def on_QueryClusterInfo(self):
        return {
            "diagnose_data_collector_filename": "check",
            "data_collector_interval": {"diagnose": self.interval_s * 1_000_000},
        }

    def on_Query(self, _kind, fields, _filter):
        rows = []
        for uuid, values in self.nodes.items():
            row = {"uuid": uuid, "name": f"node{uuid[1]}", "pip": "192.0.2.1"}
            row |= {"group.uuid": f"g{uuid[1]}", "offline": False, "drained": False}
            row |= {"pinst_list": [], "sinst_list": []} | values
            rows.append([[0, row[name]] for name in fields])
        return {"data": rows}

    def on_QueryJobs(self, jobs, _fields):
        failed = errors.encode(errors.OpExecError("node2 has no room"))
        return [
            [self.job, [None, failed if self.job == "error" else None]] for _ in jobs
        ]

    def on_PlanBalance(self, _request):
        if self.refusal is not None:
            raise self.refusal
        return {"groups": []}

    def on_QueryAutomation(self):
        return {"revision": 3}

    def on_RecordRound(self, entry):
        self.rounds.append(msgspec.convert(entry, Round))

    def on_ChangeMaintenance(self, _serial, state, jobs, entry):
        self.on_RecordRound(entry)
        self.state = msgspec.convert(state, MaintenanceState)
        self.submitted += jobs
        return state


def play(master, poll):
    """Play a round; the commands of the nodes have printed the same before."""
    steady = Steady()

    def asked(places):
        data, problems = poll(places)
        steady.sift({uuid: Diagnosis(each, 1) for uuid, each in data.items()}, problems)
        return {uuid: Diagnosis(each, 2) for uuid, each in data.items()}, problems

    Maintenance(master.call, asked, FakeClock(), 1815, steady=steady).round()
    return {item.uuid: item for item in master.state.incidents}


def test_an_incident_is_kept_whose_tag_is_set_while_agents_are_asked():
    master = SmallMaster(
        original=FAULT,
        action=Action.LIVE_REPAIR,
        state=IncidentState.FAILED,
        jobs=(7, 8),
        tag_job=8,
    )
    master.job = "running"

    def poll(_places):
        master.job = "success"
        master.nodes["u2"]["tags"] = [TAG]
        return {"u2": FAULT}, {}

    assert list(play(master, poll)) == ["i1"]
    assert play(master, poll)["i1"].state is IncidentState.FAILED
    assert not master.submitted


def test_a_group_without_a_plan_does_not_keep_others_from_their_repairs():
    master = SmallMaster(
        original={"status": "evacuate"},
        action=Action.EVACUATE,
        state=IncidentState.PENDING,
        jobs=(7,),
    )
    master.nodes["u2"] |= {"drained": True, "pinst_list": ["web1"]}
    master.refusal = errors.OpPrereqError("node5 does not answer", "wrong_state")
    incidents = play(master, lambda _places: ({"u3": FAULT}, {}))
    assert "node5 does not answer" in incidents["i1"].note
    assert [job["ops"][0]["OP_ID"] for job in master.submitted] == ["OP_REPAIR_COMMAND"]


@pytest.mark.parametrize("flags", [{"drained": True}, {"offline": True}])
def test_moves_are_planned_for_drained_and_offline_nodes(flags):
    master = SmallMaster(
        original={"status": "evacuate"},
        action=Action.EVACUATE,
        state=IncidentState.PENDING,
        jobs=(7,),
    )
    master.nodes["u2"] |= {"pinst_list": ["web1"], **flags}
    asked = []
    master.on_PlanBalance = lambda request: asked.append(request) or {"groups": []}
    play(master, lambda _places: ({}, {}))
    assert [(each["group"], each["evacuate"]) for each in asked] == [("g2", True)]


def test_each_round_is_in_the_journal_with_the_ends_of_jobs():
    master = SmallMaster(
        original=FAULT,
        action=Action.LIVE_REPAIR,
        state=IncidentState.PENDING,
        jobs=(7,),
    )
    play(master, lambda _places: ({"u2": FAULT}, {"u3": "it was recorded"}))
    (entry,) = master.rounds
    assert (entry.automaton, entry.revision) == ("maintd", 3)
    assert [(end.job, end.status) for end in entry.results] == [(7, "success")]
    refused, tagged = entry.items
    assert (refused.name, refused.reason) == ("node3", "it was recorded")
    assert (tagged.jobs, tagged.ids) == ((0,), ("i1",))
    ((source, text, _time),) = master.submitted[0]["ops"][0]["reason"][-1:]
    assert (source, text) == ("gnt:journal", f"round {entry.round}")


def test_the_journal_has_the_errors_of_jobs():
    for status, error in (("error", "node2 has no room"), (None, "ended as lost")):
        master = SmallMaster(
            original=FAULT,
            action=Action.LIVE_REPAIR,
            state=IncidentState.PENDING,
            jobs=(7,),
        )
        master.job = status
        play(master, lambda _places: ({"u2": FAULT}, {}))
        (entry,) = master.rounds
        (end,) = entry.results
        assert (end.job, end.status, end.error) == (7, "error", error)


def test_a_round_that_changes_nothing_is_recorded_by_itself():
    master = SmallMaster(
        original=FAULT, action=Action.LIVE_REPAIR, state=IncidentState.CANCELED
    )
    play(master, lambda _places: ({"u2": FAULT}, {}))
    (entry,) = master.rounds
    assert (entry.items, entry.results) == ((), ())
    assert not master.submitted


def test_a_master_of_an_earlier_release_gets_rounds_as_before(caplog):
    master = SmallMaster(original=FAULT, action=Action.LIVE_REPAIR)
    changes = []

    def refuse(*_args):
        raise errors.RequestError("Failed to parse request: unknown method 'Q'")

    def change(_serial, state, jobs):
        changes.append(jobs)
        master.state = msgspec.convert(state, MaintenanceState)
        return state

    master.on_QueryAutomation = master.on_RecordRound = refuse
    master.on_ChangeMaintenance = change
    play(master, lambda _places: ({"u2": FAULT}, {}))
    assert [job["ops"][0]["OP_ID"] for (job,) in changes] == ["OP_REPAIR_COMMAND"]
    assert "the master daemon is of an earlier release" in caplog.text


def test_only_nodes_with_a_fault_are_asked_for_their_instances():
    master = SmallMaster(
        original=FAULT, action=Action.LIVE_REPAIR, state=IncidentState.CANCELED
    )
    asked = []
    answer = master.on_Query

    def note(kind, fields, qfilter):
        asked.append((fields, qfilter))
        return answer(kind, fields, qfilter)

    master.on_Query = note
    play(master, lambda _places: ({"u2": FAULT, "u1": {"status": "Ok"}}, {}))
    (_all, no_filter), (fields, qfilter) = asked
    assert no_filter is None
    assert fields == ["uuid", "pinst_list", "sinst_list"]
    assert qfilter == ["|", ["==", "uuid", "u2"]]


def test_a_node_without_an_answer_about_its_instances_does_not_count_as_empty():
    evacuate = {"status": "evacuate"}
    master = SmallMaster(original=evacuate, action=Action.EVACUATE)
    answer = master.on_Query

    def forget(kind, fields, qfilter):
        if qfilter is not None:
            return {"data": []}
        return answer(kind, fields, qfilter)

    master.on_Query = forget
    with pytest.raises(errors.ProtocolError, match="node2: no answer about its inst"):
        play(master, lambda _places: ({"u2": evacuate}, {}))
    assert not master.submitted


def test_a_command_that_prints_something_else_each_time_causes_nothing(caplog):
    master = SmallMaster(original=FAULT, action=Action.LIVE_REPAIR)
    master.state = MaintenanceState()
    runs = itertools.count()

    def poll(_places):
        number = next(runs)
        data = {"status": "evacuate", "details": number}
        return {"u2": Diagnosis(data, number)}, {}

    maintenance = Maintenance(master.call, poll, FakeClock(), 1815)
    for _ in range(5):
        maintenance.round()
    assert (master.state.incidents, master.submitted) == ((), [])
    reasons = {item.reason for entry in master.rounds for item in entry.items}
    assert reasons == {NOT_REPEATED}
    text = f"node node2: its diagnosis is not used: {NOT_REPEATED}"
    assert caplog.messages.count(text) == 1


def test_a_command_that_cannot_be_used_is_in_the_journal_and_causes_nothing(caplog):
    master = SmallMaster(original=FAULT, action=Action.LIVE_REPAIR)
    master.state = MaintenanceState()
    why = "diagnose command check did not end in time and was killed"
    data = {"status": "Ok", "details": why}
    poll = lambda _places: ({"u2": Diagnosis(data, 1, why)}, {})  # noqa: E731
    Maintenance(master.call, poll, FakeClock(), 1815).round()
    (item,) = master.rounds[-1].items
    assert (item.name, item.reason) == ("node2", why)
    assert (master.state.incidents, master.submitted) == ((), [])
    assert f"node node2: its diagnosis is not used: {why}" in caplog.messages


def test_a_late_answer_is_awaited_by_an_early_round():
    master = SmallMaster(original=FAULT, action=Action.LIVE_REPAIR)
    master.state = MaintenanceState()
    waits = {
        is_late: Maintenance(
            *(master.call, lambda _places: ({}, {}), FakeClock(), 1815),
            is_late=lambda is_late=is_late: is_late,
        )
        for is_late in (False, True)
    }
    master.interval_s = 600
    assert {key: each.round() for key, each in waits.items()} == {False: 600, True: 5}
