"""``oob-fence``: its calls of an agent, and unclear answers."""

import pytest

from fakes.processes import FakeRunner
from ganeti.base import errors
from ganeti.base.process import RunResult
from ganeti.tools.oob import oob_fence

GIVEN = {"agent": "apc", "ip": "192.0.2.1", "username": "fence", "password": "s3cret"}


class Agent(FakeRunner):
    """An agent; codes are those of its status in turn."""

    def __init__(self, *codes, error="", code=0, timed_out=False):
        super().__init__()
        self.codes, self.error, self.code = list(codes), error, code
        self.timed_out = timed_out
        self.actions = []
        self.options = []
        self.now = 0.0

    def run_bounded(self, argv, **options):
        assert tuple(argv) == ("/usr/sbin/fence_apc",)
        assert set(options) == {"timeout_s", "max_output", "stdin"}
        lines = dict(line.split("=", 1) for line in options["stdin"].splitlines())
        action = lines.pop("action")
        self.options.append(lines)
        if action == "status":
            code = self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]
        else:
            self.actions.append(action)
            code = self.code
        return RunResult(tuple(argv), code, None, "", self.error, self.timed_out)

    def sleep(self, seconds):
        self.now += seconds

    def execute(self, command, problem=None, **changes):
        return oob_fence.Controller(
            GIVEN | changes, self, lambda: self.now, self.sleep, lambda _: problem
        ).execute(command)


@pytest.mark.parametrize(
    ("command", "codes", "actions"),
    [
        ("power-on", [0], []),
        ("power-off", [2], []),
        ("power-on", [2, 2, 0], ["on"]),
        ("power-off", [0, 0, 2], ["off"]),
        ("power-cycle", [0], ["reboot"]),
    ],
)
def test_a_machine_is_switched_once_and_followed(command, codes, actions):
    agent = Agent(*codes)
    assert agent.execute(command) is None
    assert agent.actions == actions


def test_all_options_go_to_the_standard_input():
    agent = Agent(2)
    assert agent.execute("power-status", plug="3") == {"powered": False}
    wanted = {"ip": "192.0.2.1", "username": "fence", "password": "s3cret", "plug": "3"}
    assert agent.options == [wanted]
    assert agent.execute("health") == [["Fence device", "OK"]]
    assert agent.actions == ["monitor"]


@pytest.mark.parametrize(
    ("agent", "command", "text"),
    [
        (Agent(1, error="a\nwith s3cret\x1b[2J\n\n"), "power-status", r"with \*\*\*"),
        (Agent(None), "power-status", "was ended|exited"),
        (Agent(2), "power-cycle", "is off already"),
        (Agent(2, code=1, error="Failed"), "power-on", "fence_apc: on: Failed"),
        (Agent(0, code=0), "power-off", "did not follow within 30 s"),
        (Agent(None, timed_out=True), "power-status", "status: does not answer in"),
        (Agent(0, code=1), "health", "monitor: exited with code 1"),
    ],
)
def test_failures_are_one_line(agent, command, text):
    with pytest.raises(errors.OpExecError, match=text) as caught:
        agent.execute(command)
    assert "\n" not in str(caught.value)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("agent", "../bin/sh", "invalid agent"),
        ("agent", "", "invalid agent"),
        ("action", "off", "invalid option 'action'"),
        ("a b", "x", "invalid option 'a b'"),
        ("plug", "1\x0baction=off", "invalid value of the option plug"),
    ],
)
def test_settings_have_their_forms(name, value, text):
    with pytest.raises(errors.ConfigurationError, match=text):
        Agent(0).execute("power-status", **{name: value})


def test_an_agent_that_others_can_change_is_not_run():
    with pytest.raises(errors.ConfigurationError, match="agent fence_apc: it belongs"):
        Agent(0).execute("power-status", problem="it belongs to user 7")
