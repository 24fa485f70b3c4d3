"""Repairs in the run of the watcher: who may repair, the log, and the exit code."""

import logging

import pytest

from ganeti.automation import autorepair
from ganeti.automation.watcher import main, master_part
from ganeti.base import errors
from ganeti.decisions.repair import tags

P = tags.PREFIX


@pytest.fixture(autouse=True)
def log(caplog):
    caplog.set_level(logging.INFO)
    return caplog


@pytest.fixture(autouse=True)
def children(monkeypatch):
    """Number of started children."""
    started = []

    def start(_watch, groups):
        started.append(list(groups))
        return 0

    monkeypatch.setattr(master_part, "_run_children", start)
    return started


@pytest.fixture
def drained(node):
    """A cluster with a mirrored instance on a drained node."""
    node.instances(web1="running")
    node.master.objects["node"][0]["drained"] = True
    return node


def run(node):
    return main.guarded(node.watch(), None)


def test_without_tags_nothing_is_repaired(drained, children, log):
    assert run(drained) == 0
    assert drained.ops() == []
    assert "autorepair: Needs repair: 1" in log.text
    assert "web1" not in log.text
    assert len(children) == 1


def test_a_tag_allows_a_repair_whose_job_names_it(drained, log):
    drained.master.cluster["tags"].append(f"{P}migrate")
    drained.master.lists_jobs = True

    def tag(op):
        drained.master.objects["instance"][0]["tags"] += op.tags

    drained.master.results["OP_TAGS_SET"] = tag
    assert run(drained) == 0
    assert [op_id for op_id, _name in drained.ops()] == [
        *("OP_TAGS_SET", "OP_TEST_DELAY", "OP_INSTANCE_MIGRATE"),
        *("OP_TAGS_SET", "OP_TAGS_DEL"),
    ]
    delay, move = drained.master.jobs[2]
    assert delay.duration == 5.0
    assert [tuple(entry[:2]) for entry in move.reason[:1]] == [
        ("gnt:watcher", "autorepair")
    ]
    pending, replaced = drained.master.objects["instance"][0]["tags"]
    assert replaced == f"{pending}2"
    source, text = move.reason[1][:2]
    assert source == "autorepair"
    assert text == (
        f"{pending} its primary node is drained, permitted by {P}migrate of the cluster"
    )
    assert "autorepair: web1: its primary node is drained, repair: migrate" in log.text


def test_another_program_that_repairs_is_no_failure(drained, children, log):
    drained.master.cluster["tags"].append(f"{P}migrate")
    with autorepair.exclusive(drained.paths, timeout_s=0):
        assert run(drained) == 0
    assert drained.ops() == []
    assert "another program repairs instances" in log.text
    assert len(children) == 1


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (errors.JobQueueDrainError("drained"), 0, "the master accepts no jobs"),
        (errors.JobQueueFull("full"), 0, "the master accepts no jobs"),
        (errors.LuxiError("no answer"), 1, "autorepair: no answer"),
    ],
)
def test_errors_do_not_keep_the_watcher_from_the_rest(
    drained, children, log, error, code, text
):
    drained.master.cluster["tags"].append(f"{P}migrate")

    def refuse(*_args):
        raise error

    drained.master._SubmitJob = refuse
    assert run(drained) == code
    assert text in log.text
    assert len(children) == 1


def test_malformed_answers_are_errors_of_one_line(drained, children, log):
    drained.master.objects["instance"][0]["tags"] = [1]
    assert run(drained) == 1
    assert "autorepair: LUXI /fake: " in log.text
    assert "Traceback" not in log.text
    assert len(children) == 1


def test_nothing_is_repaired_without_the_role_of_master(drained):
    drained.master.cluster["tags"].append(f"{P}migrate")
    drained.master.values["master_node"] = "n9.tst"
    assert run(drained) == 0
    assert drained.ops() == []


def test_tags_to_correct_are_warnings(drained, log):
    drained.master.cluster["tags"].append(f"{P}migratte")
    assert run(drained) == 0
    (warning,) = [r for r in log.records if r.levelname == "WARNING"]
    assert (
        f"web1: its primary node is drained, but repairs are not permitted while the"
        f" tag {P}migratte cannot be read" in warning.getMessage()
    )
    assert drained.ops() == []


def test_the_delay_fits_into_the_time_for_tags():
    assert master_part._REPAIR_DELAY_S < master_part._REPAIR_WAIT_S


def test_repairs_are_left_to_the_maintenance_daemon_where_that_is_set(drained, log):
    drained.master.cluster["tags"].append(f"{P}migrate")
    drained.master.cluster["maint_repairs"] = True
    assert run(drained) == 0
    assert drained.ops() == []
    assert "autorepair: left to ganeti-maintd" in log.text
