"""Drills: proof of single runs, judgement of each end, the command and its output."""

import argparse
import contextlib
import json
import re
import types

import pytest

from fakes.patience import until
from ganeti.base import errors
from ganeti.decisions.repair import node_death
from ganeti.decisions.repair.journal import Decision, Entry, Item
from ganeti.decisions.repair.node_lives import Death, Phase
from ganeti.devel.drill import runner, scenarios, site, witness
from ganeti.devel.drill.runner import Result
from ganeti.devel.drill.witness import Boot
from ganeti.devel.vcluster import layout as lay

ID = "1907cdfc-0acf-440c-8886-88e05502d20e"


def sector(text):
    return text.encode().ljust(witness.SECTOR, b"\0")


# Proof
def test_boots_are_read_until_the_first_empty_sector():
    data = sector(f"{ID} 7 0\n") + sector(f"{ID} 12 7\n") + sector("") + sector("x")
    assert witness.parse_boots(data) == (Boot(ID, 7, 0), Boot(ID, 12, 7))
    assert witness.parse_boots(b"") == ()


@pytest.mark.parametrize("line", [f"{ID} 7", f"{ID} -1 0", "7 7 7", f"{ID} {9**20} 0"])
def test_a_sector_of_another_form_is_no_proof(line):
    with pytest.raises(errors.OpExecError, match=r"sector 1 of the disk .* found b"):
        witness.parse_boots(sector(f"{ID} 7 0") + sector(line))


def test_a_boot_that_counts_on_after_the_next_one_began_ran_beside_it():
    one_after_another = (Boot("a", 7, 0), Boot("b", 12, 7), Boot("c", 3, 12))
    assert witness.overlap(one_after_another) == ""
    beside = (Boot("a", 7, 0), Boot("b", 13, 7), Boot("c", 3, 12))
    assert "boot 2 counted to 13, but to 12 when boot 3 began" in witness.overlap(
        beside
    )


# Faults
def test_faults_of_the_master_are_made_on_the_master(cluster):
    """Each other one is made where the guest runs."""
    victims = {name: each.victim(cluster) for name, each in scenarios.DRILLS.items()}
    assert set(victims.values()) == {cluster.master, cluster.node}
    assert {name for name, node in victims.items() if node == cluster.master} == {
        *("master-ahead", "master-behind", "master-freeze", "master-frozen"),
        *("master-full", "master-cut", "two-masters", "minority"),
    }


# Report
def test_percentiles_are_measured_values():
    assert runner.percentile([5.0], 95) == 5.0
    assert runner.percentile([float(n) for n in range(30, 0, -1)], 95) == 29.0
    assert runner.percentile([1.0, 2.0], 50) == 1.0


def test_a_summary_without_recoveries_has_no_percentiles():
    counts = runner.summary([Result(drill="lie", round=1, node="n", problems=("x",))])
    assert counts["p95_s"] is None
    assert runner.summary_text(counts) == "1 drills, 1 failed"


# Trials


class FakeControl:
    def __init__(self, site):
        self._site = site

    def kill(self, node, daemon=None):
        self._site.acts.append(f"kill {daemon or node.short}")

    def pause(self, node):
        self._site.acts.append(f"pause {node.short}")

    def resume(self, node):
        self._site.acts.append(f"resume {node.short}")

    def power_on(self, node):
        self._site.acts.append(f"power on {node.short}")

    def is_powered(self, _node):
        return self._site.is_on

    def processes_on(self, _node):
        return ["x"] * self._site.left


class FakeSite:
    """A cluster that does what a test says when something is waited for."""

    def __init__(self, tmp_path):
        self.layout = lay.plan(
            str(tmp_path), count=4, isolated=True, network="10.9", bindir="/b"
        )
        self.master, self.node = self.layout.nodes[0], self.layout.nodes[3]
        self.control = FakeControl(self)
        self.faults = self
        self.acts = []
        self.on_disk = [Boot("a", 5, 0)]
        self.is_on = True
        self.left = 0
        self.place = self.node
        self.known = {}
        self.journal = []
        self.submitted = 0
        self.forgotten = ()
        self.is_stuck = False
        self.opresult = []
        #: Events in order, one for each look at something that is missing.
        self.story = []

    def until(self, wanted, ask, limit_s=0.0):
        del limit_s
        for _ in range(1000):
            if answer := ask():
                return answer
            if self.story:
                self.story.pop(0)()
            elif self.place == self.node and "guest" in wanted:
                self.count()
        raise errors.OpExecError(f"not within 0 s: {wanted}")

    def emulator_state(self):
        return "running"

    def count(self):
        boot = self.on_disk[-1]
        self.on_disk[-1] = boot._replace(counter=boot.counter + 1)

    def await_if(self, ask, limit_s):
        if limit_s == runner._SPIN_S and not self.is_stuck:
            self.count()
        try:
            wanted = "guest" if limit_s == runner.RECOVERY_S else ""
            return bool(self.until(wanted, ask, limit_s))
        except errors.OpExecError:
            return False

    @property
    def candidates(self):
        return list(self.layout.nodes)

    def call(self, method, *args, node=None, timeout_s=0.0):
        """Accept jobs on the first node, and know all of them."""
        del timeout_s
        if method == "SubmitJob":
            if node != self.layout.nodes[0]:
                raise errors.OpExecError("no master here")
            self.submitted += 1
            return self.submitted
        jobs, fields = args
        values = {"status": "success", "opresult": self.opresult}
        return [
            None if job in self.forgotten else [values[name] for name in fields]
            for job in jobs
        ]

    def act(self, name):
        return lambda *_args, **_options: self.acts.append(name)

    def __getattr__(self, name):
        if name in ("watch", "heal", "lie", "fill_disk", "kill_master_daemons"):
            return self.act(name)
        if name in ("rest", "take_back", "verify", "stop_lying", "look_after"):
            return self.act(name.replace("_", " "))
        if name == "reboot_guest":
            return self.act(name.replace("_", " "))
        raise AttributeError(name)

    def cut(self, node, others):
        names = ",".join(other.short for other in others)
        self.acts.append(f"cut {node.short} {names}")

    def boots(self):
        return tuple(self.on_disk)

    def guest(self):
        return self.place, "running"

    def deaths(self):
        return self.known

    def entries(self, node, since):
        assert node == self.node
        assert since > 0
        return self.journal

    # Stories
    def move(self):
        last = self.on_disk[-1].counter
        self.on_disk.append(Boot("b", 3, last))
        self.is_on, self.place = False, self.layout.nodes[1]

    def decide(self, decision, action, *, jobs=(), limit=""):
        item = Item(
            kind="node",
            name=self.node.name,
            decision=decision,
            action=action,
            jobs=jobs,
            limit=limit,
        )
        entry = Entry(round="r", automaton="node-death", items=(item,))
        self.journal.append(entry)

    def fence(self):
        self.decide(Decision.CHOSEN, "fence", jobs=(1,))
        self.decide(Decision.CHOSEN, "mark offline", jobs=(2,))

    def suspect(self, phase=Phase.SUSPECTED, limit=""):
        death = Death(node="u", name=self.node.name, phase=phase, limit=limit)
        self.known = {self.node.name: death}


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "Witness", FakeWitness)
    return FakeSite(tmp_path)


class FakeWitness(witness.Witness):
    """Submits one job, in the thread of the test."""

    def __enter__(self):
        self.jobs.add(self._site.call("SubmitJob", node=self._site.candidates[0]))
        return self

    def __exit__(self, *_error):
        pass


def play(cluster, name):
    return runner.Trial(cluster, name, 1).play()


def test_a_node_that_is_killed_passes_when_its_guest_runs_once_elsewhere(cluster):
    cluster.story = [cluster.fence, cluster.move]
    result = play(cluster, "kill")
    assert result.problems == ()
    assert result.boots == 2
    assert result.journal == 2
    assert result.recovery_s is not None
    assert "fenced, one start, on node2" in result.line
    assert cluster.acts == ["watch", "kill node4", "take back", "verify"]


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda site: setattr(site, "is_on", True), "the node is still on"),
        (lambda site: setattr(site, "left", 2), "2 processes of the node still run"),
        (lambda site: site.on_disk.append(Boot("c", 2, 3)), "one start .* found 2"),
        (lambda site: site.on_disk.insert(0, Boot("z", 1, 0)), "twice at the same"),
        (lambda site: site.journal.clear(), "the journal has no act 'fence'"),
        (lambda site: setattr(site, "place", site.node), "is running on node4"),
    ],
    ids=["on", "processes", "two starts", "twice", "journal", "place"],
)
def test_a_guest_that_moved_in_a_wrong_way_fails(cluster, spoil, problem):
    def moved():
        cluster.fence()
        cluster.move()
        spoil(cluster)

    cluster.story = [moved]
    result = play(cluster, "kill")
    assert "FAILED" in result.line
    assert any(re.search(problem, text) for text in result.problems)


def test_a_guest_that_never_comes_back_fails_and_the_node_is_taken_back(cluster):
    result = play(cluster, "freeze")
    assert result.problems[0] == "not within 0 s: instance drill.vc.test runs"
    assert cluster.acts == ["watch", "pause node4", "take back", "verify"]


@pytest.mark.parametrize(
    ("name", "acts"),
    [
        ("cut-out", ["cut node4 node1,node2,node3"]),
        ("cut-in", [f"cut node{n} node4" for n in (1, 2, 3)]),
    ],
)
def test_a_cut_has_a_direction(cluster, name, acts):
    cluster.story = [cluster.fence, cluster.move]
    assert play(cluster, name).problems == ()
    assert cluster.acts[1:-2] == acts


def test_a_refusal_passes_when_it_is_shown_and_the_guest_goes_on(cluster):
    def refuse():
        cluster.suspect(limit=node_death.REACHED)
        cluster.decide(Decision.REFUSED, "fence", limit=node_death.REACHED)

    cluster.story = [cluster.suspect, refuse]
    result = play(cluster, "cut-master")
    assert result.problems == ()
    assert result.recovery_s is None
    assert "left alone (reached)" in result.line
    cluster.story, cluster.journal = [], []
    assert play(cluster, "cut-master").problems == (
        "the journal has no refusal 'reached'",
    )


def test_the_helper_lies_after_it_was_asked(cluster):
    def hold():
        cluster.suspect(Phase.HELD, node_death.LYING_HELPER)
        cluster.decide(Decision.REFUSED, "fence", limit=node_death.LYING_HELPER)

    def ask():
        assert "heal" not in cluster.acts
        cluster.is_helper_asked = True

    cluster.is_helper_asked = False
    cluster.story = [lambda: cluster.suspect(Phase.FENCING), ask, hold]
    assert play(cluster, "lie").problems == ()
    assert cluster.acts[1] == "lie"
    assert cluster.acts[-4:] == ["heal", "lie", "take back", "verify"]


def test_a_node_that_is_alive_must_not_be_doubted(cluster, monkeypatch):
    monkeypatch.setattr(runner, "WATCHED_S", -1.0)
    assert play(cluster, "disk-full").problems == ()
    cluster.suspect()
    assert "the node is regarded as dead" in play(cluster, "disk-full").problems


@pytest.mark.parametrize("phase", ["suspected", "fencing", "fenced", "offline"])
def test_the_master_is_killed_in_its_phase_or_a_later_one(cluster, phase):
    order = [Phase.SUSPECTED, Phase.FENCING, Phase.FENCED, Phase.OFFLINE]
    seen = []

    def enter(each):
        def story():
            seen.append(each)
            cluster.suspect(each)

        return story

    cluster.kill_master_daemons = lambda: seen.append("killed")
    cluster.story = [*map(enter, order), cluster.fence, cluster.move]
    assert play(cluster, f"master-{phase}").problems == ()
    assert seen[seen.index("killed") - 1] == phase


def test_a_fault_that_ends_passes_when_the_guest_counts_without_a_person(
    cluster, monkeypatch
):
    monkeypatch.setattr(runner, "_CRON_S", 0.0)
    result = play(cluster, "freeze-early")
    assert result.problems == ()
    assert result.jobs == 1
    assert cluster.acts[:4] == ["watch", "pause node4", "rest", "resume node4"]
    assert cluster.acts[-2:] == ["take back", "verify"]
    assert "look after" in cluster.acts


def test_a_guest_that_stands_still_after_the_fault_fails(cluster):
    cluster.place = cluster.layout.nodes[1]
    result = play(cluster, "freeze-early")
    assert result.problems[0] == (
        "not within 180 s: the guest counts again; its emulator is running"
    )


def test_a_guest_that_spins_after_its_way_back_fails_and_is_rebooted(cluster):
    cluster.is_stuck = True
    result = play(cluster, "freeze-early")
    assert "does not count on node4 after its live migration" in result.line
    assert cluster.acts[-1] == "reboot guest"


def test_two_faults_at_once_are_about_different_nodes(cluster):
    assert play(cluster, "freeze-early+back-fenced").problems == ()
    assert cluster.acts[1:3] == ["pause node4", "kill node2"]
    ends = ["power on node2", "resume node4"]
    assert [act for act in cluster.acts if act in ends] == ends
    cluster.node = cluster.place = cluster.layout.nodes[1]
    cluster.acts.clear()
    assert play(cluster, "freeze-early+back-fenced").problems == ()
    assert cluster.acts[1:3] == ["pause node2", "kill node3"]


@pytest.mark.parametrize(
    ("forgotten", "opresult", "problem"),
    [
        ((1,), [], "1 of 1 acknowledged jobs are lost, first 1"),
        ((), ['Failed to get "write" lock'], "would have started the guest twice"),
        ((), ['Failed to get shared "write" lock'], "would have started the guest"),
    ],
)
def test_what_is_seen_from_outside_fails_a_drill(cluster, forgotten, opresult, problem):
    cluster.forgotten, cluster.opresult = forgotten, opresult
    assert any(problem in text for text in play(cluster, "freeze-early").problems)


def test_a_counter_that_goes_back_was_written_twice(cluster):
    seen = witness.Witness(cluster)
    for now, counter in ((0.0, 3), (0.5, 4), (7.5, 5), (8.0, 5)):
        seen.look(Boot("a", counter, 0), now)
    seen.look(Boot("b", 0, 5), 10.0)
    assert seen.problems == []
    assert seen.still_s == 7.0
    seen.look(Boot("b", 4, 5), 11.0)
    seen.look(Boot("b", 2, 5), 12.0)
    assert "from 4 back to 2: two emulators" in seen.problems[0]


def test_jobs_go_to_whoever_accepts_them(cluster):
    with witness.Witness(cluster) as seen:
        until("two jobs", lambda: len(seen.jobs) > 1)
    assert seen.unfinished() == []
    assert seen.problems == []


# Command
def options(*drills, **more):
    return argparse.Namespace(
        **{"drills": list(drills), "list": False, "rounds": 1, "goal": None}
        | {"json": False, "pairs": 0, "seed": 0}
        | more
    )


@pytest.fixture
def played(monkeypatch):
    """Play results of the test instead of drills; return their names and the output."""
    names, lines = [], []

    def results(_site, wanted, rounds):
        for number in range(rounds):
            for name in wanted:
                names.append(name)
                problems = ("it broke",) if name == "lie" else ()
                yield Result(
                    drill=name,
                    round=number + 1,
                    node="node4",
                    recovery_s=None if problems else 10.0 + number,
                    problems=problems,
                )

    monkeypatch.setattr(runner, "Site", lambda *_args: None)
    monkeypatch.setattr(runner, "prepared", contextlib.nullcontext)
    monkeypatch.setattr(runner, "_results", results)

    def run(args):
        return runner.run_drills(args, lambda: (None, None), lines.append)

    return run, names, lines


def test_all_drills_are_played_and_a_failed_one_is_the_exit_code(played):
    run, names, lines = played
    assert run(options()) == 1
    assert names == list(scenarios.DRILLS)
    assert lines[-1].startswith(f"{len(names)} drills, 1 failed; ")


def test_rounds_give_percentiles_and_may_miss_a_goal(played):
    run, _names, lines = played
    assert run(options("kill", rounds=20, goal=28.0)) == 0
    assert lines[-1] == (
        "20 drills, 0 failed; 20 recoveries: p50 19.0 s, p95 28.0 s, longest 29.0 s"
    )
    assert run(options("kill", rounds=20, goal=27.0)) == 1
    assert lines[-1] == "slower than the goal of 27 s"


def test_pairs_are_random_and_repeatable(played):
    run, names, lines = played
    run(options(pairs=5, seed=7))
    assert lines[0] == "seed 7"
    assert len(set(names)) == 5
    run(options(pairs=5, seed=7))
    assert names[:5] == names[5:]
    run(options(names[0]))
    assert names[-1] == names[0]


def test_json_is_one_document(played):
    run, _names, lines = played
    assert run(options("kill", "lie", json=True)) == 1
    (text,) = lines
    document = json.loads(text)
    assert [row["problems"] for row in document["drills"]] == [[], ["it broke"]]
    assert document["summary"]["p95_s"] == 10.0


def test_drills_are_listed_with_their_faults(played):
    run, names, lines = played
    assert run(options(list=True)) == 0
    assert len(lines) == len(scenarios.DRILLS)
    assert names == []


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (options("flood"), "drill flood: not known; drills are kill, "),
        (options("kill+cut"), r"drill kill\+cut: drills that end their fault"),
        (options(rounds=0), "--rounds: wanted at least 1, found 0"),
    ],
)
def test_a_wrong_command_plays_nothing(played, args, text):
    run, names, _lines = played
    with pytest.raises(errors.OpPrereqError, match=text):
        run(args)
    assert names == []


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"count": 4, "isolated": False, "monitoring": True}, "networks of their own"),
        ({"count": 4, "isolated": True, "monitoring": False}, "maintenance daemon"),
        ({"count": 3, "isolated": True, "monitoring": True}, "at least 4 .* found 3"),
    ],
)
def test_a_cluster_that_is_not_made_for_drills_is_refused(tmp_path, more, text):
    layout = lay.plan(str(tmp_path), network="10.9", bindir="/b", **more)
    with pytest.raises(errors.OpPrereqError, match=text):
        site.Site(layout, None)


def test_files_of_drills_are_removed_with_the_cluster(tmp_path):
    """``down`` removes the state of the cluster, and no file that it does not know."""
    layout = lay.plan(
        str(tmp_path),
        count=4,
        isolated=True,
        network="10.9",
        bindir="/b",
        monitoring=True,
    )
    (tmp_path / "state" / "drill").mkdir(parents=True)
    site.Site(layout, None).faults.lie(hold=True)
    assert len(list((tmp_path / "state" / "drill").iterdir())) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


# The settings of the cluster
TAG = "ganeti:watcher:autorepair:failover"


class Recorded(site.Site):
    """A site that records the commands; its master daemon remembers no death."""

    def __init__(self, folder, **info):
        wanted = {"isolated": True, "network": "10.9", "bindir": "/b"}
        layout = lay.plan(str(folder), count=4, monitoring=True, **wanted)
        super().__init__(layout, None)
        self.info = {
            "enabled_hypervisors": ["kvm"],
            "tags": [],
            "automation_limits": {"fenced-per-hour": 3.0, "moved-share": 2.5},
            "node_death": False,
            "ndparams": {"oob_program": "/usr/lib/oob"},
        } | info
        self.faults = types.SimpleNamespace(
            write_helper=lambda: "/helper", mend=lambda: None
        )
        self.listed = "node1 Y N\nnode2 N Y\nnode3 - N\n"
        self.place = "node1"
        self.commands = []
        self.broken = ""

    @property
    def master(self):
        return self.layout.nodes[0]

    def call(self, method, *args, **_options):
        assert (method, args) == ("QueryNodeDeaths", (False,))
        return {"state": {}}

    def run(self, *words):
        line = " ".join(words)
        if line == "gnt-cluster info --json":
            return json.dumps(self.info)
        if "list" in words:
            return self.listed if "gnt-node" in words else f"{self.place} running\n"
        self.commands.append(line)
        if self.broken and self.broken in line:
            raise errors.OpExecError(line)
        return ""


BEGIN = "gnt-cluster modify --node-parameters=oob_program=/helper"
GUEST = "drill.vc.test"
CREATION = (
    "gnt-instance add --no-install --no-start --no-nics -t sharedfile -s 1m"
    " -o tiny+default -B memory=96m -n node4"
    f" -H kvm:kernel_args=quiet tiny.record=/dev/vda tiny.heartbeat=no {GUEST}"
)
START = f"gnt-instance startup {GUEST}"
END = (
    "gnt-cluster modify --node-death={} --automation-limits={}"
    " --node-parameters=oob_program=/usr/lib/oob"
)
REMOVAL = f"gnt-instance remove -f --shutdown-timeout=0 {GUEST}"


@pytest.mark.parametrize("broken", ["", "gnt-instance remove", "gnt-instance startup"])
@pytest.mark.parametrize(
    ("info", "switch", "limits", "tagged"),
    [
        ({}, "no", "fenced-per-hour=3,moved-share=2.5,-quiet-time", True),
        (
            {"tags": [TAG], "node_death": True, "automation_limits": {}},
            *("yes", "-fenced-per-hour,-quiet-time", False),
        ),
    ],
)
def test_settings_are_those_of_before_when_drills_end(
    tmp_path, info, switch, limits, tagged, broken
):
    made = Recorded(tmp_path, **info)
    made.broken = broken
    is_refused = broken.endswith("startup")
    ends = pytest.raises(errors.OpExecError) if is_refused else contextlib.nullcontext()
    with ends, site.prepared(made):
        made.commands.append("drills")
    assert made.commands == [
        *(BEGIN, *[f"gnt-cluster add-tags {TAG}"] * tagged, CREATION, START),
        *["drills"] * (not is_refused),
        *(END.format(switch, limits), *[f"gnt-cluster remove-tags {TAG}"] * tagged),
        REMOVAL,
    ]


def test_a_cluster_without_kvm_is_left_alone(tmp_path):
    made = Recorded(tmp_path, enabled_hypervisors=["xen-pvh"])
    kvm = pytest.raises(errors.OpPrereqError, match="needs the hypervisor kvm")
    with kvm, site.prepared(made):
        pass
    assert made.commands == []


@pytest.mark.parametrize(("place", "moves"), [("node1", True), ("node2", False)])
def test_nodes_come_back_as_a_person_brings_them(tmp_path, place, moves):
    made = Recorded(tmp_path)
    made.place = place
    made.take_back()
    assert made.commands == [
        "gnt-node modify --node-powered=yes node2",
        "gnt-node modify --offline=no --force node2",
        "gnt-node modify --node-powered=yes node3",
        "gnt-cluster modify --node-death=no",
        *[f"gnt-instance migrate -f -n node4 {GUEST}"] * moves,
    ]
