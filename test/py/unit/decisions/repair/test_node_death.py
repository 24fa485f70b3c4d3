"""Death of nodes: phases, reasons to do nothing, and acts that are done once."""

import itertools

import msgspec
import pytest

from ganeti.daemons.masterd import deps
from ganeti.decisions.repair import limits, node_death
from ganeti.decisions.repair.journal import Decision
from ganeti.decisions.repair.limits import Automation, Freeze
from ganeti.decisions.repair.node_death import Seen, Silence, decide
from ganeti.decisions.repair.node_lives import (
    Death,
    DeathState,
    Event,
    Facts,
    JobSeen,
    MarkedNode,
    NodeView,
    Phase,
)

NOW = 1_700_000_000.0
LONG = Silence(node_death.SILENT_PROBES, node_death.SILENCE_S)
OFF = {"is_success": True, "is_off": True}
FAILED = {"is_success": False, "text": "the controller does not answer"}
NEXT = {
    (Phase.SUSPECTED, Event.FENCE): Phase.FENCING,
    (Phase.FENCING, Event.CONFIRM): Phase.FENCED,
    (Phase.FENCING, Event.HOLD): Phase.HELD,
    (Phase.FENCED, Event.MARK): Phase.OFFLINE,
    (Phase.FENCED, Event.HOLD): Phase.HELD,
}


class Site:
    """Three candidates; node2 is silent. Jobs get ids from 1 on."""

    def __init__(self, *names, **view):
        self.state = DeathState()
        self.views = {name: {} for name in names or ("node2",)}
        for values in self.views.values():
            values.update(self.silent() | view)
        self.facts = {"is_enabled": True, "watched": 2, "candidates": 3, "answered": 2}
        self.automation = Automation()
        self.ended = {}
        self.now = NOW
        self.silence = LONG
        self.recovered = frozenset()
        #: Seconds since heartbeats of nodes were seen to go on.
        self.beats = {}
        #: Seconds for which the deciding process has known everything remembered.
        self.known_s = node_death.HOUR_S
        self.jobs = []
        self.items = []

    @staticmethod
    def silent():
        return {"daemon": False, "ssh": False, "helper": "/ipmi", "asked": ("node3",)}

    def round(self, *, is_probed=True):
        views = []
        for name, values in self.views.items():
            view = NodeView(uuid=name, name=name, **values)
            if not is_probed:
                view = msgspec.structs.replace(
                    view, daemon=None, ssh=None, asked=(), reached_by=()
                )
            views.append(view)
        facts = Facts(
            is_probed=is_probed,
            state=self.state,
            nodes=tuple(views),
            ended=tuple(JobSeen(n, **end) for n, end in self.ended.items()),
            automation=self.automation,
            **self.facts,
        )
        silences = dict.fromkeys(self.views, self.silence)
        events = [*dict(self.state.fenced), self.state.mass_event]
        known_s = dict.fromkeys(events, self.known_s)
        seen = Seen(self.now, facts, silences, self.recovered, known_s, self.beats)
        plan = decide(self.state, seen)
        ids = tuple(range(len(self.jobs) + 1, len(self.jobs) + 1 + len(plan.jobs)))
        self.jobs += plan.jobs
        self.items = plan.items
        self.state = node_death.with_jobs(plan.state, plan.jobs, ids)
        self.now += 1
        return plan

    @property
    def phase(self):
        return self.state.deaths[0].phase if self.state.deaths else None

    @property
    def limit(self):
        (item,) = self.items
        assert item.decision is Decision.REFUSED
        return item.limit

    def fence(self):
        self.round()
        assert self.phase is Phase.FENCING
        return self

    def ask_again(self):
        plan = self.round()
        assert [commands(job) for job in plan.jobs] == [["power-status"]]
        assert self.phase is Phase.FENCING
        assert self.items[0].action == "ask its helper again"
        assert not self.round().jobs

    def confirm(self):
        self.fence()
        self.ended[1] = OFF
        self.round()
        assert self.phase is Phase.FENCED
        return self


def commands(job):
    return [op.get("command") or op["OP_ID"] for op in job.ops]


@pytest.mark.parametrize(("phase", "event"), [*itertools.product(Phase, Event)])
def test_each_event_leads_to_its_phase_or_is_refused(phase, event):
    death = Death(node="u", name="n", phase=phase, job=4, attempts=2, reason="r")
    if (phase, event) not in NEXT:
        with pytest.raises(ValueError, match=f"n: {event.name} while {phase}"):
            death.entered(event, NOW)
        return
    new = death.entered(event, NOW)
    assert new.phase is NEXT[phase, event]
    assert (new.job, new.attempts, new.reason, new.mtime) == (0, 0, "", NOW)


def test_a_dead_node_is_fenced_confirmed_marked_and_left_to_repair():
    site = Site()
    plan = site.round()
    assert [commands(job) for job in plan.jobs] == [["power-off"]]
    (death,) = site.state.deaths
    assert (death.phase, death.job, death.jobs) == (Phase.FENCING, 1, (1,))
    assert death.witnesses[-1] == "node3"
    assert not site.round().jobs
    site.ended[1] = OFF
    plan = site.round()
    assert [commands(job) for job in plan.jobs] == [["OP_NODE_SET_PARAMS"]]
    assert site.phase is Phase.FENCED
    site.ended[2] = {"is_success": True}
    site.views["node2"]["offline"] = True
    assert site.round(is_probed=False).recover == ("node2",)
    assert site.phase is Phase.OFFLINE
    site.recovered = frozenset({"node2"})
    plan = site.round(is_probed=False)
    assert (site.phase, plan.recover) == (None, ())
    assert [name for _time, name in site.state.fenced] == ["node2"]
    assert not site.round(is_probed=False).items


def test_a_confirmation_needs_a_probe_that_follows_it():
    site = Site().fence()
    site.ended[1] = OFF
    plan = site.round(is_probed=False)
    assert (plan.wants_probe, plan.jobs, site.phase) == (True, (), Phase.FENCING)
    assert not site.round().wants_probe
    assert site.phase is Phase.FENCED


@pytest.mark.parametrize(
    ("silence", "phase"),
    [
        (Silence(node_death.SILENT_PROBES - 1, 99.0), Phase.SUSPECTED),
        (Silence(99, node_death.SILENCE_S - 0.1), Phase.SUSPECTED),
        (LONG, Phase.FENCING),
    ],
)
def test_a_short_silence_is_only_a_suspicion(silence, phase):
    site = Site()
    site.silence = silence
    site.round()
    assert site.phase is phase


@pytest.mark.parametrize(
    "sign", [{"daemon": True}, {"ssh": True}, {"daemon": None, "ssh": None}]
)
def test_a_node_that_answers_the_master_is_not_suspected(sign):
    site = Site(**sign)
    if not sign.get("daemon") and not sign.get("ssh"):
        assert not site.round(is_probed=False).items
    else:
        assert not site.round().items
    assert site.phase is None


def test_a_suspicion_ends_with_an_answer():
    site = Site()
    site.silence = Silence()
    site.round()
    assert site.phase is Phase.SUSPECTED
    site.views["node2"]["ssh"] = True
    site.round()
    assert site.phase is None
    assert "SSH server answers" in site.items[0].reason


@pytest.mark.parametrize(
    ("view", "facts", "limit"),
    [
        ({"drained": True}, {}, node_death.DRAINED),
        ({"incident": "i1"}, {}, node_death.MAINTENANCE),
        ({"helper": ""}, {}, node_death.NO_HELPER),
        ({"reached_by": ("node3",)}, {}, node_death.REACHED),
        ({}, {"answered": 1}, node_death.MINORITY),
        ({}, {"candidates": 4}, node_death.MINORITY),
        # A master that is the only candidate is a majority, but a single witness.
        ({"asked": ()}, {"candidates": 1, "answered": 1}, node_death.MINORITY),
    ],
)
def test_doubt_keeps_a_node_from_being_fenced(view, facts, limit):
    site = Site(**view)
    site.facts.update(facts)
    for _ in range(3):
        assert not site.round().jobs
        assert (site.phase, site.limit) == (Phase.SUSPECTED, limit)
    assert site.state.deaths[0].limit == limit
    # The reason ends, and the node is fenced.
    site.views["node2"] = site.silent()
    site.facts.update(candidates=3, answered=2)
    site.fence()


def test_a_freeze_and_the_limits_hold_fences():
    site = Site()
    site.automation = Automation(freeze=Freeze("work", NOW))
    site.round()
    assert site.limit == limits.FROZEN
    site.automation = Automation(limits={limits.FENCED_PER_HOUR: 0.0})
    site.round()
    assert site.limit == limits.FENCED_PER_HOUR
    site.automation = Automation(mass_event=NOW)
    site.round()
    assert site.limit == limits.QUIET_TIME
    site.automation = Automation()
    site.fence()


def test_one_node_per_hour_is_fenced_unless_a_limit_permits_more():
    site = Site().confirm()
    site.ended[2] = {"is_success": True}
    site.views = {"node2": site.silent() | {"offline": True}}
    site.round()
    site.recovered = frozenset({"node2"})
    site.round()
    site.now += node_death.AT_ONCE_S
    site.views["node3"] = site.silent()
    site.round()
    assert [death.name for death in site.state.deaths] == ["node3"]
    assert site.items[-1].limit == limits.FENCED_PER_HOUR
    site.automation = Automation(limits={limits.FENCED_PER_HOUR: 2.0})
    site.round()
    assert site.phase is Phase.FENCING
    # Fences are forgotten after an hour.
    site.now += node_death.HOUR_S
    site.round()
    assert site.state.fenced == ()


@pytest.mark.parametrize("hours", [-24, -1, 1, 24])
def test_a_new_master_with_a_wrong_clock_keeps_the_fences_of_the_last_hour(hours):
    """They are forgotten an hour after it has seen them, whatever its clock shows."""
    site = Site()
    site.state = DeathState(fenced=((NOW, "node3"),))
    site.now += hours * node_death.HOUR_S
    for site.known_s in (0.0, node_death.HOUR_S - 1):
        assert not site.round().jobs
        assert site.limit == limits.FENCED_PER_HOUR
    site.known_s = node_death.HOUR_S
    site.fence()
    assert [name for _time, name in site.state.fenced] == ["node2"]


@pytest.mark.parametrize("hours", [-24, -1, 1, 24])
def test_a_new_master_with_a_wrong_clock_keeps_the_quiet_time(hours):
    site = Site()
    site.state = DeathState(mass_event=NOW)
    site.now += hours * node_death.HOUR_S
    for site.known_s in (0.0, limits.DEFAULT_FENCE_QUIET_S - 1):
        assert not site.round().jobs
        assert site.limit == limits.QUIET_TIME
    site.known_s = limits.DEFAULT_FENCE_QUIET_S
    site.fence()


def test_a_new_master_does_not_begin_the_quiet_time_of_an_old_mass_event_again():
    site = Site()
    site.views = {}
    site.state = DeathState(mass_event=NOW)
    site.automation = Automation(limits={limits.QUIET_TIME: 60.0})
    site.now += 59
    site.round()
    assert site.state.mass_event == NOW
    site.round()
    assert site.state.mass_event is None
    site.views = {"node2": site.silent()}
    site.known_s = 0.0
    site.fence()


def test_nodes_that_vanish_at_once_are_a_mass_event_with_a_quiet_time():
    site = Site("node2", "node3")
    assert not site.round().jobs
    assert {item.limit for item in site.items} == {node_death.MASS_EVENT}
    assert site.state.mass_event == NOW
    site.views.pop("node3")
    site.round()
    assert "removed" in site.items[1].reason
    site.round()
    assert site.limit == limits.QUIET_TIME
    site.now += limits.DEFAULT_FENCE_QUIET_S
    site.fence()


@pytest.mark.parametrize(
    ("watched", "most"), [(0, 1), (2, 1), (19, 1), (20, 2), (200, 20)]
)
def test_a_tenth_of_the_nodes_may_vanish_at_once(watched, most):
    assert node_death.most_at_once(watched) == most


@pytest.mark.parametrize(
    "sign", [{"daemon": True}, {"ssh": True}, {"reached_by": ("node3",)}]
)
def test_a_node_that_answers_after_its_helper_reported_off_is_held(sign):
    site = Site()
    site.automation = Automation(limits={limits.FENCED_PER_HOUR: 2.0})
    site.fence()
    site.ended[1] = OFF
    site.views["node2"].update(sign)
    site.ask_again()
    site.ended[2] = OFF
    for _ in range(2):
        assert not site.round().jobs
        assert (site.phase, site.limit) == (Phase.HELD, node_death.LYING_HELPER)
    assert "/ipmi says that it is off, but" in site.items[0].reason
    # Not even when it is silent again; another helper is trusted.
    site.views["node2"] = site.silent()
    assert not site.round().jobs
    site.views["node2"]["helper"] = "/redfish"
    site.round()
    assert site.phase is None
    site.fence()


def test_a_helper_that_has_lied_is_asked_again_until_it_is_mended():
    site = Site().fence()
    site.ended[1] = OFF
    site.views["node2"].update(daemon=True)
    site.ask_again()
    site.ended[2] = OFF
    asked = []
    while len(site.jobs) < 5:
        if site.round().jobs:
            asked.append(site.now)
            assert commands(site.jobs[-1]) == ["power-status"]
            site.ended[len(site.jobs)] = OFF
    pauses = [
        round(after - before) // 60 for before, after in itertools.pairwise(asked)
    ]
    assert pauses == [2, 4]
    assert (site.phase, site.state.deaths[0].limit) == (
        *(Phase.HELD, node_death.LYING_HELPER),
    )
    # Nothing proves that the helper of a silent node is right.
    site.views["node2"] = site.silent()
    assert not site.round().jobs
    site.now += node_death.HOUR_S
    assert not site.round().jobs
    site.views["node2"].update(daemon=True)
    site.round()
    site.ended[6] = NOT_OFF
    site.round()
    assert site.phase is None
    assert site.items[0].action == "trust its helper again"


def test_what_was_switched_off_is_forgotten_although_it_is_on_again():
    site = Site().fence()
    site.state = msgspec.structs.replace(site.state, is_given_up=True)
    assert not site.round().jobs
    assert site.items[0].reason == "it was switched off"
    assert site.state.is_empty
    assert not site.state.is_given_up


NOT_OFF = {"is_success": True, "text": "its helper does not confirm that it is off"}


def test_a_node_that_has_booted_does_not_make_its_helper_a_liar():
    site = Site().fence()
    site.ended[1] = OFF
    site.views["node2"].update(daemon=True)
    site.ask_again()
    site.ended[2] = NOT_OFF
    site.round()
    assert site.phase is None
    assert site.items[0].reason == "its node daemon answers"


def test_a_node_that_was_on_for_a_moment_is_confirmed_by_the_second_answer():
    site = Site().fence()
    site.ended[1] = OFF
    site.views["node2"].update(ssh=True)
    site.ask_again()
    site.ended[2] = OFF
    site.views["node2"] = site.silent()
    plan = site.round()
    assert [commands(job) for job in plan.jobs] == [["OP_NODE_SET_PARAMS"]]
    assert plan.jobs[0].ops[0]["powered"] is False


def test_a_frozen_automaton_does_not_ask_a_helper_again():
    site = Site().fence()
    site.ended[1] = OFF
    site.views["node2"].update(ssh=True)
    site.automation = Automation(freeze=limits.Freeze("test", 1.0))
    assert not site.round().jobs
    assert site.limit == limits.FROZEN


# Marked nodes
def marked_site(**marked):
    site = Site().confirm()
    site.ended[2] = {"is_success": True}
    site.views["node2"]["offline"] = True
    site.round(is_probed=False)
    assert site.state.marked == ("node2",)
    site.recovered = frozenset({"node2"})
    site.facts["marked"] = (MarkedNode(uuid="node2", name="node2", **marked),)
    site.round()
    assert site.phase is None
    return site


def test_the_record_of_power_is_taken_back_when_a_marked_node_answers():
    site = marked_site()
    assert site.state.marked == ("node2",)
    assert not site.state.is_empty
    site.facts["marked"] = (MarkedNode(uuid="node2", name="node2", answers=True),)
    (job,) = site.round().jobs
    (op,) = job.ops
    assert (op["node_name"], op["powered"], op.get("offline")) == ("node2", True, None)
    assert "gnt-node modify --offline=no node2" in site.items[0].reason
    assert site.state.marked == ()


def test_a_node_that_is_back_before_its_repairs_end_blocks_nothing():
    site = Site().confirm()
    site.ended[2] = {"is_success": True}
    site.views["node2"]["offline"] = True
    site.round(is_probed=False)
    before = site.state
    site.facts["marked"] = (MarkedNode(uuid="node2", name="node2", answers=True),)
    plan = site.round()
    deps._check(plan.state, plan.jobs, before.marked)
    assert (len(plan.jobs), plan.state.marked, site.phase) == (1, (), "offline")
    assert plan.state != before
    site.facts["marked"] = ()
    assert not site.round().jobs


def test_a_freeze_keeps_the_record_of_power():
    site = marked_site()
    site.automation = Automation(freeze=limits.Freeze("test", 1.0))
    site.facts["marked"] = (MarkedNode(uuid="node2", name="node2", answers=True),)
    assert not site.round().jobs
    assert site.state.marked == ("node2",)


def test_a_record_that_a_person_has_changed_is_theirs():
    site = marked_site()
    site.facts["marked"] = ()
    assert not site.round().jobs
    assert site.state.marked == ()


def test_a_node_that_was_not_asked_again_is_not_confirmed():
    site = Site().fence()
    site.ended[1] = OFF
    site.views["node2"].update(daemon=None, ssh=None, asked=())
    assert not site.round().jobs
    assert (site.phase, site.limit) == (Phase.FENCING, node_death.MASS_EVENT)
    site.views["node2"] = site.silent()
    site.round()
    assert site.phase is Phase.FENCED


def test_a_fence_that_is_not_confirmed_is_repeated_and_then_given_up():
    site = Site().fence()
    for attempt in range(1, node_death.ATTEMPTS + 1):
        site.ended[attempt] = FAILED
        plan = site.round()
        assert (plan.jobs, site.limit) == ((), node_death.UNCONFIRMED)
        site.now += node_death.PAUSE_S
        site.round()
    assert len(site.jobs) == node_death.ATTEMPTS
    assert site.phase is Phase.HELD
    assert "controller does not answer" in site.items[0].reason
    # It counts as one fence, and an answer of the node ends it.
    assert len(site.state.fenced) == 1
    site.views["node2"]["daemon"] = True
    site.round()
    assert site.phase is None


def test_a_node_whose_fence_failed_and_that_answers_is_alive():
    site = Site().fence()
    site.ended[1] = FAILED
    site.views["node2"]["ssh"] = True
    assert not site.round().jobs
    assert site.phase is None


def test_a_lost_majority_or_a_freeze_holds_a_confirmed_node():
    site = Site().fence()
    site.ended[1] = OFF
    site.facts["answered"] = 1
    site.round()
    assert (site.phase, site.limit) == (Phase.FENCING, node_death.MINORITY)
    site.facts["answered"] = 2
    site.automation = Automation(freeze=Freeze("", NOW))
    site.round()
    assert (site.phase, site.limit) == (Phase.FENCING, limits.FROZEN)
    site.automation = Automation()
    site.round()
    assert site.phase is Phase.FENCED


def test_a_node_that_cannot_be_marked_is_held_at_last():
    site = Site().confirm()
    for attempt in range(2, node_death.ATTEMPTS + 2):
        site.ended[attempt] = FAILED
        assert not site.round().jobs
        assert site.limit == node_death.NOT_MARKED
        site.now += node_death.PAUSE_S
        site.round()
    assert len(site.jobs) == 1 + node_death.ATTEMPTS
    assert site.phase is Phase.HELD


@pytest.mark.parametrize(
    "sign", [{"daemon": True}, {"ssh": True}, {"reached_by": ("node3",)}]
)
def test_a_node_that_is_back_before_it_is_marked_is_left_alone(sign):
    site = Site().confirm()
    site.ended[2] = FAILED
    assert site.round(is_probed=False).wants_probe
    assert site.phase is Phase.FENCED
    site.round()
    site.now += node_death.PAUSE_S
    site.views["node2"].update(sign)
    assert not site.round().jobs
    assert site.phase is None


@pytest.mark.parametrize("prepare", ["fence", "confirm"])
def test_a_repetition_needs_the_proof_of_the_first_attempt(prepare):
    site = getattr(Site(), prepare)()
    site.ended[len(site.jobs)] = FAILED
    site.round()
    site.now += node_death.PAUSE_S
    known = dict(site.views["node2"])
    for changes in ({"daemon": None, "ssh": None}, {"asked": ()}):
        site.views["node2"] = known | changes
        assert not site.round().jobs
    site.views["node2"] = known
    (job,) = site.round().jobs
    assert job.ops[0]["node_death"] is True


@pytest.mark.parametrize("prepare", ["round", "fence", "confirm"])
def test_whoever_switches_it_off_ends_everything(prepare):
    site = Site()
    getattr(site, prepare)()
    site.facts["is_enabled"] = False
    plan = site.round()
    assert (site.phase, plan.jobs, site.limit) == (None, (), "off")
    assert site.state.is_empty
    assert not site.round().items


@pytest.mark.parametrize("prepare", ["fence", "confirm"])
def test_a_person_who_marks_or_unmarks_a_node_takes_over(prepare):
    site = Site()
    getattr(site, prepare)()
    if prepare == "fence":
        site.views["node2"]["offline"] = True
    else:
        site.ended[2] = {"is_success": True}
    plan = site.round()
    assert (site.phase, plan.jobs, plan.recover) == (None, (), ())


def test_a_state_survives_its_stored_form():
    site = Site().confirm()
    stored = msgspec.json.encode(site.state)
    assert msgspec.json.decode(stored, type=DeathState) == site.state


def test_a_notice_names_node_phase_and_reason():
    site = Site(helper="")
    site.silence = Silence()
    site.round()
    (death,) = site.state.deaths
    assert node_death.notice(death) == "node node2 does not answer and is suspected"
    site.silence = LONG
    site.round()
    text = node_death.notice(site.state.deaths[0])
    assert text.endswith(
        "nothing is done (no-helper): it has no out-of-band helper (oob_program)"
    )


BEAT = ("0" * 32, 7)
STOPPED = node_death.STOPPED_S


def test_a_node_whose_heartbeat_goes_on_is_fenced_later():
    """A forged heartbeat keeps no dead node alive without limit."""
    site = Site(heartbeats=(BEAT,))
    site.beats = {"node2": STOPPED - 0.1}
    assert not site.round().jobs
    assert site.limit == node_death.HEARTBEAT
    assert "so it lives" in site.items[0].reason
    site.silence = Silence(20, node_death.HEARTBEAT_S - 0.1)
    assert not site.round().jobs
    site.silence = Silence(20, node_death.HEARTBEAT_S)
    assert site.round().jobs
    assert site.state.deaths[0].witnesses[-1] == "node3"


def test_a_heartbeat_that_has_stopped_is_a_witness_and_none_is_needed():
    site = Site(heartbeats=(BEAT,))
    site.beats = {"node2": STOPPED}
    site.fence()
    assert site.state.deaths[0].witnesses[-1] == "heartbeat on shared storage"
    assert "heartbeat on shared storage" in site.items[0].reason
    site = Site().fence()
    assert site.state.deaths[0].witnesses[-1] == "node3"


def test_no_heartbeat_hastens_a_fence():
    site = Site(heartbeats=(BEAT,))
    site.silence = Silence(node_death.SILENT_PROBES, node_death.SILENCE_S - 0.1)
    site.beats = {"node2": 3600.0}
    assert not site.round().jobs


def test_a_helper_that_says_off_while_the_heartbeat_goes_on_is_a_liar():
    site = Site(heartbeats=(BEAT,)).fence()
    site.ended[1] = OFF
    site.beats = {"node2": 1.0}
    began = site.now
    while site.now < began + node_death.HEARTBEAT_S:
        assert not site.round().jobs
        assert (site.phase, site.limit) == (Phase.FENCING, node_death.HEARTBEAT)
        assert "says that it is off" in site.items[0].reason
    site.ask_again()
    site.ended[2] = OFF
    assert not site.round().jobs
    assert (site.phase, site.limit) == (Phase.HELD, node_death.LYING_HELPER)
    site.beats = {}
    assert not site.round().jobs
    assert site.phase is Phase.HELD


def test_a_node_is_off_when_its_heartbeat_has_stopped():
    site = Site(heartbeats=(BEAT,)).fence()
    site.ended[1] = OFF
    site.beats = {"node2": STOPPED - 0.1}
    assert not site.round().jobs
    site.beats = {"node2": STOPPED}
    plan = site.round()
    assert [commands(job) for job in plan.jobs] == [["OP_NODE_SET_PARAMS"]]
    assert site.phase is Phase.FENCED
    # The job compares it with the one that it sees.
    assert site.state.deaths[0].heartbeats == (BEAT,)


def test_a_wait_for_a_fence_is_no_part_of_the_wait_for_its_confirmation():
    site = Site(heartbeats=(BEAT,))
    site.beats = {"node2": 1.0}
    site.round()
    site.silence = Silence(20, node_death.HEARTBEAT_S)
    site.now += 3600
    site.fence()
    site.ended[1] = OFF
    site.round()
    assert (site.phase, site.limit) == (Phase.FENCING, node_death.HEARTBEAT)


def test_a_new_process_listens_before_it_believes_a_helper():
    """It has not seen yet whether the heartbeat goes on; an old one has."""
    site = Site(heartbeats=(BEAT,)).fence()
    site.facts["has_heartbeats"] = True
    site.ended[1] = OFF
    site.silence = Silence(1, 0.0)
    assert not site.round().jobs
    assert site.phase is Phase.FENCING
    site.beats = {"node2": 1.0}
    assert not site.round().jobs
    site.beats, site.silence = {}, LONG
    site.round()
    assert site.phase is Phase.FENCED


def test_a_heartbeat_that_goes_on_again_stops_a_second_attempt_to_mark():
    site = Site(heartbeats=(BEAT,)).confirm()
    site.ended[2] = FAILED
    site.round()
    site.now += node_death.PAUSE_S
    site.beats = {"node2": 1.0}
    assert not site.round().jobs
    assert (site.phase, site.limit) == (Phase.FENCED, node_death.HEARTBEAT)
    site.beats = {}
    assert site.round().jobs


@pytest.mark.parametrize(
    ("silence", "known"),
    # A new process does not know yet whether the heartbeat that it sees goes on.
    [(LONG, (BEAT[0], 9)), (Silence(1, 0.0), BEAT)],
    ids=["observed", "new process"],
)
def test_a_last_heartbeat_that_is_read_late_keeps_no_dead_node_from_its_mark(
    silence, known
):
    """Storage may show it late, and another reader may have seen it only later."""
    site = Site(heartbeats=(BEAT,)).confirm()
    site.views["node2"]["heartbeats"] = ((BEAT[0], 9),)
    site.ended[2] = FAILED
    site.round()
    site.now += node_death.PAUSE_S
    site.silence = silence
    assert site.round().jobs
    assert site.state.deaths[0].heartbeats == (known,)
