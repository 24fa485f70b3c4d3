"""Whatever happens and whenever: a guest never runs twice, no fence without proof.

Nodes lose power and get it back, parts of the network fail in either direction, helpers
fail or lie, jobs are cut off by a new master, people freeze and switch off. The machine
plays the real decisions on facts that it observes as the master daemon would.
"""

import dataclasses

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fakes.seeds import examples
from ganeti.decisions.repair import limits, node_death
from ganeti.decisions.repair.limits import Automation, Freeze
from ganeti.decisions.repair.node_death import Seen, Silence, decide
from ganeti.decisions.repair.node_lives import (
    DeathState,
    Facts,
    JobSeen,
    NodeView,
    Phase,
)

CANDIDATES = ("b", "c", "d")
NODES = (*CANDIDATES, "e")
NODE = st.sampled_from(NODES)


@dataclasses.dataclass
class Machine:
    """A node. ``helper``: honest, failing, or saying "off" without an effect."""

    is_on: bool = True
    helper: str = "honest"
    daemon: bool = True
    ssh: bool = True
    from_master: bool = True
    from_others: bool = True
    drained: bool = False
    offline: bool = False
    guests: set = dataclasses.field(default_factory=set)


class Deaths(RuleBasedStateMachine):
    """The master is a; it is a candidate, too."""

    lies = False

    def __init__(self):
        super().__init__()
        self.nodes = {name: Machine(guests={f"guest-{name}"}) for name in NODES}
        #: Guest -> number of its starts elsewhere.
        self.starts = dict.fromkeys((f"guest-{name}" for name in NODES), 0)
        self.state = DeathState()
        self.now = 1_700_000_000.0
        self.silences = {}
        self.recovered = set()
        self.automation = Automation(limits={limits.FENCED_PER_HOUR: 2.0})
        self.is_enabled = True
        self.jobs = []
        self.ended = {}
        self.fences = []

    # Events
    @rule(name=NODE, is_on=st.booleans())
    def power(self, name, is_on):
        node = self.nodes[name]
        node.is_on = node.daemon = node.ssh = is_on
        if not is_on:
            node.guests.clear()

    @rule(name=NODE, what=st.sampled_from(("daemon", "ssh")), value=st.booleans())
    def server(self, name, what, value):
        setattr(self.nodes[name], what, value and self.nodes[name].is_on)

    @rule(name=NODE, master=st.booleans(), others=st.booleans())
    def network(self, name, master, others):
        self.nodes[name].from_master = master
        self.nodes[name].from_others = others

    @rule(name=NODE, value=st.booleans())
    def drain(self, name, value):
        self.nodes[name].drained = value

    @rule(value=st.booleans())
    def freeze(self, value):
        frozen = Freeze("", self.now) if value else None
        self.automation = msgspec.structs.replace(self.automation, freeze=frozen)

    @rule(value=st.sampled_from((True, True, True, False)))
    def switch(self, value):
        self.is_enabled = value

    @rule(seconds=st.sampled_from((1.0, 10.0, 400.0, 1200.0, -5.0)))
    def wait(self, seconds):
        self.now += seconds

    @rule()
    def new_master(self):
        """Jobs that run fail; the store and its acknowledged commits are kept."""
        self.silences, self.recovered = {}, set()
        for number in range(1, len(self.jobs) + 1):
            self.ended.setdefault(number, {"is_success": False, "text": "killed"})

    @rule(name=NODE)
    def start_at_home(self, name):
        """Start the guest of a node that the master reaches, as its watcher does."""
        node = self.nodes[name]
        guest = f"guest-{name}"
        is_away = node.offline or self.starts[guest]
        if self.answers(name, "daemon", "from_master") and not is_away:
            node.guests.add(guest)

    # Jobs
    @precondition(lambda self: len(self.ended) < len(self.jobs))
    @rule()
    def run_job(self):
        number = next(n for n in range(1, len(self.jobs) + 1) if n not in self.ended)
        job = self.jobs[number - 1]
        node = self.nodes[job.node]
        if job.ops[0].get("command") == "power-status":
            self.report_power(number, node)
            return
        assert job.ops[0]["node_death"]
        if self.answers(job.node, "daemon", "from_master"):
            self.ended[number] = {"is_success": False, "text": "it answers"}
            return
        if job.ops[0]["OP_ID"] == "OP_NODE_SET_PARAMS":
            if node.is_on and node.helper != "lying":
                self.ended[number] = {"is_success": False, "text": "it is on"}
                return
            node.offline = True
            self.ended[number] = {"is_success": True}
            return
        if node.helper == "honest":
            self.power(job.node, False)
        self.report_power(number, node)

    def report_power(self, number, node):
        is_off = node.helper == "lying" or not node.is_on
        self.ended[number] = {"is_success": True, "is_off": is_off, "text": "on"}

    # Rounds
    def answers(self, name, server, way):
        node = self.nodes[name]
        return node.is_on and getattr(node, server) and getattr(node, way)

    def view(self, name, *, is_probed):
        node = self.nodes[name]
        view = NodeView(
            uuid=name,
            name=name,
            offline=node.offline,
            drained=node.drained,
            helper=node.helper,
        )
        if not is_probed:
            return view
        others = [each for each in self.answering() if each != name]
        is_reached = self.answers(name, "daemon", "from_others") or self.answers(
            name, "ssh", "from_others"
        )
        return msgspec.structs.replace(
            view,
            daemon=self.answers(name, "daemon", "from_master"),
            ssh=self.answers(name, "ssh", "from_master"),
            asked=tuple(others),
            reached_by=tuple(others) if is_reached else (),
        )

    def answering(self):
        return [n for n in CANDIDATES if self.answers(n, "daemon", "from_master")]

    def facts(self, *, is_probed):
        known = {death.node for death in self.state.deaths}
        views = [self.view(name, is_probed=is_probed) for name in NODES]
        return Facts(
            is_enabled=self.is_enabled,
            is_probed=is_probed,
            state=self.state,
            nodes=tuple(v for v in views if v.is_silent or v.uuid in known),
            watched=len(NODES),
            candidates=1 + len(CANDIDATES),
            answered=1 + len(self.answering()),
            ended=tuple(JobSeen(n, **end) for n, end in self.ended.items()),
            automation=self.automation,
        )

    @rule(is_probed=st.sampled_from((True, True, False)))
    def round(self, is_probed):
        facts = self.facts(is_probed=is_probed)
        if is_probed:
            self.measure(facts)
        seen = Seen(self.now, facts, self.silences, frozenset(self.recovered))
        plan = decide(self.state, seen)
        for job in plan.jobs:
            self.check(job, facts)
        ids = tuple(range(len(self.jobs) + 1, len(self.jobs) + 1 + len(plan.jobs)))
        self.jobs += plan.jobs
        if not self.is_enabled:
            # A person has switched it off, which forgets earlier fences.
            self.fences.clear()
        self.state = node_death.with_jobs(plan.state, plan.jobs, ids)
        for name in plan.recover:
            self.repair(name)

    @rule(times=st.integers(3, 6))
    def rounds(self, times):
        for _ in range(times):
            self.now += 3.0
            self.round(is_probed=True)
            if len(self.ended) < len(self.jobs):
                self.run_job()

    @rule(
        name=NODE,
        helper=st.sampled_from(("honest", "failing", "lying")),
        way=st.sampled_from(("power", "network")),
        comes_back=st.integers(3, 8),
    )
    def dies(self, name, helper, way, comes_back):
        """Play a whole death, in which the node is perhaps reached again."""
        self.helper(name, helper if self.lies or helper != "lying" else "failing")
        if way == "power":
            self.power(name, False)
        else:
            self.nodes[name].from_master = False
            self.nodes[name].from_others = self.lies and helper == "lying"
        for number in range(9):
            if number == comes_back and way == "network":
                self.nodes[name].from_master = self.nodes[name].from_others = True
            self.rounds(1)

    def measure(self, facts):
        silent = {view.uuid for view in facts.nodes if view.is_silent}
        old = self.silences
        self.silences = {}
        for name in silent:
            probes, seconds = old.get(name, Silence())
            self.silences[name] = Silence(probes + 1, seconds + 3.0 if probes else 0.0)

    def check(self, job, facts):
        """Check that an act is permitted and proven at this moment."""
        (view,) = [view for view in facts.nodes if view.uuid == job.node]
        assert self.is_enabled
        assert self.automation.freeze is None
        if job.ops[0].get("command") == "power-status":
            # A question changes nothing, so no majority has to confirm it.
            assert facts.is_probed
            return
        is_fence = job.ops[0]["OP_ID"] == "OP_OOB_COMMAND"
        if is_fence:
            before = {death.node: death.phase for death in self.state.deaths}
            if before.get(job.node) is Phase.SUSPECTED or job.node not in before:
                self.fences.append(self.now)
                assert not view.drained
        assert facts.has_majority
        assert facts.is_probed
        assert len(view.witnesses) > 2
        if is_fence:
            return
        assert not view.answers
        assert any(
            self.ended[number].get("is_off")
            for death in self.state.deaths
            if death.node == job.node
            for number in death.jobs
            if number in self.ended
        )

    def repair(self, name):
        """Start the guests of a node elsewhere, once."""
        assert self.nodes[name].offline
        self.recovered.add(name)
        guest = f"guest-{name}"
        if not self.starts[guest]:
            self.starts[guest] = 1

    @invariant()
    def no_guest_runs_twice(self):
        for name, node in self.nodes.items():
            assert not (self.starts[f"guest-{name}"] and node.guests)

    @invariant()
    def no_job_belongs_to_two_deaths(self):
        jobs = [job for death in self.state.deaths for job in death.jobs]
        assert len(jobs) == len(set(jobs))
        assert -1 not in jobs

    @invariant()
    def fences_are_within_their_limit(self):
        recent = [when for when in self.fences if 0 <= self.now - when < 3600]
        assert len(recent) <= 2


class Honest(Deaths):
    """Helpers fail but do not lie."""

    @rule(name=NODE, helper=st.sampled_from(("honest", "failing")))
    def helper(self, name, helper):
        self.nodes[name].helper = helper


class Lying(Deaths):
    """Helpers lie; the candidates reach each node that is on, so lies are noticed."""

    lies = True

    @rule(name=NODE, helper=st.sampled_from(("honest", "failing", "lying")))
    def helper(self, name, helper):
        self.nodes[name].helper = helper

    @rule(name=NODE, master=st.booleans())
    def network(self, name, master):
        self.nodes[name].from_master = master

    @rule(name=NODE)
    def server(self, name):
        """Keep servers up: a dead server on a live machine is silence."""

    @rule(name=NODE)
    def start_at_home(self, name):
        """Start nothing: a lie while a job waits for locks cannot be noticed."""


@pytest.mark.parametrize("machine", [Honest, Lying])
def test_no_guest_runs_twice_and_no_fence_lacks_proof(machine):
    case = machine.TestCase
    case.settings = settings(
        max_examples=examples(100),
        stateful_step_count=40,
        deadline=None,
        print_blob=True,
    )
    case("runTest").runTest()


def test_a_node_that_dies_in_peace_is_recovered():
    machine = Honest()
    machine.power("b", False)
    machine.rounds(6)
    machine.rounds(6)
    assert machine.starts["guest-b"] == 1
    assert machine.state.deaths == ()
