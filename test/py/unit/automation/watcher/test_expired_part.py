"""The release of reservations that have expired."""

import pytest

from ganeti.automation.watcher import expired_part
from ganeti.base import errors

UUID = "3f1d0b9a-2c8e-4b43-9d4e-0f5b6f3c8a11"


@pytest.fixture
def reserved(node):
    """A node whose master has one reservation that expires in a minute."""
    node.master.objects["instance"] = [
        {
            "name": UUID,
            "uuid": UUID,
            "forthcoming": True,
            "expires": node.clock.now + 60,
            "owner": "web",
        }
    ]
    node.master.results["OP_INSTANCE_REMOVE"] = None
    return node


def run(node):
    watch = node.watch()
    with watch.connect() as client:
        return expired_part.run(watch, client)


def ops(node):
    return [op for ops in node.master.jobs.values() for op in ops]


def test_nothing_is_released_before_its_time(reserved):
    reserved.clock.now += 59
    assert run(reserved)
    assert ops(reserved) == []


def test_an_expired_reservation_is_released_by_a_job_with_a_reason(reserved):
    reserved.clock.now += 60
    assert run(reserved)
    (op,) = ops(reserved)
    assert (op.op_id(), op.instance_name, op.if_expired) == (
        "OP_INSTANCE_REMOVE",
        UUID,
        True,
    )
    ((source, text, _when),) = op.reason
    assert source == "gnt:watcher"
    assert text == "reservation of web expired at 2023-11-14 22:14:20 UTC"


@pytest.mark.parametrize("changes", [{"expires": None}, {"forthcoming": False}])
def test_what_does_not_expire_stays(reserved, changes):
    reserved.clock.now += 1000
    reserved.master.objects["instance"][0] |= changes
    assert run(reserved)
    assert ops(reserved) == []


def test_a_job_that_waits_is_not_repeated(reserved):
    reserved.clock.now += 60
    reserved.master.objects["job"] = [
        {"id": 7, "summary": [f"INSTANCE_REMOVE({UUID})"], "status": "waiting"}
    ]
    assert run(reserved)
    assert ops(reserved) == []


def test_a_full_queue_is_no_failure_of_the_watcher(reserved, monkeypatch):
    reserved.clock.now += 60

    def refuse(*_args):
        raise errors.JobQueueFull("full")

    monkeypatch.setattr(reserved.master, "_SubmitManyJobs", refuse, raising=False)
    assert run(reserved)
