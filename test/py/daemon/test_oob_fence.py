"""``oob-fence`` with agents of Debian's fence-agents, unchanged.

``fence_ipmilan`` controls the machine of OpenIPMI's simulator.
"""

import signal

import pytest

from fakes import patience
from fakes.ipmi_machine import PASSWORD, Machine
from fakes.oob_helpers import Helper

pytestmark = pytest.mark.daemon


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    made = Machine(tmp_path_factory.mktemp("fence"))
    try:
        patience.until(
            "the controller answers", lambda: made.run("power-status").returncode == 0
        )
        yield made
    finally:
        made.stop()


@pytest.fixture
def good(machine):
    """Return settings that lead to the machine."""
    return {
        "agent": "ipmilan",
        "ip": "127.0.0.1",
        "ipport": machine.port,
        "lanplus": 1,
        "cipher": 3,
        "username": "ganeti",
        "password": PASSWORD,
        "power_wait": 0,
    }


@pytest.fixture
def helper(tmp_path, good):
    made = Helper(tmp_path, "oob-fence")
    made.write(**good)
    return made


def test_the_power_follows(machine, helper):
    helper.switch("power-on")
    for command, is_on in (
        *(("power-off", False), ("power-off", False)),
        *(("power-on", True), ("power-on", True), ("power-cycle", True)),
    ):
        helper.switch(command)
        assert helper.is_on() is is_on
        assert machine.is_on() is is_on


def test_a_machine_that_is_off_is_not_cycled(helper):
    helper.switch("power-off")
    line = "agent fence_ipmilan: the machine is off already"
    assert helper.failure("power-cycle") == line
    assert not helper.is_on()
    helper.switch("power-on")


def test_health_is_that_of_the_device(helper):
    assert helper.value("health") == [["Fence device", "OK"]]


def test_wrong_settings_are_one_line(helper, good):
    helper.write(**good | {"password": "wr0ng"})
    line = helper.failure("power-status", "wr0ng")
    assert line.startswith("agent fence_ipmilan: ")
    helper.write(**good | {"agent": "none"})
    assert "fence_none does not exist" in helper.failure("power-status", PASSWORD)


def test_a_silent_device_does_not_answer(machine, helper):
    machine.process.send_signal(signal.SIGSTOP)
    try:
        line = helper.failure("power-status", PASSWORD)
    finally:
        machine.process.send_signal(signal.SIGCONT)
    assert line.startswith("agent fence_ipmilan: ")
