"""``oob-ipmi`` against the controller of OpenIPMI's simulator."""

import json
import pathlib
import signal

import pytest

from fakes import patience
from fakes.ipmi_machine import PASSWORD, Machine

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


def test_the_power_follows(machine):
    log = pathlib.Path(f"{machine.state}.log")
    assert machine.is_on()
    for command, is_on in (
        *(("power-off", False), ("power-off", False)),
        *(("power-on", True), ("power-on", True)),
    ):
        done = machine.run(command)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        assert machine.is_on() is is_on
    # The state that is there already is not ordered again.
    assert log.read_text().split() == ["0", "1"]


def test_a_machine_that_is_off_is_not_cycled(machine):
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
