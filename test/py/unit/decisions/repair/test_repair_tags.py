"""Tags of repairs: what is read, what is written, what they allow."""

import math

import pytest

from ganeti.decisions.repair import tags
from ganeti.decisions.repair.tags import (
    RepairKind,
    RepairOutcome,
    RepairPolicy,
    RepairRecord,
)

P = tags.PREFIX
ID = "5b0c2f5e-6a0e-4d53-8f7e-1c1c6a9d1e10"
PENDING = f"{P}pending:failover:{ID}:1700001000:812+813"
RESULT = f"{P}result:fix-storage:{ID}:1700002000:success:820"
NOW = 1_700_000_000.0


def test_records_are_read_oldest_first():
    assert tags.records([RESULT, "other", PENDING]) == [
        RepairRecord(RepairKind.FAILOVER, ID, 1_700_001_000, None, (812, 813)),
        RepairRecord(
            RepairKind.FIX_STORAGE, ID, 1_700_002_000, RepairOutcome.SUCCESS, (820,)
        ),
    ]


@pytest.mark.parametrize("tag", [PENDING, RESULT, f"{P}pending:migrate:x:5:"])
def test_what_is_read_is_written_the_same(tag):
    (record,) = tags.records([tag])
    assert record.tag == record.original_tag == tag


@pytest.mark.parametrize(
    "tag",
    [
        f"{P}pending:explode:{ID}:5:",
        f"{P}pending:migrate:{ID}:soon:",
        f"{P}pending:migrate:{ID}:5",
        f"{P}pending:migrate:{ID}:5:1+",
        f"{P}result:migrate:{ID}:5:maybe:",
        f"{P}result:migrate:{ID}:5:",
        f"x{P}pending:migrate:{ID}:5:",
        f"{P}pending:migrate:{ID}:\N{ARABIC-INDIC DIGIT FIVE}:",
        f"{P}pending:migrate:{ID}:{'9' * 13}:",
        f"{P}pending:migrate:{ID}:5:{'9' * 16}",
        "",
    ],
)
def test_malformed_tags_are_no_records(tag):
    assert tags.records([tag]) == []
    mine = [tag] if tag.startswith(P) else []
    assert tags.unreadable([tag, "other"]) == tags.unreadable_records([tag]) == mine


def test_every_known_tag_is_readable():
    known = [*(f"{P}{kind.word}" for kind in RepairKind), tags.FILE_TAG]
    known += [f"{P}suspend", f"{P}suspend:", f"{P}suspend:5", PENDING, RESULT]
    assert tags.unreadable([*known, "web", "ganeti:watcher"]) == []
    wrong = [f"{P}Failover", f"{P}suspend:-1", f"{P}suspended", P, f"{P}pending"]
    assert tags.unreadable([*known, *wrong]) == sorted(wrong)


def test_policies_name_the_tag_and_the_object_that_decide():
    objects = ([], [f"{P}suspend:9"], [f"{P}migrate"])
    assert tags.policy(objects, 10.0).origin == f"{P}migrate of the cluster"
    assert tags.policy(objects, 8.0).origin == f"{P}suspend:9 of the node group"


def test_only_the_newest_tag_of_a_repair_counts():
    kept = [f"{P}pending:migrate:a:5:1+2", f"{P}pending:migrate:b:6:"]
    old = [f"{P}pending:migrate:a:5:", f"{P}pending:migrate:a:5:1"]
    ended = f"{P}result:failover:c:9:success:4"
    left = f"{P}pending:failover:c:3:4"
    records = tags.records([*kept, *old, ended, left])
    assert tags.conflict(records) is None
    assert [record.tag for record in tags.current(records)] == [*kept, ended]


def test_jobs_that_no_longer_fit_are_no_contradiction():
    jobs = tuple(range(100_000, 100_012))
    old = RepairRecord(RepairKind.MIGRATE, ID, 1_700_000_000, None, jobs[:-1])
    new = RepairRecord(RepairKind.MIGRATE, ID, 1_700_000_000, None, jobs)
    assert len(new.tag) <= 128
    assert tags.conflict(tags.records([old.tag, new.tag])) is None


def test_very_many_jobs_still_fit_a_tag():
    record = RepairRecord(
        RepairKind.FIX_STORAGE, ID, 1_700_001_000, None, tuple(range(1000, 1030))
    )
    assert len(record.tag) <= 128
    (read,) = tags.records([record.tag])
    assert read.jobs == record.jobs[-len(read.jobs) :]


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([[], [], []], RepairPolicy()),
        ([[], [], [f"{P}failover"]], RepairPolicy(RepairKind.FAILOVER)),
        ([[], [], [f"{P}reinstall", f"{P}migrate"]], RepairPolicy(RepairKind.MIGRATE)),
        (
            [[f"{P}fix-storage"], [], [f"{P}reinstall"]],
            RepairPolicy(RepairKind.FIX_STORAGE),
        ),
        ([[f"{P}failover"], [], [f"{P}suspend"]], RepairPolicy(RepairKind.FAILOVER)),
        ([[], [f"{P}suspend:"], [f"{P}failover"]], RepairPolicy(until=math.inf)),
        ([[f"{P}failover", f"{P}suspend"], [], []], RepairPolicy(until=math.inf)),
        (
            [[f"{P}suspend:1700000001", f"{P}suspend:1700000009"], [], []],
            RepairPolicy(until=1_700_000_009),
        ),
        (
            [[f"{P}suspend:1699999999", f"{P}migrate"], [], []],
            RepairPolicy(RepairKind.MIGRATE),
        ),
        (
            [[f"{P}suspend:never"], [], [f"{P}migrate"]],
            RepairPolicy(unreadable=f"{P}suspend:never"),
        ),
        (
            [[], [f"{P}explode", f"{P}suspend"], [f"{P}migrate"]],
            RepairPolicy(unreadable=f"{P}explode"),
        ),
        (
            [[f"{P}migrate"], [f"{P}explode"], [f"{P}suspend:x"]],
            RepairPolicy(RepairKind.MIGRATE),
        ),
        (
            [[], [], [f"{P}suspend:1699999999", f"{P}suspend:1700000001"]],
            RepairPolicy(until=1_700_000_001),
        ),
        (
            [[], [], [f"{P}suspend:1700000001", f"{P}suspend"]],
            RepairPolicy(until=math.inf),
        ),
        # The example of the design document: two instances and a cluster.
        (
            [[f"{P}failover"], [], [f"{P}fix-storage", f"{P}reinstall"]],
            RepairPolicy(RepairKind.FAILOVER),
        ),
        (
            [[], [], [f"{P}fix-storage", f"{P}reinstall"]],
            RepairPolicy(RepairKind.FIX_STORAGE),
        ),
        (
            [[], [f"{P}reinstall"], [tags.FILE_TAG]],
            RepairPolicy(RepairKind.REINSTALL, with_files=True),
        ),
        (
            [[tags.FILE_TAG], [], [f"{P}failover"]],
            RepairPolicy(RepairKind.FAILOVER, with_files=True),
        ),
        ([[f"{P}suspend"], [], [tags.FILE_TAG]], RepairPolicy(until=math.inf)),
        ([[], [], [tags.FILE_TAG]], RepairPolicy()),
    ],
)
def test_the_nearest_object_that_says_something_decides(objects, expected):
    assert tags.policy(objects, NOW) == expected


def test_policies_in_words():
    assert str(RepairPolicy()) == "not enabled"
    assert str(RepairPolicy(RepairKind.FIX_STORAGE)) == "up to fix-storage"
    assert str(RepairPolicy(until=math.inf)) == "suspended without limit"
    assert str(RepairPolicy(until=1e18)) == "suspended until 1000000000000000000"
    assert str(RepairPolicy(until=12.0)) == "suspended until 1970-01-01 00:00:12 UTC"
    assert str(RepairPolicy(unreadable="x")) == (
        "not permitted while the tag x cannot be read"
    )


def test_suspensions_that_are_over_are_found():
    over = f"{P}suspend:1699999999"
    present = [
        over,
        f"{P}suspend",
        f"{P}suspend:1700000001",
        f"{P}suspend:x",
        "suspend:1",
    ]
    assert tags.expired(present, NOW) == [over]
