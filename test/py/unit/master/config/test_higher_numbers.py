"""Numbers of replaced copies are noted, taken and left out."""

import threading

import pytest

from fakes import cluster
from fakes.clocks import FakeClock
from ganeti import store
from ganeti.base import errors
from ganeti.master.config import Config, HigherNumbers
from ganeti.store.numbers import Numbers


def test_the_highest_of_all_notes_is_taken_once():
    higher = HigherNumbers()
    higher.note(Numbers(5, 9, 1))
    higher.note(Numbers(7, 2, 1))
    higher.close()
    assert higher.take() == (7, 9, 1)
    assert higher.take() is None


def test_nothing_is_noted_that_nobody_would_leave_out():
    higher = HigherNumbers()
    higher.close()
    with pytest.raises(errors.StorageError, match="higher numbers"):
        higher.note(Numbers(1, 1, 1))


def test_taking_waits_for_a_note():
    higher = HigherNumbers()
    threading.Thread(target=higher.note, args=(Numbers(3, 2, 1),)).start()
    assert higher.take() == (3, 2, 1)


def test_the_serial_of_the_configuration_goes_above(tmp_path):
    opened = store.open_master(
        str(tmp_path / "store.db"), replicate=None, clock=FakeClock()
    )
    opened.commit(cluster.big(3, 1))
    cfg = Config(opened, FakeClock())
    cfg.leave_out(500)
    assert cfg.header().serial_no == 501
    cfg.leave_out(17)
    with cfg.edit("test") as edit:
        edit.update_cluster(tags=frozenset(["more"]))
    assert Config(opened, FakeClock()).header().serial_no == 502
    opened.close()
