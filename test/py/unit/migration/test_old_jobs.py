"""Jobs of another implementation: files to documents of the store, and back."""

import json
import logging

import pytest

from fakes.store import open_memory
from ganeti.base import errors
from ganeti.decisions.jobs import records
from ganeti.migration import old_jobs
from ganeti.store import Document

START, END = [1795416588, 302528], [1795416590, 984798]
#: As Debian's Ganeti 3.0.2 writes it, shortened.
ENDED = {
    "id": 20004,
    "ops": [
        {
            "input": {
                "OP_ID": "OP_INSTANCE_STARTUP",
                "instance_name": "web1.vc.test",
                "priority": 0,
                "reason": [["gnt:client:gnt-instance", "add", 1795416587672808704]],
            },
            "status": "success",
            "result": ["node2.vc.test"],
            "log": [
                [1, [1795416589, 51916], "message", "* disk 0, size 8M"],
                [3, [1795416590, 335552], "message", "* starting instance..."],
            ],
            "start_timestamp": START,
            "exec_timestamp": [1795416588, 426300],
            "end_timestamp": END,
            "priority": 0,
        },
        {
            "input": {"OP_ID": "OP_OF_A_LATER_RELEASE"},
            "status": "error",
            "result": ["OpPrereqError", ["no", "wrong_state"]],
            "log": [[2, [1795416590, 1], "message-list", ["a", "b"]]],
            "start_timestamp": START,
            "exec_timestamp": None,
            "end_timestamp": END,
            "priority": 0,
        },
    ],
    "start_timestamp": START,
    "end_timestamp": END,
    "received_timestamp": [1795416587, 870364],
}
PROCESS = {"livelock": "/var/run/ganeti/livelocks/job_020004_1", "process_id": 161}


def other(number, **fields):
    return {**ENDED, "id": number, **fields}


@pytest.fixture
def queue(tmp_path):
    """A queue with one live job file that has ended, and one in the archive."""
    (tmp_path / "archive" / "1").mkdir(parents=True)
    put(tmp_path / "job-20004", ENDED | PROCESS)
    put(tmp_path / "archive" / "1" / "job-12345", other(12345))
    (tmp_path / "serial").write_text("20010\n")
    (tmp_path / "lock").write_text("")
    return tmp_path


def put(path, job):
    path.write_text(json.dumps(job))


def stored(queue):
    store = open_memory()
    store.commit(old_jobs.read(str(queue)))
    return store


def test_ended_jobs_go_to_the_archive_and_ids_count_on(queue) -> None:
    store = stored(queue)
    assert store.read("meta", "serial") == b"20010"
    assert list(store.scan("jobs")) == []
    job = records.decode_job(store.read("archive", "20004"))
    assert [op.status.value for op in job.ops] == ["success", "error"]
    assert job.ops[1].summary() == "INVALID_OP"
    assert [key for key, _ in store.scan("archive")] == [
        "12345",
        "12345/0000000001",
        "20004",
        "20004/0000000001",
    ]


def test_they_come_back_as_they_were(queue, tmp_path) -> None:
    store = stored(queue)
    target = tmp_path / "back"
    assert old_jobs.write(str(target), store) == 2
    assert json.loads((target / "archive/2/job-20004").read_text()) == ENDED
    assert json.loads((target / "archive/1/job-12345").read_text()) == other(12345)
    assert (target / "serial").read_text() == "20010\n"
    # Files that are there stay as they are.
    assert old_jobs.write(str(queue), store) == 0
    assert json.loads((queue / "job-20004").read_text()) == ENDED | PROCESS


def test_live_jobs_of_the_store_are_written_when_they_have_ended(
    tmp_path, caplog
) -> None:
    store = open_memory()
    ended, entry = (
        records.decode_job(json.dumps(other(7)).encode()),
        records.LogEntry(1, (5, 6), "message", "hello"),
    )
    # Kinds that the other implementation does not know: it would refuse the job.
    added = [
        records.LogEntry(2, (5, 7), "progress", "memory transfer: 5 %"),
        records.LogEntry(3, (5, 8), "placement", {"node1": 0.5}),
    ]
    running = records.decode_job(
        json.dumps(other(8, ops=[ENDED["ops"][0] | {"status": "running"}])).encode()
    )
    store.commit(
        [
            Document("jobs", "7", records.encode_job(ended)),
            *(
                Document("joblogs", records.log_key(7, n), records.encode_log(1, each))
                for n, each in enumerate((entry, *added), 1)
            ),
            Document("jobs", "8", records.encode_job(running)),
            Document("meta", "serial", b"8"),
        ]
    )
    assert old_jobs.write(str(tmp_path), store) == 1
    actual = json.loads((tmp_path / "archive/0/job-7").read_text())
    assert actual["ops"][1]["log"] == [[1, [5, 6], "message", "hello"]]
    assert "job 8: left out" in caplog.text
    assert (tmp_path / "serial").read_text() == "8\n"


def test_jobs_that_have_not_ended_stop_the_import(queue) -> None:
    put(queue / "job-20005", other(20005, ops=[ENDED["ops"][0] | {"status": "queued"}]))
    assert old_jobs.unfinished(str(queue)) == ["20005 (queued)"]
    with pytest.raises(errors.ConfigurationError, match=r"20005 \(queued\) have not"):
        old_jobs.read(str(queue))


@pytest.mark.parametrize("text", ["", "{", "[]", '{"id": 3, "ops": []}', "\xff"])
def test_damaged_job_files_are_left_out_with_a_warning(queue, text, caplog) -> None:
    caplog.set_level(logging.WARNING)
    (queue / "job-20006").write_bytes(text.encode("latin-1"))
    store = stored(queue)
    assert store.read("archive", "20006") is None
    assert "job-20006: left out, it is damaged" in caplog.text


def test_a_missing_queue_is_empty_and_a_strange_serial_an_error(tmp_path) -> None:
    assert old_jobs.read(str(tmp_path / "queue")) == []
    (tmp_path / "serial").write_text("x")
    with pytest.raises(errors.ConfigurationError, match="wanted a job id, found 'x'"):
        old_jobs.read(str(tmp_path))
