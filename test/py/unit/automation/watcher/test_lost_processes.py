"""Guests that have lost a process are named in the log of their node, once."""

import logging
import os

import pytest

from ganeti.automation.watcher import lost_processes
from ganeti.base import errors
from ganeti.node.hypervisor.kvm.devices import helper_processes
from ganeti.node.hypervisor.kvm.devices.helper_processes import Need

SHARE = {"web1": [Need("/srv/data")]}
BOTH = {"web1": [Need("/srv/data"), Need()]}
STATE = "watcher.lost-processes"


@pytest.fixture
def look(node, monkeypatch, caplog):
    """Return a run over a node whose guests have lost this; it returns its messages."""
    caplog.set_level(logging.DEBUG)
    os.makedirs(f"{node.paths.run_dir}/kvm-hypervisor/pid")

    def run(lost):
        def answer(paths):
            assert paths is node.paths
            if isinstance(lost, Exception):
                raise lost
            return lost

        monkeypatch.setattr(helper_processes, "lost", answer)
        caplog.clear()
        lost_processes.report(node.watch())
        return [(row.levelname, row.getMessage()) for row in caplog.records]

    return run


def test_each_loss_and_its_end_are_logged_once(node, look):
    assert look({}) == []
    [(level, text)] = look(SHARE)
    assert level == "WARNING"
    assert text.startswith("instance web1: shared directory /srv/data: its process has")
    assert look(SHARE) == []
    [(level, text)] = look(BOTH)
    assert text.startswith("instance web1: TPM: its process has ended")
    ends = look({})
    assert [level for level, _text in ends] == ["INFO", "INFO"]
    assert all(text.startswith("over: instance web1: ") for _level, text in ends)
    assert not os.path.exists(node.paths.data(STATE))
    assert look({}) == []


def test_a_node_that_cannot_be_read_keeps_its_state(node, look):
    look(SHARE)
    [(level, text)] = look(errors.HypervisorError("no /proc"))
    assert (level, text) == ("WARNING", "processes of guests: no /proc")
    assert look(SHARE) == []


@pytest.mark.parametrize("text", ["{", "7", '{"a": 1}'])
def test_a_damaged_state_only_repeats_the_message(node, look, text):
    with open(node.paths.data(STATE), "w") as out:
        out.write(text)
    assert look(SHARE)[-1][0] == "WARNING"
    assert look(SHARE) == []


def test_a_node_without_guests_of_kvm_loads_no_driver(node, monkeypatch):
    monkeypatch.setattr(helper_processes, "lost", None)
    lost_processes.report(node.watch())
