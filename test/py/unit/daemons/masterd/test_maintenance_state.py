"""State of the maintenance daemon: one commit with its jobs, or nothing."""

import pytest

from fakes.master import Master
from fakes.patience import job_status
from ganeti.base import errors
from ganeti.daemons.masterd import maintenance_state

DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 0.001, "on_master": True}
INCIDENT = {
    "uuid": "i1",
    "node": "u1",
    "original": {"status": "evacuate"},
    "action": "evacuate",
    "state": "noted",
    "tag": "maintd:repairready:i1",
}


@pytest.fixture
def client(tmp_path):
    with Master.connected(tmp_path / "node1.example.com") as made:
        yield made


def change(client, serial=1, jobs=(), incidents=(INCIDENT,), **fields):
    state = {"incidents": list(incidents), **fields}
    return client.call("ChangeMaintenance", [serial, state, list(jobs)])


def job(ops=(DELAY,), **more):
    return {"ops": list(ops), "incident": "i1", **more}


def test_state_and_jobs_are_stored_together(client):
    assert client.call("QueryMaintenance")["incidents"] == []
    answer = change(client, jobs=[job(), job(is_tag=True)])
    first, second = answer["jobs"]
    (incident,) = answer["incidents"]
    assert incident["jobs"] == [first, second]
    assert incident["tag_job"] == second
    assert answer["serial_no"] == 2
    assert answer == client.call("QueryMaintenance")
    for number in (first, second):
        assert job_status(client, number) == "success"


def test_a_change_on_an_old_state_does_nothing(client):
    change(client)
    with pytest.raises(errors.OpPrereqError, match="has serial 2 by now"):
        change(client, serial=1, jobs=[job()])
    assert client.call("QueryMaintenance")["serial_no"] == 2
    assert client.call("QueryJobs", [None, ["id"]]) == []


@pytest.mark.parametrize("ops", [[], [{"OP_ID": "OP_NO_SUCH"}]])
def test_a_refused_job_refuses_the_whole_round(client, ops):
    with pytest.raises(errors.GenericError):
        change(client, jobs=[job(), job(ops)])
    assert client.call("QueryMaintenance")["incidents"] == []
    assert client.call("QueryJobs", [None, ["id"]]) == []


def test_a_drained_queue_takes_no_jobs_but_notes_incidents(client):
    client.call("SetDrainFlag", [True])
    with pytest.raises(errors.JobQueueDrainError):
        change(client, jobs=[job()])
    assert change(client)["serial_no"] == 2


def test_cancel_and_remove(client):
    change(client)
    with pytest.raises(errors.OpPrereqError, match="i2: does not exist"):
        client.call("CancelIncident", ["i2"])
    assert client.call("CancelIncident", ["i1"]) == "u1"
    (incident,) = client.call("QueryMaintenance")["incidents"]
    assert incident["state"] == "canceled"
    with pytest.raises(errors.OpPrereqError, match="cannot be canceled"):
        client.call("CancelIncident", ["i1"])
    assert client.call("RemoveIncident", ["i1"]) == "u1"
    assert client.call("QueryMaintenance")["incidents"] == []


class Stored:
    """A store with one damaged record."""

    def __init__(self, data):
        self.data = data

    def read(self, table, key):
        assert (table, key) == (maintenance_state.META, maintenance_state.KEY)
        return self.data


@pytest.mark.parametrize(
    "data", [b"", b"{", b'{"serial_no": "x"}', b'{"incidents": [{"uuid": "\xff"}]}']
)
def test_a_damaged_state_is_one_error(data):
    keeper = maintenance_state.Keeper(Stored(data), None, None)
    with pytest.raises(errors.ConfigurationError, match=r"^maintenance state: "):
        keeper.state()


def test_without_a_record_the_state_is_empty():
    keeper = maintenance_state.Keeper(Stored(None), None, None)
    assert keeper.state() == maintenance_state.MaintenanceState()
