"""Filter rules, ad-hoc buckets and the share of the remote API, as pure decisions."""

import pytest

from fakes.jobs_run import Gate, Harness, dummy, until
from ganeti.base import errors
from ganeti.decisions.jobs import filters
from ganeti.model import objects

FACTS = filters.JobFacts(
    8,
    [
        {"OP_ID": "OP_INSTANCE_CREATE", "beparams": {"vcpus": 4}, "wait": True},
        {"OP_ID": "OP_TEST_DELAY", "duration": 1, "comment": "secret"},
    ],
    [("gnt:user", "maintenance", 5), ("gnt:watcher", "x", 10)],
)


def rule(action, *predicates, uuid="f", priority=0, watermark=7):
    return objects.FilterRule(
        uuid=uuid,
        watermark=watermark,
        priority=priority,
        predicates=predicates,
        action=action,
        reason_trail=(),
    )


@pytest.mark.parametrize(
    ("predicate", "fits"),
    [
        (["jobid", [">", "id", "watermark"]], True),
        (["jobid", ["<=", "id", "watermark"]], False),
        (["jobid", ["|", ["==", "id", 3], ["==", "id", 8]]], True),
        (["jobid", ["!", ["==", "id", 8]]], False),
        (["jobid", ["!", ["==", "id", 9]]], True),
        (["jobid", ["&", [">", "id", 7], ["<", "id", 9]]], True),
        (["jobid", ["!", ["=~", "id", "9"]]], False),
        (["reason", ["|", ["=~", "reason", "main"], ["==", "reason", "x"]]], False),
        (["jobid", ["=~", "id", "8"]], False),
        (["jobid", ["==", "name", 8]], False),
        (["opcode", ["==", "OP_ID", "OP_TEST_DELAY"]], True),
        (["opcode", ["==", "OP_ID", "OP_TEST_DUMMY"]], False),
        (["opcode", ["==", "beparams.vcpus", 4]], True),
        (["opcode", ["==", "beparams.nothing", 4]], False),
        (["opcode", ["==", "OP_ID.vcpus", 4]], False),
        (["opcode", ["=~", "OP_ID", "^OP_INSTANCE_"]], True),
        (["opcode", ["?", "wait"]], True),
        (["opcode", [">", "duration", 0]], True),
        (["opcode", [">", "duration", "text"]], False),
        (["opcode", ["==", "comment", "secret"]], False),
        (["opcode", ["&", ["==", "OP_ID", "OP_TEST_DELAY"], ["?", "wait"]]], False),
        (["reason", ["==", "source", "gnt:watcher"]], True),
        (["reason", ["&", ["==", "source", "gnt:user"], [">", "timestamp", 7]]], False),
        (["reason", ["=~", "reason", "main"]], False),
        (["reason", ["==", "reason", "maintenance"]], True),
        (["weather", ["==", "rain", 1]], False),
        (["opcode", ["nonsense"]], False),
        ("junk", False),
    ],
)  # fmt: skip
def test_predicates(predicate, fits):
    decision = filters.Rules([rule("PAUSE", predicate)]).decide(FACTS)
    assert decision.action == ("PAUSE" if fits else "ACCEPT")


SKIPPED = [
    ([["opcode", ["=~", "OP_ID", "(?!x)"]]], "predicate: filter: regular expression"),
    ([["reason", ["=~", "reason", "main"]]], "predicate: reason: wanted comparisons"),
    ([["reason", ["==", "colour", 1]]], "predicate: job filter: unknown field colour"),
    ([["jobid", ["==", "name", 8]]], "predicate: job filter: unknown field name"),
    ([["weather", ["==", "rain", 1]]], "predicate: wanted [kind, filter], found"),
    ([["opcode", ["nonsense"]]], "predicate: filter: 'nonsense' is not an operator"),
    (["junk"], "predicate: wanted [kind, filter], found 'junk'"),
    ([[["a"], None]], "predicate: wanted [kind, filter], found"),
]  # fmt: skip


@pytest.mark.parametrize(("predicates", "text"), SKIPPED)
def test_a_stored_rule_that_cannot_be_evaluated_is_skipped_and_says_why(
    predicates, text
):
    wrong = rule("PAUSE", *predicates)
    assert filters.Rules([wrong]).decide(FACTS).action == "ACCEPT"
    assert filters.problem(wrong).startswith(text)
    assert list(filters.problems([wrong, rule("PAUSE", uuid="g")])) == ["f"]


@pytest.mark.parametrize("action", ["", "pause", [], ["RATE_LIMIT", 0], None, 5])
def test_a_stored_rule_with_an_unknown_action_is_skipped(action):
    assert filters.Rules([rule(action)]).decide(FACTS).action == "ACCEPT"
    assert filters.problem(rule(action)) == f"action: found {action!r}"


def test_a_stored_expression_cannot_backtrack():
    # Those of earlier releases are evaluated, too.
    stored = rule("PAUSE", ["opcode", ["=~", "comment_", "(a|aa)+$"]])
    facts = FACTS._replace(inputs=[{"comment_": "a" * 60 + "!"}])
    assert filters.Rules([stored]).decide(facts).action == "ACCEPT"
    assert filters.problem(stored) is None


@pytest.mark.parametrize("kind", ["jobid", "opcode", "reason"])
def test_a_stored_predicate_without_a_filter_always_holds(kind):
    actual = filters.Rules([rule("PAUSE", [kind, None])]).decide(FACTS).action
    assert actual == "PAUSE"


def test_all_predicates_must_hold_and_none_matches_everything():
    yes = ["jobid", ["==", "id", 8]]
    no = ["jobid", ["==", "id", 9]]
    assert filters.Rules([rule("REJECT", yes, no)]).decide(FACTS).action == "ACCEPT"
    assert filters.Rules([rule("REJECT", yes, yes)]).decide(FACTS).action == "REJECT"
    assert filters.Rules([rule("REJECT")]).decide(FACTS).action == "REJECT"


def test_the_first_rule_that_does_not_say_continue_decides():
    rules = [
        rule("REJECT", priority=2),
        rule("PAUSE", priority=1, watermark=9, uuid="a"),
        rule("ACCEPT", priority=1, watermark=8, uuid="c"),
        rule("PAUSE", priority=1, watermark=8, uuid="d"),
        rule("CONTINUE", priority=0),
    ]
    assert filters.Rules(rules).decide(FACTS) == ("ACCEPT", "c", None)


def test_rate_limits_name_their_slot():
    decision = filters.Rules([rule(["RATE_LIMIT", 2], uuid="u")]).decide(FACTS)
    assert decision == ("RATE_LIMIT", "u", ("filter/u", 2))


def test_buckets_come_from_reasons_each_once():
    texts = [
        "rate-limit:2:web", "rate-limit:2:web", "rate-limit:3:web", "rate-limit:0:web",
        "rate-limit:x:web", "rate-limit:1:a:b", "my rate-limit:1:c", "rate-limit:-1:d",
    ]  # fmt: skip
    actual = filters.buckets([("s", text, 0) for text in texts])
    assert actual == (("bucket/2:web", 2), ("bucket/3:web", 3), ("bucket/1:a:b", 1))


def test_a_stored_rule_with_too_many_expressions_is_skipped():
    # They are evaluated while the queue is locked, once per waiting job.
    many = ["|", *(["=~", "os_type", f"[ab]*a[ab]{{9}}{n}"] for n in range(200))]
    stored = rule("REJECT", ["opcode", ["!", many]], ["opcode", ["!", many]])
    assert filters.problem(stored) == "predicates: filter: too many regular expressions"
    one = rule("REJECT", ["opcode", ["!", many]])
    assert filters.problem(one) is None
    facts = filters.JobFacts(1, [{"OP_ID": "x", "os_type": "debian"}], [])
    assert filters.Rules([one]).decide(facts).action == "REJECT"
    assert filters.Rules([stored]).decide(facts).action == "ACCEPT"


# The share of the remote API in the queue and in the workers.


def by(name, address="192.0.2.9", comment=None):
    """Return an opcode that a user of the remote API has submitted."""
    text = f"user {name}, address {address}, request 0123456789ab"
    return dummy(comment, reason=[(filters.REMOTE_SOURCE, text, 1)])


@pytest.mark.parametrize(
    ("reasons", "who"),
    [
        ([], ""),
        ([("gnt:user", "user ann, address x, request 0", 1)], ""),
        ([("me", "x", 1), *by("ann").reason], "user ann"),
        (by("anonymous").reason, "address 192.0.2.9"),
        ([(filters.REMOTE_SOURCE, "x", 1)], "x"),
    ],
)
def test_the_requester_is_in_the_reasons(reasons, who):
    assert filters.requester(reasons) == who


@pytest.mark.parametrize(
    ("limit", "part"), [(1, 1), (2, 1), (4, 3), (5, 4), (20, 16), (100, 80)]
)
def test_some_workers_are_kept(limit, part):
    assert filters.remote_workers(limit) == part


@pytest.fixture
def waiting():
    """Return a queue that runs nothing, with room for ten jobs."""
    harness = Harness(hard_limit=10)
    yield harness
    harness.close()


def test_places_are_kept_for_the_administrator(waiting):
    submit = waiting.queue.submit
    for name in ("ann", "bob", "cid", "dan"):
        for _ in range(2):
            submit([by(name)])
        with pytest.raises(errors.JobQueueFull, match=f"user {name} has 2 unfinished"):
            submit([by(name)])
    with pytest.raises(errors.JobQueueFull, match="part of the job queue"):
        submit([by("eve")])
    for _ in range(2):
        submit([dummy()])
    with pytest.raises(errors.JobQueueFull):
        submit([dummy()])


def test_jobs_of_one_request_have_the_same_limits(waiting):
    # So are the jobs that a job submits: their opcodes have its reasons.
    answers = waiting.queue.submit_many_later([[by("ann")] for _ in range(9)]).result()
    assert [is_accepted for is_accepted, _ in answers] == [True] * 2 + [False] * 7
    assert answers[2][1] == "user ann has 2 unfinished jobs already"
    for name in ("bob", "cid", "dan", "eve"):
        answers = waiting.queue.submit_many_later([[by(name)], [by(name)]]).result()
    assert "part of the job queue" in answers[0][1]
    assert [
        ok for ok, _ in waiting.queue.submit_many_later([[dummy()]] * 3).result()
    ] == [1, 1, 0]


def test_an_ended_job_gives_its_place_back(waiting):
    first, _ = (waiting.queue.submit([by("ann")]) for _ in range(2))
    with pytest.raises(errors.JobQueueFull):
        waiting.queue.submit([by("ann")])
    assert waiting.queue.cancel_later(first).result()[0]
    until(lambda: waiting.queue.statistics().unfinished == 1)
    waiting.queue.submit([by("ann")])


@pytest.mark.parametrize(
    ("who", "jobs"), [("user ann", 10_000), ("address 192.0.2.9", 100)]
)
def test_one_requester_has_a_limit(who, jobs):
    share = filters.RemoteShare(50_000)
    share.add(who, 0, 1)
    for _ in range(jobs - 2):
        share.add(who, 0)
    share.check(who, 1)
    share.add(who, 0)
    with pytest.raises(errors.JobQueueFull, match=f"{who} has {jobs} unfinished"):
        share.check(who, 1)
    share.check("user bob", 1)
    share.check("", 1 << 40)


def test_the_bytes_of_one_requester_have_a_limit():
    share = filters.RemoteShare(50_000)
    most = 64 << 20
    share.check("user ann", most + 1)
    share.add("user ann", most - 1)
    share.check("user ann", 1)
    with pytest.raises(errors.JobQueueFull, match=str(most)):
        share.check("user ann", 2)
    share.add("user ann", most - 1, -1)
    share.add("user ann", 1)
    share.check("user ann", 2)


def test_a_worker_is_kept_for_the_administrator():
    harness = Harness(workers=2)
    gate = Gate()

    def stop(_op, callbacks, _timeout, _priority):
        callbacks.started()
        gate.stop()

    harness.executor.script["stop"] = stop
    try:
        harness.queue.start()
        remote_jobs = [harness.queue.submit([by("ann", comment="stop")]) for _ in "12"]
        gate.wait()
        own = harness.queue.submit([dummy()])
        until(lambda: harness.queue.job(own).status == "success")
        assert harness.queue.job(remote_jobs[1]).status == "queued"
        gate.open()
        for job in remote_jobs:
            until(lambda job=job: harness.queue.job(job).status == "success")
    finally:
        gate.open()
        harness.close()
