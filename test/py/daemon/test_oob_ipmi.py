"""``oob-fence`` and ``oob-ipmi`` against the controller of OpenIPMI's simulator.

``oob-fence`` calls ``fence_ipmilan`` of Debian's fence-agents, unchanged.
"""

import json
import pathlib
import signal

import pytest

from fakes import patience
from fakes.oob_helpers import PASSWORD, Helper, Machine

pytestmark = pytest.mark.daemon


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    made = Machine(tmp_path_factory.mktemp("ipmi"))
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


# ``oob-ipmi`` against the controller of OpenIPMI's simulator.


def test_the_power_follows_the_controller(machine):
    log = pathlib.Path(f"{machine.state}.log")
    before = log.read_text()
    assert machine.is_on()
    for command, is_on in (
        *(("power-off", False), ("power-off", False)),
        *(("power-on", True), ("power-on", True)),
    ):
        done = machine.run(command)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert machine.is_on() is is_on
    # The state that is there already is not ordered again.
    assert log.read_text().removeprefix(before).split() == ["0", "1"]


def test_the_controller_cycles_no_machine_that_is_off(machine):
    assert machine.run("power-off").returncode == 0
    done = machine.run("power-cycle")
    assert done.returncode == 1
    assert "the machine is off already" in done.stderr
    assert not machine.is_on()
    assert machine.run("power-on").returncode == 0
    assert machine.run("power-cycle").returncode == 0


def test_health_has_the_limits_of_the_controller(machine):
    done = machine.run("health")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == [
        ["CPU Temp", "OK"],
        ["Inlet", "WARNING"],
        ["Exhaust", "CRITICAL"],
    ]


def test_a_wrong_password_and_a_dead_controller_are_one_line(machine):
    try:
        machine.write("wr0ng")
        done = machine.run("power-status")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("oob-ipmi: controller 127.0.0.1: ")
        assert "wr0ng" not in done.stderr
        assert len(done.stderr.splitlines()) == 1
        machine.process.send_signal(signal.SIGSTOP)
        done = machine.run("power-status")
        assert done.stderr == "oob-ipmi: controller 127.0.0.1: does not answer\n"
    finally:
        machine.process.send_signal(signal.SIGCONT)
        machine.write(PASSWORD)
