"""``oob-vcluster``: its requests, and odd answers."""

import json

import pytest

from ganeti.base import errors
from ganeti.devel.vcluster import oob_helper

GIVEN = {"directory": "/srv/vcluster", "node": "node2"}


class Switch:
    """The power switch of a virtual cluster."""

    def __init__(self, *, is_on, output=None, error=None):
        self.is_on = is_on
        self.output, self.error = output, error
        self.actions = []
        self.now = 0.0

    def connect(self, directory):
        assert directory == "/srv/vcluster"
        return self.ask

    def ask(self, action, node):
        assert node == "node2"
        if self.error is not None:
            raise self.error
        if action not in ("status", "health"):
            self.actions.append(action)
            self.is_on = action != "off"
            return ""
        if self.output is not None:
            return self.output
        if action == "status":
            return json.dumps({"powered": self.is_on})
        return json.dumps([["Power", "OK"]])

    def sleep(self, seconds):
        self.now += seconds

    def execute(self, command, **changes):
        return oob_helper.Controller(
            GIVEN | changes, self.connect, lambda: self.now, self.sleep
        ).execute(command)


@pytest.mark.parametrize(
    ("command", "is_on", "actions"),
    [
        ("power-on", True, []),
        ("power-off", False, []),
        ("power-on", False, ["on"]),
        ("power-off", True, ["off"]),
        ("power-cycle", True, ["cycle"]),
    ],
)
def test_a_node_is_switched_once(command, is_on, actions):
    switch = Switch(is_on=is_on)
    assert switch.execute(command) is None
    assert switch.actions == actions


def test_state_and_health():
    assert Switch(is_on=True).execute("power-status") == {"powered": True}
    assert Switch(is_on=False).execute("power-status") == {"powered": False}
    assert Switch(is_on=True).execute("health") == [["Power", "OK"]]


def test_a_node_that_is_off_is_not_cycled():
    switch = Switch(is_on=False)
    with pytest.raises(errors.OpExecError, match="the machine is off already"):
        switch.execute("power-cycle")
    assert switch.actions == []


@pytest.mark.parametrize("output", ["", "on", "null", "[1]", '{"powered": 1}'])
def test_an_odd_state_is_no_state(output):
    with pytest.raises(errors.OpExecError, match="virtual node node2: wanted"):
        Switch(is_on=True, output=output).execute("power-status")


@pytest.mark.parametrize(
    "error",
    [
        errors.OpPrereqError("no such\nnode", "unknown_entity"),
        OSError("no such\nnode"),
    ],
)
def test_a_failure_is_one_line(error):
    with pytest.raises(errors.OpExecError) as caught:
        Switch(is_on=True, error=error).execute("power-off")
    assert str(caught.value) == "virtual node node2: no such node"


@pytest.mark.parametrize(
    "changes", [{"directory": "vcluster"}, {"node": "../x"}, {"node": "-x"}]
)
def test_settings_have_their_form(changes):
    with pytest.raises(errors.ConfigurationError, match="invalid"):
        Switch(is_on=True).execute("power-status", **changes)


def test_others_may_not_change_the_file_of_the_cluster(tmp_path, monkeypatch):
    monkeypatch.setenv("GANETI_ROOTDIR", str(tmp_path / "node1"))
    monkeypatch.setenv("GANETI_HOSTNAME", "node1")
    state = tmp_path / "vcluster.json"
    state.write_text("{}")
    state.chmod(0o666)
    with pytest.raises(errors.ConfigurationError, match="can be written by others"):
        oob_helper.connect(str(tmp_path))


def test_a_directory_without_a_cluster_is_refused(tmp_path):
    with pytest.raises(errors.OpPrereqError, match="no virtual cluster here"):
        oob_helper.connect(str(tmp_path))
