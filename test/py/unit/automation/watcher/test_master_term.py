"""A candidate that refuses the master's term makes the watcher restart the master."""

import os

import pytest

from ganeti.automation.watcher import main, master_part

RESTART = ["daemon-util stop ganeti-masterd", "daemon-util start ganeti-masterd"]


@pytest.fixture(autouse=True)
def no_children(monkeypatch):
    monkeypatch.setattr(master_part, "_run_children", lambda _watch, _groups: 0)


@pytest.fixture
def log(caplog):
    caplog.set_level(0)
    return caplog


def copy(*, wants_restart):
    return {"name": "n2", "wants_restart": wants_restart, "trouble": ""}


def restarts(node):
    return [line for line in node.runner.lines if line in RESTART]


def test_a_master_that_no_candidate_refuses_goes_on(node):
    node.master.copies = [copy(wants_restart=False), {"name": "of an older release"}]
    assert main.guarded(node.watch(), None) == 0
    assert restarts(node) == []


def test_a_refused_master_is_restarted_once_in_an_hour(node, log):
    node.master.copies = [copy(wants_restart=True)]
    assert main.guarded(node.watch(), None) == 0
    assert restarts(node) == RESTART
    assert "n2 refuses the term" in log.text
    node.clock.now += 3500
    assert main.guarded(node.watch(), None) == 0
    assert restarts(node) == RESTART
    assert "less than 60 minutes ago" in log.text
    node.clock.now += 200
    assert main.guarded(node.watch(), None) == 0
    assert restarts(node) == RESTART * 2


def test_a_running_job_is_not_ended_for_it(node, log):
    node.master.copies = [copy(wants_restart=True)]
    node.master.objects["job"] = [{"id": 7}]
    assert main.guarded(node.watch(), None) == 0
    assert restarts(node) == []
    assert "when no job is running" in log.text
    query = ("Query", ["job", ["id"], master_part._ACTIVE])
    assert query in node.master.calls


def test_a_clock_that_was_set_back_does_not_stop_the_mend(node):
    node.master.copies = [copy(wants_restart=True)]
    main.guarded(node.watch(), None)
    node.clock.now -= 30 * 86400
    main.guarded(node.watch(), None)
    assert restarts(node) == RESTART * 2
    stamp = os.stat(node.paths.data("watcher.new-term"))
    assert stamp.st_mtime == pytest.approx(node.clock.now)
