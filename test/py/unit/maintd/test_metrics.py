"""Metrics of the master: from the numbers of the master daemon to both formats."""

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from fakes.master import Master
from ganeti import errors
from ganeti.maintd import metrics
from ganeti.masterd.call_times import CallTimes

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def samples(call, accept=OPENMETRICS):
    kind, body = metrics.exposition(call)(accept)
    assert kind.startswith("application/openmetrics-text")
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


@pytest.fixture
def client(tmp_path):
    with Master.connected(tmp_path / "node1.example.com") as made:
        yield made


def test_the_numbers_of_a_master_daemon_are_its_metrics(client):
    delay = {"OP_ID": "OP_TEST_DELAY", "duration": 300.0, "on_master": True}
    job = int(client.call("SubmitJob", [[delay]]))
    incident = {"uuid": "i1", "node": "u", "original": {}, "action": "evacuate"}
    client.call("ChangeMaintenance", [1, {"incidents": [incident]}, []])
    client.call("FreezeAutomation", [""])
    actual = samples(client.call)
    of_job = [value for key, value in actual.items() if key[0] == "ganeti_jobs"]
    assert of_job == [1]
    assert [key for key in actual if key[0] == "ganeti_jobs" and "OP_TEST_DELAY" in key]
    assert actual["ganeti_master_up",] == 1
    assert actual["ganeti_queue_unfinished",] == 1
    assert actual["ganeti_jobs_submitted_total",] == job
    assert actual["ganeti_incidents", "noted"] == 1
    assert actual["ganeti_automation_frozen",] == 1
    assert actual["ganeti_nodes", "total"] >= 1
    assert actual["ganeti_instances", "up"] >= 0
    client.call("CancelJob", [job, True])


def test_a_master_daemon_that_is_down_is_a_metric():
    def down(_method, _args):
        raise errors.NoMasterError("/nowhere")

    assert samples(down) == {("ganeti_master_up",): 0}


def test_calls_of_nodes_are_summed_up_by_procedure():
    times = CallTimes()
    for name, seconds, failed in (
        ("version", 0.5, 0),
        ("version", 1.0, 2),
        ("a", 3, 0),
    ):
        times.add(name, seconds, failed)
    rows = times.rows()
    assert rows == [("a", 1, 0, 3.0), ("version", 2, 2, 1.5)]
    empty = {"jobs": [], "locks": [["node", 3, 2]], "incidents": {}, "nodes": {}}
    empty |= {
        "queue": dict.fromkeys(("unfinished", "running", "workers", "last_id"), 0)
    }
    empty |= {"instances": {}, "is_frozen": False, "revision": 9, "calls": rows}
    actual = samples(lambda *_: empty)
    assert actual["ganeti_node_call_seconds_count", "version"] == 2
    assert actual["ganeti_node_call_seconds_sum", "version"] == 1.5
    assert actual["ganeti_node_call_failures_total", "version"] == 2
    assert actual["ganeti_locks_held", "node"] == 3
    assert actual["ganeti_lock_waits", "node"] == 2


@pytest.mark.parametrize(
    "numbers", [{}, {"jobs": [[1]]}, {"jobs": 3}, [], None, {"jobs": [], "queue": None}]
)
def test_numbers_of_another_form_leave_only_that_the_daemon_is_up(numbers):
    assert samples(lambda *_: numbers) == {("ganeti_master_up",): 1}


def test_deaths_of_nodes_are_counted_by_phase_and_reason():
    empty = {"jobs": [], "locks": [], "incidents": {}, "nodes": {}, "calls": []}
    empty |= {
        "queue": dict.fromkeys(("unfinished", "running", "workers", "last_id"), 0)
    }
    empty |= {"instances": {}, "is_frozen": False, "revision": 9}
    # A master daemon of the release before has none.
    assert samples(lambda *_: empty)["ganeti_nodes_fenced",] == 0
    empty |= {"node_deaths": {"held": 2}, "refused_deaths": {"no-helper": 1}}
    actual = samples(lambda *_: {**empty, "fenced": 3})
    assert actual["ganeti_node_deaths", "held"] == 2
    assert actual["ganeti_node_deaths_refused", "no-helper"] == 1
    assert actual["ganeti_nodes_fenced",] == 3


def test_text_is_the_answer_to_a_reader_without_openmetrics():
    kind, body = metrics.exposition(lambda *_: _down())("")
    assert kind.startswith("text/plain")
    assert b"ganeti_master_up 0.0" in body


def _down():
    raise errors.NoMasterError("/nowhere")


def test_a_master_daemon_of_an_earlier_release_is_up():
    def old(*_args):
        raise errors.RequestError("Failed to parse request: unknown method")

    assert samples(old) == {("ganeti_master_up",): 1}
