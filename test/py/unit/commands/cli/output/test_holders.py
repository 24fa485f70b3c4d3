"""``gnt-job info`` names what a job waits for."""

import types

import pytest

from ganeti.commands.cli.output import holders

RULE = "00000000-0000-4000-8000-000000000001"


class Asked:
    """A master with locks, filter rules and states of jobs."""

    def __init__(self, *, locks=(), rules=(), states=None, waits=()):
        self.waits = waits
        self.rows = {"lock": locks, "filter": rules}
        self.states = states or {}
        self.calls = []

    def call(self, method, *args):
        self.calls.append(method)
        if method == "QueryJobWaits":
            return self.waits
        if method == "QueryJobs":
            return [[self.states[i]] if i in self.states else None for i in args[0]]
        return {"data": [[[0, value] for value in row] for row in self.rows[args[0]]]}


def waits(job=None, **known):
    job = {"id": 7, "status": "queued", "ops": [{"OP_ID": "OP_TEST_DELAY"}], **job}
    return holders.texts(Asked(**known), job)


def rule(action, predicates):
    return [1, 0, predicates, action, [], RULE]


def test_a_running_job_names_its_node_call_with_the_time_that_is_left():
    known = [
        ["the shutdown of the guest on n1", 8.2, 111.8],
        ["hooks\x1b on n2", 71, None],
    ]
    assert waits({"status": "running"}, waits=known) == [
        "the shutdown of the guest on n1, since 8 s, at most 1:52 min left",
        "hooks\\x1b on n2, since 1:11 min",
    ]


def test_a_job_that_waits_for_locks_names_their_owners():
    locks = [
        ["node/n1", "exclusive", [5], [["shared", [6, 7]]]],
        ["node/n2", "shared", [5, "masterd"], [["exclusive", [8]]]],
        ["node/n3", None, None, [["shared", [7]]]],
    ]
    assert waits({"status": "waiting"}, locks=locks) == [
        "lock node/n1, held (exclusive) by job 5",
        "lock node/n3, held by nobody now",
    ]


@pytest.mark.parametrize(
    ("action", "text"),
    [
        ("PAUSE", f"filter rule {RULE}, which pauses it"),
        (["RATE_LIMIT", 2], f"filter rule {RULE}, which lets at most 2 run at once"),
    ],
)
def test_a_queued_job_names_the_rule_that_holds_it(action, text):
    matching = rule(action, [["opcode", ["=", "OP_ID", "OP_TEST_DELAY"]]])
    assert waits({}, rules=[matching]) == [text]
    other = rule(action, [["opcode", ["=", "OP_ID", "OP_TAGS_SET"]]])
    assert waits({}, rules=[other])[0].startswith("a free worker")


def test_a_queued_job_names_jobs_before_it_and_limits_of_its_reason():
    ops = [
        {
            "OP_ID": "OP_TEST_DELAY",
            "depends": [[3, []], [4, ["success"]], [5, []]],
            "reason": [["gnt:user", "rate-limit:1:backups", 1]],
        }
    ]
    assert waits({"ops": ops}, states={3: "running", 4: "success"}) == [
        "the end of job 3, which is running",
        "its reason, which lets at most 1 run at once",
    ]


def test_nothing_is_asked_about_a_job_that_does_not_wait():
    master = Asked()
    for status in ("success", "error", "canceled"):
        job = {"id": 7, "status": status, "ops": []}
        assert holders.texts(types.SimpleNamespace(call=master.call), job) == []
    assert master.calls == []
