"""The status file of a transfer: its fields, its estimates, and when it is written."""

import json
import time

import pytest

from ganeti.tools.transfer import transfer_status
from ganeti.tools.transfer.transfer_status import MIB, TransferStatus


class Clock:
    """In the place of the time."""

    def __init__(self, monkeypatch):
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "time", lambda: 5000.0 + self.now)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


@pytest.fixture
def read(tmp_path):
    return lambda: json.loads((tmp_path / "status").read_text())


@pytest.fixture
def status_of(tmp_path):
    return lambda expected=None: TransferStatus(str(tmp_path / "status"), expected)


def test_a_new_status_has_all_fields(clock, status_of, read, tmp_path):
    status_of().update()
    assert read() == {
        "listen_port": None,
        "connected": False,
        "exit_status": None,
        "error_message": None,
        "progress_mbytes": 0.0,
        "progress_throughput": None,
        "progress_percent": None,
        "progress_eta": None,
        "recent_output": [],
        "mtime": 6000.0,
    }
    assert [path.name for path in tmp_path.iterdir()] == ["status"]


def test_the_last_20_lines_of_output_are_kept(clock, status_of, read):
    status = status_of()
    for number in range(25):
        status.note(f"line {number}")
    status.update(connected=True, listen_port=4711)
    assert read()["recent_output"] == [f"line {number}" for number in range(5, 25)]
    assert (read()["connected"], read()["listen_port"]) == (True, 4711)


def test_bytes_are_counted_and_written_twice_a_second(clock, status_of, read):
    status = status_of(10)
    status.update()
    clock.now += 0.25
    status.count(MIB)
    assert read()["progress_mbytes"] == 0.0
    clock.now += 0.25
    status.count(MIB)
    shown = read()
    assert shown["progress_mbytes"] == 2.0
    assert shown["progress_throughput"] == 4.0
    assert shown["progress_percent"] == 20.0
    assert shown["progress_eta"] == 2.0


def test_the_throughput_is_that_of_the_last_30_seconds(clock, status_of, read):
    status = status_of(1000)
    status.update()
    for _second in range(10):
        clock.now += 1.0
        status.count(10 * MIB)
    assert read()["progress_throughput"] == 10.0
    for _second in range(30):
        clock.now += 1.0
        status.count(2 * MIB)
    shown = read()
    assert (shown["progress_mbytes"], shown["progress_throughput"]) == (160.0, 2.0)
    assert shown["progress_eta"] == 420.0


def test_more_than_expected_is_one_hundred_percent(clock, status_of, read):
    status = status_of(2)
    status.update()
    clock.now += 1.0
    status.count(3 * MIB)
    shown = read()
    assert (shown["progress_percent"], shown["progress_eta"]) == (100.0, 0.0)


def test_a_stalled_transfer_has_no_estimate(clock, status_of, read):
    status = status_of(2)
    status.update()
    clock.now += 1.0
    status.update()
    shown = read()
    assert (shown["progress_throughput"], shown["progress_eta"]) == (0.0, None)
    assert shown["progress_percent"] == 0.0


def test_the_interval_fits_what_readers_expect():
    assert transfer_status.INTERVAL_S <= 1.0
