"""Passes over repairs and balance: when they come, and what they may use."""

import msgspec
import pytest

from fakes.clocks import FakeClock
from ganeti.automation.maintenance import service
from ganeti.automation.maintenance.diagnoses import Diagnosis, Place
from ganeti.automation.maintenance.instances import Advanced
from ganeti.automation.maintenance.passes import Passes, Surroundings
from ganeti.base import errors
from ganeti.decisions.repair import rounds
from ganeti.decisions.repair.duties import Duties
from ganeti.decisions.repair.incidents import MaintenanceState
from ganeti.decisions.repair.limits import Automation, Freeze

NODES = {
    f"u{n}": rounds.NodeView(uuid=f"u{n}", name=f"node{n}", group="g")
    for n in (1, 2, 3)
}
PLACES = {uuid: Place(node.name, "192.0.2.1", 1) for uuid, node in NODES.items()}
MOVE = {
    "instance": "web1",
    "from": ["node1", "node2"],
    "to": ["node2", "node1"],
    "opcodes": [{"OP_ID": "OP_INSTANCE_MIGRATE", "instance_name": "web1"}],
    "score": 1.0,
}
BALANCE = Duties(balance=True)
LOAD = Duties(balance=True, balance_load=True)
#: Seconds since 1970; reports are from then, unless a test says otherwise.
NOW = 100_000.0


class Site:
    """A master, agents and repairs around passes."""

    def __init__(self):
        self.clock = FakeClock(NOW)
        self.requests = []
        self.moves = [MOVE]
        self.dying = []
        self.refusal = None
        self.loads = dict.fromkeys(NODES, 1.0)
        self.collected = NOW
        self.paths = []
        self.repaired = []
        self.result = Advanced((), frozenset())
        self.passes = Passes(self.call, self.poll, self.repair, self.clock)

    def call(self, method, args):
        if method == "QueryNodeDeaths":
            return {"state": {"deaths": [{"node": uuid} for uuid in self.dying]}}
        if method == "QueryAutomation":
            return msgspec.to_builtins(Automation(revision=1))
        assert method == "PlanBalance"
        if self.refusal is not None:
            raise self.refusal
        self.requests.append(args[0])
        group = {"name": "g", "score_before": 2.0, "moves": self.moves, "stopped": "x"}
        return {"groups": [group]}

    def poll(self, places, path):
        self.paths.append(path)
        stamp = int(self.collected * 1e9)
        given = {u: v for u, v in self.loads.items() if u in places}
        name = f"guest of {path}" if "xen" in path else "cpu_total"
        reports = {u: Diagnosis({name: v}, stamp) for u, v in given.items()}
        return reports, {}

    def repair(self, names):
        self.repaired.append(sorted(names))
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    def play(self, duties, *, free=tuple(NODES), state=None, untouched=None, **around):
        plan = rounds.Plan(
            state or MaintenanceState(),
            [],
            frozenset(free),
            [],
            is_waiting=False,
            untouched=frozenset(free if untouched is None else untouched),
        )
        automation = around.pop("automation", Automation(revision=1))
        given = Surroundings("c", NODES, PLACES, automation, "r1", **around)
        return self.passes.add(plan, duties, given)


@pytest.fixture
def site():
    return Site()


def test_nothing_is_asked_while_everything_is_off(site):
    plan = site.play(Duties())
    assert not site.requests
    assert not plan.jobs
    assert site.passes.left_s(Duties()) is None


def test_a_pass_comes_at_once_and_then_after_the_interval(site):
    assert len(site.play(BALANCE).jobs) == 1
    assert not site.play(BALANCE).jobs
    site.clock.now += 299.0
    assert site.passes.left_s(BALANCE) == 1.0
    assert not site.play(BALANCE).jobs
    site.clock.now += 1.0
    assert len(site.play(BALANCE).jobs) == 1


def test_a_shorter_interval_holds_at_once(site):
    site.play(BALANCE)
    site.clock.now += 10.0
    assert site.passes.left_s(Duties(balance=True, round_delay=10)) == 0


def test_the_request_has_the_settings_and_the_free_nodes(site):
    duties = Duties(balance=True, balance_threshold=0.5, balance_disk_moves=True)
    site.dying = ["u1"]
    site.play(duties, free=("u1", "u2"))
    (request,) = site.requests
    assert request["nodes"] == ["node2"]
    assert (request["min_gain"], request["disk_moves"]) == (0.5, True)
    assert 4.999999 < request["min_gain_limit"] < 5.0
    assert not {"loads", "domain_loads"} & request.keys()


def test_a_node_whose_diagnosis_is_not_usable_takes_no_part(site):
    site.play(BALANCE, doubtful={"u3"})
    assert site.requests[0]["nodes"] == ["node1", "node2"]


def test_an_unsuccessful_plan_is_not_computed_again_until_something_changes(site):
    site.moves = []
    items = site.play(BALANCE).items
    assert items
    site.clock.now += 300.0
    assert list(site.play(BALANCE).items) == list(items)
    assert len(site.requests) == 1
    site.clock.now += 300.0
    site.play(BALANCE, automation=Automation(revision=2))
    assert len(site.requests) == 2


def test_refusals_hold_between_passes(site):
    site.refusal = errors.OpPrereqError("cannot plan balancing: no data", "state")
    first = site.play(BALANCE).items
    assert first[0].reason == "cannot plan balancing: no data"
    assert list(site.play(BALANCE).items) == list(first)


def test_a_freeze_keeps_the_planner_from_work(site):
    frozen = Automation(revision=1, freeze=Freeze("audit", 1.0))
    (item,) = site.play(BALANCE, automation=frozen).items
    assert (item.name, item.limit) == ("c", "frozen")
    assert "audit" in item.reason
    assert not site.requests


@pytest.mark.parametrize("load", [None, float("nan"), -1.0, True, "1", 1e9])
def test_a_load_that_is_missing_or_impossible_ends_balancing(site, load):
    site.loads["u2"] = load
    (item,) = site.play(LOAD).items
    assert item.reason == "node node2: its load is not used: it has no load of the CPUs"
    assert not site.requests
    site.loads["u2"] = 2.5
    site.clock.now += 300.0
    site.play(LOAD)
    assert site.requests[0]["loads"] == {"node1": 1.0, "node2": 2.5, "node3": 1.0}


def test_agents_on_xen_report_the_load_of_each_guest(site):
    site.play(LOAD, is_xen=True)
    (path,) = site.paths
    assert path == "/1/report/default/xen-cpu-avg-load"
    (request,) = site.requests
    guest = {f"guest of {path}": 1.0}
    assert request["domain_loads"] == dict.fromkeys(("node1", "node2", "node3"), guest)
    assert "loads" not in request


@pytest.mark.parametrize("load", [None, float("nan"), -1.0, "not enough samples"])
def test_a_load_of_a_guest_that_is_impossible_ends_balancing(site, load):
    site.loads["u2"] = load
    (item,) = site.play(LOAD, is_xen=True).items
    assert item.reason == "node node2: its load is not used: it has no load of the CPUs"
    assert not site.requests


def test_evacuated_instances_stay_until_their_load_is_known(site):
    state = MaintenanceState(evacuated=("web7",), mtime=NOW - 599.0)
    plan = site.play(LOAD, state=state)
    assert site.requests[0]["fixed"] == ["web7"]
    assert plan.state.evacuated == ("web7",)
    site.clock.now += 300.0
    site.collected = NOW + 1.0
    plan = site.play(LOAD, state=state)
    assert site.requests[1]["fixed"] == []
    assert plan.state.evacuated == ()


def test_repairs_take_untouched_nodes_and_balancing_the_others(site):
    duties = Duties(balance=True, repairs=True)
    site.result = Advanced((7, 8), frozenset({"node2"}))
    state = MaintenanceState(jobs=(5,))
    plan = site.play(
        duties, free=("u1", "u2"), untouched=("u1", "u2", "u3"), state=state
    )
    assert site.repaired == [["node1", "node2", "node3"]]
    assert site.requests[0]["nodes"] == ["node1"]
    assert plan.state.jobs == (5, 7, 8)


def test_incidents_do_not_wait_for_repairs_that_are_not_possible(site):
    duties = Duties(balance=True, repairs=True)
    site.result = errors.LockError("harep runs")
    (item,) = site.play(duties).items
    assert (item.action, item.reason) == ("repair instances", "harep runs")
    assert not site.requests
    assert site.passes.left_s(duties) == 0.0


def test_moves_of_the_round_count_for_the_share(site):
    limits = Automation(revision=1, limits={"moved-share": 10.0}, instances=10)
    moved = rounds.Item(
        kind="instance", name="web9", decision="chosen", action="x", moves=True
    )
    plan = rounds.Plan(
        MaintenanceState(), [], frozenset(NODES), [], is_waiting=False, items=[moved]
    )
    around = Surroundings("c", NODES, PLACES, limits, "r1")
    done = site.passes.add(plan, BALANCE, around)
    assert [item.decision.value for item in done.items[1:]] == ["waiting"]
    assert not done.jobs


def test_no_pass_begins_while_jobs_run(site):
    plan = rounds.Plan(MaintenanceState(), [], frozenset(NODES), [], is_waiting=True)
    around = Surroundings("c", NODES, PLACES, Automation(), "r1")
    assert site.passes.add(plan, BALANCE, around) is plan
    assert not site.requests


@pytest.mark.parametrize(
    ("info", "is_xen"),
    [
        ({}, False),
        ({"enabled_hypervisors": ["xen-pvm"]}, True),
        ({"enabled_hypervisors": ["xen-pvm", "xen-hvm"]}, True),
        ({"enabled_hypervisors": ["xen-pvm", "kvm"]}, False),
        (
            {
                "enabled_hypervisors": ["xen-pvm"],
                "enabled_data_collectors": {"xen-cpu-avg-load": False},
            },
            False,
        ),
    ],
)
def test_the_load_of_guests_counts_where_xen_is_the_only_hypervisor(info, is_xen):
    assert service._is_xen(info) is is_xen
