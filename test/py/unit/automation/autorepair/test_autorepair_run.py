"""Runs against a fake master: what happens once, even if cut off, and ends of jobs."""

import itertools

import pytest

from fakes.broken_cluster import BrokenCluster
from fakes.clocks import FakeClock
from ganeti.automation import autorepair
from ganeti.automation.autorepair import cluster_view
from ganeti.automation.autorepair.cluster_view import KnownJobs, job_state
from ganeti.base import errors
from ganeti.decisions.repair import tags
from ganeti.decisions.repair.plan import JobState, RepairState

P = tags.PREFIX
ID = "5b0c2f5e-6a0e-4d53-8f7e-1c1c6a9d1e10"


class Killed(BaseException):
    """The program was killed."""


class Messages(list):
    """A reporter; the rows are (level, text)."""

    def __getattr__(self, level):
        return lambda text: self.append((level, text))

    @property
    def text(self):
        return "\n".join(text for _level, text in self)


class Program:
    """A program that repairs; `cut` is a call of it that it does not survive."""

    def __init__(self):
        self.cluster = BrokenCluster()
        self.master = self.cluster.master
        self.clock = FakeClock()
        self.messages = Messages()
        self.cut = None
        self.before = {}
        self._calls = 0
        self._ids = (f"id{number}" for number in itertools.count(1))

    path = "/fake"

    def call(self, method, args=()):
        """Pass a call on, or end the program before or after it."""
        hook = self.before.get(method)
        if hook is not None:
            hook(args)
        self.clock.now += 0.001
        if method != "SubmitJob":
            if method == "WaitForJobChange" and args[2] is not None:
                self.clock.now += args[-1]
            return self.cluster.call(method, args)
        self._calls += 1
        if self.cut == (self._calls, "before"):
            raise Killed
        answer = self.cluster.call(method, args)
        if self.cut == (self._calls, "after"):
            raise Killed
        return answer

    def run(self, **settings):
        values = {"source": "test", "reason": "r", "comment": "c", "job_delay_s": 0}
        values |= {"wait_s": 60.0} | settings
        run = autorepair.RepairRun(
            self,
            self.clock,
            autorepair.RunSettings(**values),
            self.messages,
            lambda: next(self._ids),
        )
        self.clock.now += 300
        count = run.all()
        return dict(count), run.has_failed

    def moves(self):
        """Return the ids of all jobs that repair."""
        return [
            job
            for job, ops in self.master.jobs.items()
            if not ops[0].op_id().startswith("OP_TAGS")
        ]


@pytest.fixture
def program():
    made = Program()
    made.master.objects["instance"].pop()
    made.cluster.fail()
    return made


@pytest.mark.parametrize("is_slow", [False, True])
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_run_that_ends_anywhere_is_continued_and_nothing_is_done_twice(
    program, number, moment, is_slow
):
    program.cluster.is_slow = is_slow
    program.cut = (number, moment)
    with pytest.raises(Killed):
        program.run()
    for _again in range(2):
        program.run()
    program.cluster.finish()
    for _again in range(2):
        program.run()
    (job,) = program.moves()
    (tag,) = program.cluster.tags()
    assert tag.startswith(f"{P}result:failover:")
    assert tag.endswith(f":success:{job}")


def test_a_repair_is_recorded_before_its_job_is_submitted(program):
    def check(args):
        if args[0][-1]["OP_ID"] == "OP_INSTANCE_FAILOVER":
            (tag,) = program.cluster.tags()
            assert tag.startswith(f"{P}pending:failover:id")
            assert args[0][0]["reason"][1][1].startswith(tag)

    program.before["SubmitJob"] = check
    assert program.run() == ({RepairState.PENDING: 1}, False)
    assert len(program.moves()) == 1


def test_nothing_is_submitted_if_the_repair_cannot_be_recorded(program):
    program.master.results["OP_TAGS_SET"] = errors.TagError("too many tags")
    assert program.run() == ({RepairState.NEEDS_REPAIR: 1}, True)
    assert program.moves() == []
    assert "instance a: job 1: too many tags" in program.messages.text


def test_a_tag_that_takes_too_long_is_canceled(program):
    """Another job, such as an export, can hold the instance's lock for hours."""
    program.master.still[1] = "waiting"
    began = program.clock.now
    assert program.run() == ({RepairState.NEEDS_REPAIR: 1}, True)
    assert program.clock.now - began < 400
    assert ("CancelJob", [1, False]) in program.master.calls
    assert program.moves() == []


# Data that changed since the beginning of the run
def _node_is_back(program):
    program.cluster.find("node", "n1")["offline"] = False


def _suspended(program):
    program.cluster.master.cluster["tags"].append(f"{P}suspend")


def _removed(program):
    program.master.objects["instance"].clear()


@pytest.mark.parametrize("change", [_node_is_back, _suspended, _removed])
@pytest.mark.parametrize("number", [1, 2])
def test_every_effect_follows_a_look_at_present_data(program, change, number):
    """The first look is for all instances, the next ones for each effect."""
    looks = []

    def look(args):
        if args[0] == "instance":
            looks.append(args)
            if len(looks) == number + 1:
                change(program)

    program.before["Query"] = look
    program.run()
    assert program.moves() == []
    if change is not _removed:
        assert len(program.cluster.tags()) == number - 1


def test_another_job_for_the_instance_is_waited_for(program):
    """After it, a second migration would lead back to the drained node."""
    program.master.objects["job"] = [
        {
            "id": 900,
            "status": "running",
            "summary": ["INSTANCE_MIGRATE(a)"],
            "ops": [{"OP_ID": "OP_INSTANCE_MIGRATE", "instance_name": "a"}],
        }
    ]
    program.master._QueryJobs = _with(program.master, 900)
    assert program.run() == ({RepairState.NEEDS_REPAIR: 1}, False)
    assert program.moves() == []
    assert "job 900, of somebody else, comes first" in program.messages.text


def _with(master, job):
    """Return QueryJobs of a master that has a job of somebody else."""
    (stored,) = master.objects["job"]

    def query(ids, fields):
        return [
            [stored.get(field) for field in fields]
            if number == job
            else [None] * len(fields)
            for number in ids
        ]

    return query


def test_a_request_without_jobs_is_carried_out_once(program):
    """It needs no permission by a tag of the cluster."""
    program.cluster.master.cluster["tags"].clear()
    asked = f"{P}pending:failover:{ID}:1700001000:"
    program.cluster.find("instance", "a")["tags"].append(asked)
    assert program.run() == ({RepairState.PENDING: 1}, False)
    (job,) = program.moves()
    assert program.cluster.tags() == [f"{asked}{job}"]
    (op,) = program.master.jobs[job]
    assert op.reason[1][1] == (
        f"{asked} its primary node is offline, permitted by a request for this"
        " instance alone"
    )
    assert program.run() == ({RepairState.HEALTHY: 1}, False)
    assert len(program.moves()) == 1


def test_requests_for_a_healthy_instance_end_without_jobs(program):
    program.cluster.find("node", "n1")["offline"] = False
    owner = program.cluster.find("instance", "a")
    owner["tags"] = [f"{P}pending:migrate:{name}:17:" for name in "xy"]
    assert program.run() == ({RepairState.HEALTHY: 1}, False)
    assert program.moves() == []
    assert [tag.split(":")[3:6:2] for tag in sorted(program.cluster.tags())] == [
        ["result", "x"],
        ["result", "y"],
    ]
    assert all(tag.endswith(":success:") for tag in program.cluster.tags())


def test_all_repairs_are_recorded_before_the_first_job(program):
    rows = program.master.objects["instance"]
    rows.append(program.cluster.made("c", "sharedfile"))
    program.run()
    kinds = [ops[0].op_id() for ops in program.master.jobs.values()]
    assert kinds[:3] == ["OP_TAGS_SET", "OP_TAGS_SET", "OP_INSTANCE_FAILOVER"]
    assert len(program.moves()) == 2


def test_abbreviated_names_in_jobs_of_people_are_recognised(program):
    program.cluster.find("instance", "a")["name"] = "a.example.com"
    program.run()
    (filters,) = {
        tuple(term[2] for term in args[2][1:])
        for method, args in program.master.calls
        if method == "Query" and args[0] == "job" and args[2]
    }
    assert "INSTANCE_MIGRATE(a)" in filters
    assert "INSTANCE_REPLACE_DISKS(a.example.com)" in filters


@pytest.mark.parametrize("answer", [{}, {"data": [[1, 2]]}, {"data": [[[0, 5]] * 2]}])
def test_malformed_answers_about_jobs_are_an_error(program, answer):
    program.master._Query = _malformed(program.master._Query, answer)
    with pytest.raises(errors.ProtocolError, match="the answer is malformed"):
        program.run()


def _malformed(query, answer):
    def replaced(resource, *args):
        return answer if resource == "job" else query(resource, *args)

    return replaced


# Journal
def last_items(program):
    return list(program.master.rounds.values())[-1].items


def test_a_repair_is_in_the_journal_with_its_tag_and_job(program):
    program.run()
    begun, submitted = last_items(program)
    (tag,) = program.cluster.tags()
    (job,) = program.moves()
    repair = tag.split(":")[5]
    assert (begun.name, begun.decision, begun.jobs) == ("a", "chosen", ())
    assert begun.action == "begin a repair: failover"
    assert (submitted.action, submitted.jobs) == ("failover", (job,))
    assert begun.ids == submitted.ids == (repair,)
    assert submitted.nodes == ("n1",)
    (number,) = program.master.rounds
    source, text, _time = program.master.jobs[job][0].reason[2]
    assert (source, text) == ("gnt:journal", f"round {number}")
    program.run()
    entry = list(program.master.rounds.values())[-1]
    (ended,) = entry.items
    assert (ended.action, ended.ids) == ("end the repair: success", (repair,))
    assert [(end.job, end.status) for end in entry.results] == [(job, "success")]


def test_a_repair_without_permission_is_a_refusal_in_the_journal(program):
    program.cluster.master.cluster["tags"].clear()
    program.run()
    (refused,) = last_items(program)
    assert (refused.name, refused.decision) == ("a", "refused")
    assert refused.reason


def test_a_healthy_cluster_has_a_round_without_items(program):
    program.cluster.find("node", "n1")["offline"] = False
    program.run()
    assert last_items(program) == ()


def test_a_dry_run_leaves_the_journal_alone(program):
    program.run(dry_run=True)
    assert program.master.rounds == {}


def test_a_refused_job_of_a_repair_is_a_refusal_in_the_journal(program):
    program.master.refuse["OP_INSTANCE_FAILOVER"] = errors.JobQueueError("a filter")
    program.run()
    _begun, refused = last_items(program)
    assert refused.decision == "refused"
    assert "a filter" in refused.reason


# Limits
def test_nothing_begins_during_a_freeze(program):
    program.master.automation["freeze"] = {"reason": "work", "time": 1.0}
    assert program.run() == ({RepairState.NEEDS_REPAIR: 1}, False)
    assert (program.moves(), program.cluster.tags()) == ([], [])
    (refused,) = last_items(program)
    assert (refused.decision, refused.limit) == ("refused", "frozen")
    assert "(work)" in refused.reason
    program.master.automation["freeze"] = None
    program.run()
    assert len(program.moves()) == 1


def test_a_repair_that_has_begun_waits_during_a_freeze_but_ends(program):
    program.cluster.is_slow = True
    program.run()
    program.master.automation["freeze"] = {"reason": "", "time": 1.0}
    program.cluster.finish()
    program.run()
    (tag,) = program.cluster.tags()
    assert tag.startswith(f"{P}result:failover:")


def test_no_more_instances_move_at_once_than_the_limit_permits(program):
    rows = program.master.objects["instance"]
    rows.extend(program.cluster.made(f"c{n}", "sharedfile") for n in range(9))
    program.cluster.is_slow = True
    limits = {"limits": {"moved-share": 20.0}, "instances": 10}
    program.master.automation |= limits
    program.run()
    assert len(program.moves()) == 2
    noted = last_items(program)
    refused = [item for item in noted if item.limit == "moved-share"]
    assert len(refused) == 8
    assert {item.decision for item in refused} == {"refused"}
    assert sum(item.moves for item in noted) == 2


def test_instances_that_others_move_count_for_the_limit(program):
    limits = {"moved-share": 10.0}
    program.master.automation |= {"limits": limits, "instances": 10, "moving": ["z"]}
    program.run()
    assert program.moves() == []


def test_a_freeze_during_a_run_holds_what_comes_after_it(program, monkeypatch):
    master = program.master
    asked, answer = [], master._QueryAutomation

    def frozen_later():
        asked.append(1)
        if len(asked) > 1:
            master.automation["freeze"] = {"reason": "work", "time": 1.0}
        return answer()

    monkeypatch.setattr(master, "_QueryAutomation", frozen_later)
    program.run()
    assert (program.moves(), program.cluster.tags()) == ([], [])


def test_a_master_of_an_earlier_release_has_repairs_done(program, monkeypatch):
    for name in ("_QueryAutomation", "_RecordRound"):
        monkeypatch.delattr(type(program.master), name)
    program.run()
    assert program.moves()


# Jobs of repairs: what their ends mean, and which repair they belong to.

DELAY, MOVE = {"OP_ID": "OP_TEST_DELAY"}, {"OP_ID": "OP_INSTANCE_MIGRATE"}
CREATE = {"OP_ID": "OP_INSTANCE_RECREATE_DISKS"}
REFUSED = errors.encode(errors.OpPrereqError("no", "wrong_state"))
FULL = errors.encode(errors.OpPrereqError("full", "insufficient_resources"))
BROKEN = errors.encode(errors.OpExecError("broken"))


@pytest.mark.parametrize(
    ("status", "ops", "results", "state"),
    [
        ("success", [MOVE], [None], JobState.SUCCESS),
        ("canceled", [MOVE], [None], JobState.CANCELED),
        ("queued", [MOVE], [None], JobState.RUNNING),
        ("canceling", [MOVE], [None], JobState.RUNNING),
        ("error", [MOVE], [BROKEN], JobState.FAILED),
        ("error", [MOVE], [REFUSED], JobState.REFUSED),
        ("error", [DELAY, MOVE], [None, REFUSED], JobState.REFUSED),
        ("error", [DELAY, CREATE], [True, FULL], JobState.NO_ROOM),
        # The first opcode has changed something.
        ("error", [CREATE, MOVE], [None, REFUSED], JobState.FAILED),
        ("error", [CREATE, MOVE], [None, FULL], JobState.FAILED),
        ("error", [], None, JobState.FAILED),
        ("error", ["x", 5], [REFUSED], JobState.FAILED),
    ],
)
def test_the_end_of_a_job_shows_whether_anything_was_changed(
    status, ops, results, state
):
    assert job_state(status, results, ops) == state


def test_jobs_that_name_a_repair_belong_to_it():
    known = KnownJobs({}, {"a": [3, 7, 9], "b": [8]}, {})
    present = [f"{P}pending:migrate:a:5:7", f"{P}result:migrate:b:6:success:1"]
    first, ended = cluster_view.complete(tags.records(present), known)
    assert (first.jobs, ended.jobs) == ((7, 9), (1,))
    assert first.original_tag == present[0]


@pytest.mark.parametrize(
    "reason",
    [
        None,
        [[]],
        [["autorepair"]],
        [["autorepair", 5]],
        [["autorepair", ""]],
        [["gnt:user", f"{P}pending:migrate:a:5:"]],
        [["autorepair", f"x {P}pending:migrate:a:5:"]],
    ],
)
def test_reasons_without_a_repair_are_ignored(reason):
    assert cluster_view._repairs([MOVE | {"reason": reason}, "x"]) == set()
    named = [["gnt:user", "x"], ["autorepair", f"{P}pending:migrate:a:5: why"]]
    assert cluster_view._repairs([MOVE | {"reason": named}]) == {"a"}


def test_time_stamps():
    assert cluster_view._seconds([1700000000, 5]) == 1_700_000_000.0
    assert [cluster_view._seconds(value) for value in (None, [], ["x"], 5)] == [
        None
    ] * 4
