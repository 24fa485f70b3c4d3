"""``oob-redfish``: the requests that it makes of answers, and the forms of settings."""

import json

import pytest

from ganeti.base import errors
from ganeti.tools.oob import oob_redfish

GIVEN = {key: value or "" for key, value in oob_redfish.KEYS.items()} | {
    "address": "192.0.2.1",
    "user": "ganeti",
    "password": "s3cret",
    "system": "1",
}
SYSTEM = "/redfish/v1/Systems/1"
RESET = f"{SYSTEM}/Actions/ComputerSystem.Reset"


class Bmc:
    """A controller; states are those of its machine in turn."""

    def __init__(self, *states, resources=None, **system):
        self.states = list(states)
        self.system = system
        self.resources = resources or {}
        self.orders = []
        self.now = 0.0
        self.answer_s = 0.0

    def ask(self, path, body, limit_s):
        assert limit_s > 0
        self.now += self.answer_s
        if body is not None:
            self.orders.append((path, json.loads(body)))
            return 204, b""
        if path == SYSTEM:
            state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
            return 200, json.dumps({"PowerState": state, **self.system}).encode()
        return 200, json.dumps(self.resources[path]).encode()

    def sleep(self, seconds):
        self.now += seconds

    def execute(self, command, **changes):
        def connect(_settings, _limit_s):
            return self.ask

        return oob_redfish.Controller(
            GIVEN | changes, connect, lambda: self.now, self.sleep
        ).execute(command)


def kinds(*names):
    action = {"target": f"{RESET}/", "ResetType@Redfish.AllowableValues": list(names)}
    return {"Actions": {"#ComputerSystem.Reset": action}}


@pytest.mark.parametrize(
    ("command", "states", "orders"),
    [
        ("power-on", ["On"], []),
        ("power-off", ["Off"], []),
        ("power-on", ["Off", "Off", "PoweringOn", "On"], ["On"]),
        ("power-on", ["PoweringOn", "PoweringOn", "On"], []),
        ("power-off", ["PoweringOff", "PoweringOff", "Off"], ["ForceOff"]),
        ("power-cycle", ["On"], ["PowerCycle"]),
    ],
)
def test_a_machine_is_switched_once_and_followed(command, states, orders):
    bmc = Bmc(*states)
    assert bmc.execute(command) is None
    assert bmc.orders == [(RESET, {"ResetType": kind}) for kind in orders]


def test_the_kind_of_reset_is_one_that_the_controller_has():
    bmc = Bmc("On", **kinds("ForceRestart", "ForceOff"))
    bmc.execute("power-cycle")
    assert bmc.orders == [(f"{RESET}/", {"ResetType": "ForceRestart"})]
    bmc = Bmc("Off", "Off", "On", **kinds("ForceOn"))
    bmc.execute("power-on")
    assert bmc.orders == [(f"{RESET}/", {"ResetType": "ForceOn"})]


def test_a_machine_that_does_not_follow_is_an_error():
    with pytest.raises(errors.OpExecError, match="did not follow within 30 s"):
        Bmc("On").execute("power-off")


def test_a_slow_controller_ends_within_the_limit_of_the_whole():
    for command, limit_s in (("power-status", 8), ("power-on", 55)):
        bmc = Bmc("Off", resources={})
        bmc.answer_s = 19.0
        if command == "power-status":
            bmc.resources["/redfish/v1/Systems"] = {"Members": [{"@odata.id": SYSTEM}]}
        with pytest.raises(errors.OpExecError, match="does not answer in time"):
            bmc.execute(command, system="" if command == "power-status" else "1")
        assert bmc.now < limit_s + 20


def test_health_is_that_of_parts_that_are_there():
    def part(name, health, state="Enabled"):
        return {"Name": name, "Status": {"State": state, "Health": health}}

    chassis = "/redfish/v1/Chassis/C1"
    bmc = Bmc(
        "On",
        Status={"Health": "OK", "HealthRollup": "Warning"},
        ProcessorSummary={"Status": {"Health": None}},
        MemorySummary=7,
        Links={"Chassis": [{"@odata.id": f"{chassis}/"}]},
        resources={
            chassis: part("x", "Critical") | {"Thermal": {}},
            f"{chassis}/Thermal": {
                "Temperatures": [
                    part("Inlet\x1b[2J", "Odd"),
                    7,
                    part("Gone", "OK", "Absent"),
                ],
                "Fans": [part("F" * 300, "OK"), part(["x"], ["OK"])],
            },
        },
    )
    assert bmc.execute("health") == [
        ["System", "WARNING"],
        ["Chassis C1", "CRITICAL"],
        ["Inlet [2J", "UNKNOWN"],
        ["F" * 200, "OK"],
        ["part", "UNKNOWN"],
    ]


def test_links_to_other_places_are_refused():
    evil = {"@odata.id": "/redfish/v1/Chassis/../../x"}
    with pytest.raises(errors.OpExecError, match="wanted a link to a member"):
        Bmc("On", Links={"Chassis": [evil]}).execute("health")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("address", "-x"),
        ("address", "a/b"),
        ("address", "a@b"),
        ("user", "a:b"),
        ("user", ""),
        ("port", "0"),
        ("system", ".."),
        ("system", "a/b"),
        ("fingerprint", "ab" * 31),
        ("ca", "relative.pem"),
        ("password", ""),
        ("password", "a\rb"),
    ],
)
def test_settings_have_their_forms(name, value):
    with pytest.raises(errors.ConfigurationError, match=f"invalid {name}") as caught:
        Bmc("On").execute("power-status", **{name: value})
    assert "s3cret" not in str(caught.value)
