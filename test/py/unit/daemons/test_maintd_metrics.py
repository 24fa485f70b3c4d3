"""Metrics of the master: from the numbers of the master daemon to both formats."""

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from fakes.clocks import FakeClock
from fakes.master import Master
from ganeti.automation.maintenance import capacity
from ganeti.automation.maintenance.capacity import Capacity
from ganeti.base import errors
from ganeti.daemons import maintd_metrics as metrics
from ganeti.daemons.masterd.deps import CallTimes

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def samples(call, accept=OPENMETRICS, room=lambda: None):
    kind, body = metrics.exposition(call, room)(accept)
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


class Capacities:
    """Answers of the master daemon in order; threads run when the test says."""

    def __init__(self, *answers):
        self.clock = FakeClock()
        self.answers = list(answers)
        self.threads = []
        self.capacity = Capacity(self.call, self.clock, self.threads.append)

    def call(self, method, args):
        assert (method, args) == ("QueryCapacity", [{"limit": 1000}])
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def work(self):
        for thread in self.threads:
            thread()
        self.threads.clear()


def test_nodes_are_asked_for_the_capacity_beside_a_request_and_not_often():
    site = Capacities(
        {"disk_template": "drbd", "count": 7, "instances": []},
        {"disk_template": "drbd", "count": 5},
    )
    assert site.capacity.room() is None
    # A request that comes while nodes are asked does not ask again.
    site.clock.now += capacity.FRESH_S
    assert site.capacity.room() is None
    site.work()
    assert site.capacity.room()[:2] == ("drbd", 7)
    site.work()
    assert site.capacity.room()[:2] == ("drbd", 5)
    site.clock.now += capacity.FRESH_S - 1
    site.capacity.room()
    assert site.threads == []


@pytest.mark.parametrize(
    "answer", [errors.OpPrereqError("no", "x"), {"count": "7"}, None, OSError("gone")]
)
def test_a_capacity_that_is_not_known_is_no_metric(answer, caplog):
    site = Capacities({"disk_template": "file", "count": 7}, answer)
    site.capacity.room()
    site.work()
    site.clock.now += capacity.FRESH_S
    site.capacity.room()
    site.work()
    assert site.capacity.room() is None
    assert "the capacity is not known" in caplog.text


def test_the_capacity_has_its_template_and_time(client):
    names = {name for name, *_labels in samples(client.call)}
    assert not any("capacity" in name for name in names)
    actual = samples(client.call, room=lambda: capacity.Room("drbd", 7, 1.5))
    assert actual["ganeti_capacity_instances", "drbd"] == 7
    assert actual["ganeti_capacity_timestamp_seconds",] == 1.5


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
