"""Opcodes on the wire: summaries, translations, hidden values and exact errors."""

import json
import pathlib

import msgspec
import pytest

from ganeti.base import errors
from ganeti.base.constants.misc import REDACTED
from ganeti.model import opcodes
from ganeti.model.opcodes import codec

SPEC = json.loads(
    (pathlib.Path(__file__).parents[4] / "data" / "spec" / "opcodes.json").read_text()
)
ROWS = {row["op"]: row for row in SPEC["opcodes"]}
WRONG = "wrong_input"


@pytest.mark.parametrize("op", sorted(ROWS))
def test_summaries_name_the_documented_parameter(op):
    assert ROWS[op]["summary_field"] == opcodes.OPCODES[op].SUMMARY_FIELD


@pytest.mark.parametrize(
    ("wire", "summary", "short"),
    [
        ({"OP_ID": "OP_CLUSTER_VERIFY"}, "CLUSTER_VERIFY", "C_VERIFY"),
        (
            {"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": "web1"},
            "INSTANCE_STARTUP(web1)",
            "I_STARTUP(web1)",
        ),
        ({"OP_ID": "OP_GROUP_ADD", "group_name": "g"}, "GROUP_ADD(g)", "G_ADD(g)"),
        (
            {"OP_ID": "OP_NODE_REMOVE", "node_name": "n1"},
            "NODE_REMOVE(n1)",
            "N_REMOVE(n1)",
        ),
        (
            {"OP_ID": "OP_NETWORK_REMOVE", "network_name": "lan"},
            "NETWORK_REMOVE(lan)",
            "NETWORK_REMOVE(lan)",
        ),
        (
            {"OP_ID": "OP_GROUP_ADD", "group_name": "a\n\x1b[2J"},
            r"GROUP_ADD(a\n\x1b[2J)",
            r"G_ADD(a\n\x1b[2J)",
        ),
        (
            {"OP_ID": "OP_OS_DIAGNOSE", "output_fields": []},
            "OS_DIAGNOSE",
            "OS_DIAGNOSE",
        ),
    ],
)
def test_summaries(wire, summary, short):
    op = opcodes.decode(wire)
    assert op.op_id() == wire["OP_ID"]
    assert op.summary() == summary
    assert opcodes.short_summary(op) == short


def test_a_summary_lists_several_values():
    op = opcodes.TestDelay(duration=1.5)
    assert op.summary() == "TEST_DELAY(1.5)"

    class Listed(opcodes.Opcode, tag="OP_LISTED", frozen=True, kw_only=True):
        SUMMARY_FIELD = "names"
        names: list[str] = []

    assert Listed(names=["a", "b"]).summary() == "LISTED(a,b)"


@pytest.mark.parametrize(
    ("wire", "text"),
    [
        ([], "opcode: wanted an object, found list"),
        (None, "opcode: wanted an object, found NoneType"),
        ({}, "unknown opcode None"),
        ({"OP_ID": 5}, "unknown opcode 5"),
        ({"OP_ID": ["x"]}, "unknown opcode ['x']"),
        (
            {"OP_ID": "OP_CLUSTER_DESTROYED"},
            "unknown opcode 'OP_CLUSTER_DESTROYED'; did you mean OP_CLUSTER_DESTROY",
        ),
    ],
)
def test_what_is_no_opcode_is_explained(wire, text):
    with pytest.raises(errors.OpPrereqError) as caught:
        opcodes.decode(wire)
    assert caught.value.args[0].startswith(text)
    assert caught.value.args[1] == WRONG


def test_a_null_stands_for_the_default_of_an_optional_parameter():
    wire = {"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": "a"}
    assert opcodes.decode({**wire, "priority": None, "reason": None}).priority == 0
    with pytest.raises(errors.OpPrereqError, match="OP_INSTANCE_STARTUP"):
        opcodes.decode({**wire, "instance_name": None})


def test_parameters_without_a_value_are_not_sent_but_for_two():
    op = opcodes.decode({"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": "a"})
    wire = opcodes.encode(op)
    assert None in wire.values()
    unset = {key for key, value in wire.items() if value is None}
    assert unset == {"depends", "comment"}
    assert wire["OP_ID"] == "OP_INSTANCE_STARTUP"
    assert (wire["priority"], wire["reason"], wire["force"]) == (0, [], False)
    assert opcodes.decode(wire) == op


def create(**changes):
    return {"OP_ID": "OP_INSTANCE_CREATE", **changes}


def test_a_reservation_may_leave_out_what_is_not_decided():
    op = opcodes.decode(create(forthcoming=True))
    assert (op.instance_name, op.mode, op.disks, op.nics) == ("", "create", [], [])
    op = opcodes.decode(
        create(forthcoming=True, instance_name="a", disks=[{"size": 1}], nics=[{}])
    )
    assert (op.instance_name, op.disks, op.nics) == ("a", [{"size": 1}], [{}])
    op = opcodes.decode(create(commit=True, instance_name="a"))
    assert (op.mode, op.disks, op.nics) == ("create", [], [])
    for wire, missing in (
        (create(commit=True), "instance_name"),
        (create(instance_name="a", mode="create", disks=[]), "nics"),
        (create(instance_name="a", forthcoming=False, disks=[], nics=[]), "mode"),
    ):
        with pytest.raises(errors.OpPrereqError, match=missing):
            opcodes.decode(wire)


#: Opcode -> hidden parameters, and whether they may be stored.
HIDDEN = {
    "OP_INSTANCE_CREATE": {"osparams_private": True, "osparams_secret": False},
    "OP_INSTANCE_REINSTALL": {"osparams_private": True, "osparams_secret": False},
}


def test_hidden_parameters_are_those_of_passwords_and_keys():
    names = {name for row in codec.HIDDEN.values() for name in row}
    assert {"osparams_private", "osparams_secret"} <= names
    for op, row in HIDDEN.items():
        assert {name: codec.HIDDEN[op][name] for name in row} == row
    for op, row in codec.HIDDEN.items():
        known = {field.name for field in msgspec.structs.fields(opcodes.OPCODES[op])}
        assert set(row) <= known
        for name, is_stored in row.items():
            assert is_stored == (not name.endswith("secret")), (op, name)


def test_secrets_are_hidden_leaf_by_leaf():
    wire = create(
        instance_name="a",
        osparams_private={"p": {"deep": "x"}},
        osparams_secret={"s": ["y"]},
    )
    clean = opcodes.redact(wire)
    assert clean["osparams_private"] == {"p": {"deep": REDACTED}}
    assert clean["osparams_secret"] == {"s": REDACTED}
    assert clean["instance_name"] == "a"
    # The request itself stays as it was.
    assert wire["osparams_secret"] == {"s": ["y"]}
    disk = opcodes.redact(wire, for_disk=True)
    assert disk["osparams_private"] == {"p": {"deep": "x"}}
    assert disk["osparams_secret"] == {"s": REDACTED}
    assert opcodes.lost_secrets(disk)
    assert not opcodes.lost_secrets(wire)
    # A private value that was hidden for a log was not lost.
    assert not opcodes.lost_secrets(create(osparams_private={"p": REDACTED}))


def test_nothing_is_copied_where_nothing_is_hidden():
    wire = {"OP_ID": "OP_CLUSTER_VERIFY", "osparams_secret": {"s": "y"}}
    assert opcodes.redact(wire) is wire
    for empty in ({}, None):
        assert opcodes.redact(create(osparams_secret=empty)) == create(
            osparams_secret=empty
        )


def multi(*children):
    return {"OP_ID": "OP_INSTANCE_MULTI_ALLOC", "instances": list(children)}


def test_requests_inside_a_request_are_hidden_whatever_they_claim_to_be():
    child = {"OP_ID": "OP_CLUSTER_VERIFY", "osparams_secret": {"s": "y"}, "x": 1}
    clean = opcodes.redact(multi(child, "text", {"osparams_private": {"p": "z"}}))
    assert clean["instances"] == [
        {"OP_ID": "OP_CLUSTER_VERIFY", "osparams_secret": {"s": REDACTED}, "x": 1},
        REDACTED,
        {"OP_ID": None, "osparams_private": {"p": REDACTED}},
    ]
    assert opcodes.lost_secrets(clean)
    assert not opcodes.lost_secrets(multi(child, "text"))
    assert opcodes.redact({"OP_ID": "OP_INSTANCE_MULTI_ALLOC"})["instances"] == []
    stored = opcodes.redact(multi({"osparams_private": {"p": "z"}}), for_disk=True)
    assert stored["instances"][0]["osparams_private"] == {"p": "z"}


def test_a_changed_copy_is_another_opcode():
    op = opcodes.TestDelay(duration=1.0)
    assert op.replace(duration=2.0).duration == 2.0
    assert op.duration == 1.0


def test_a_creation_is_stored_without_parameters_that_other_releases_lack():
    """After a failover in the middle of an upgrade, their master daemon reads it."""
    wire = {"OP_ID": "OP_INSTANCE_CREATE", "instance_name": "web1", "mode": "create"}
    encoded = opcodes.encode(opcodes.decode(wire | {"disks": [], "nics": []}))
    rows = [row for row in SPEC["params"] if row["op"] == "OP_INSTANCE_CREATE"]
    names = {row["name"] for row in (*rows, *SPEC["common_params"])}
    assert set(encoded) - {"OP_ID"} - names == set()
