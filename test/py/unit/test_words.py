"""The words against the interface tables: opcodes, records, errors, RPC, constants."""

import importlib
import json
import pathlib
import pkgutil

import msgspec
import pytest

from ganeti.base import constants, errors
from ganeti.base.constants.parameters import hvparams
from ganeti.model import objects, opcodes
from ganeti.protocols import rpc, ssconf

SPEC = pathlib.Path(__file__).parents[2] / "data" / "spec"


def table(name):
    return json.loads((SPEC / f"{name}.json").read_text())


def test_every_opcode_has_the_documented_parameters_and_defaults():
    spec = table("opcodes")
    assert set(opcodes.OPCODES) == {row["op"] for row in spec["opcodes"]}
    for row in spec["params"]:
        cls = opcodes.OPCODES[row["op"]]
        field = {f.name: f for f in msgspec.structs.fields(cls)}[row["name"]]
        assert field.required == row["required"], row
        if not row["required"]:
            default = (
                field.default_factory()
                if field.default is msgspec.NODEFAULT
                else field.default
            )
            assert default == row["default"], row


def test_unknown_and_missing_parameters_are_refused_with_the_opcode_named():
    with pytest.raises(
        errors.OpPrereqError, match=r"OP_INSTANCE_STARTUP.*parameter bogus"
    ):
        opcodes.decode(
            {"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": "a", "bogus": 1}
        )
    with pytest.raises(
        errors.OpPrereqError, match=r"OP_INSTANCE_STARTUP.*instance_name"
    ):
        opcodes.decode({"OP_ID": "OP_INSTANCE_STARTUP"})
    with pytest.raises(errors.OpPrereqError, match="OP_NO_SUCH"):
        opcodes.decode({"OP_ID": "OP_NO_SUCH"})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, True),
        ({"hotplug": False}, False),
        ({"hotplug": False, "hotplug_if_possible": False}, False),
        ({"hotplug": False, "hotplug_if_possible": True}, True),
        ({"hotplug": True, "hotplug_if_possible": False}, True),
        ({"hotplug_if_possible": None}, True),
    ],
)
def test_the_hotplug_parameters_of_3_0_are_understood(given, expected):
    wire = {"OP_ID": "OP_INSTANCE_SET_PARAMS", "instance_name": "a", **given}
    op = opcodes.decode(wire)
    assert op.hotplug is expected
    assert "hotplug_if_possible" not in opcodes.encode(op)


def test_an_odd_hotplug_parameter_is_refused():
    wire = {"OP_ID": "OP_INSTANCE_SET_PARAMS", "instance_name": "a"}
    with pytest.raises(errors.OpPrereqError, match="hotplug_if_possible"):
        opcodes.decode({**wire, "hotplug_if_possible": "yes"})


def test_null_is_the_default():
    op = opcodes.decode(
        {"OP_ID": "OP_INSTANCE_STARTUP", "instance_name": "a", "force": None}
    )
    assert op.force is False


def test_secret_parameters_are_redacted_and_private_ones_kept_on_disk_only():
    data = {
        "OP_ID": "OP_INSTANCE_REINSTALL",
        "instance_name": "a",
        "osparams_private": {"p": "x"},
        "osparams_secret": {"s": "y"},
    }
    assert opcodes.redact(data)["osparams_private"] == {"p": "<redacted>"}
    disk = opcodes.redact(data, for_disk=True)
    assert disk["osparams_private"] == {"p": "x"}
    assert disk["osparams_secret"] == {"s": "<redacted>"}


def test_the_example_configuration_survives_a_round_trip():
    example = table("objects")["example_config"]
    config = objects.from_dict(objects.ConfigData, example)
    assert objects.to_dict(config) == example


def _subclasses(cls):
    return [c for sub in cls.__subclasses__() for c in (sub, *_subclasses(sub))]


def test_existing_clients_know_every_class_that_travels():
    known = {row["class"] for row in table("errors")["classes"]}
    for cls in _subclasses(errors.GenericError):
        if (
            issubclass(cls, errors.ProtocolError)
            or cls.__module__ != "ganeti.base.errors"
        ):
            continue
        assert errors.encode(cls("text"))[0] in known, cls


def test_every_error_class_crosses_the_wire():
    spec = table("errors")
    for row in spec["classes"]:
        args = [f"a{i}" for i in range(len(row["args"]))]
        err = errors.decode([row["class"], args])
        assert type(err).__name__ == row["class"]
        assert errors.encode(err) == [row["class"], args]
        parent = row["parent"]
        assert parent in [cls.__name__ for cls in type(err).__mro__]
    assert errors.ConfigurationError.EXIT_CODE == 2
    assert errors.decode(["NoSuchError", []]) is None
    assert errors.encode(ValueError("x")) == ["OpExecError", ["x"]]


def test_rpc_table_has_the_documented_calls():
    for row in table("rpc")["procedures"]:
        ours = rpc.PROCEDURES[row["name"]]
        words = [arg.split(":")[0].strip() for arg in row["args"]]
        if row["name"] != "instance_console_info":  # its body is one object
            assert list(ours.args) == words
        assert ours.multi == (row["nodes"] != "one")


def test_constants_have_the_documented_values():
    actual = {}
    for info in pkgutil.iter_modules(constants.__path__):
        module = importlib.import_module(f"ganeti.base.constants.{info.name}")
        actual.update({k: v for k, v in vars(module).items() if k.isupper()})
    spec = table("constants")
    for rows in spec.values():
        for row in rows if isinstance(rows, list) else []:
            if isinstance(row, dict) and row.get("name") in actual and "value" in row:
                ours = json.loads(json.dumps(actual[row["name"]]))
                assert ours == row["value"], row["name"]


def test_hypervisor_parameters_and_ssconf_keys_are_the_documented_ones():
    for row in table("constants")["hv_parameters"]:
        assert (
            hvparams.HYPERVISOR[row["hypervisor"]][row["name"]].default
            == row["default"]
        )
    assert list(ssconf.KEYS) == [row["name"] for row in table("ssconf")["files"]]


@pytest.mark.parametrize("for_disk", [False, True])
def test_secrets_of_requests_inside_a_request_are_hidden_too(for_disk):
    child = {"OP_ID": "OP_INSTANCE_CREATE", "osparams_secret": {"root": "x-secret"}}
    child |= {"osparams_private": {"key": "x-private"}}
    wire = {"OP_ID": "OP_INSTANCE_MULTI_ALLOC", "instances": [child]}
    clean = opcodes.redact(wire, for_disk=for_disk)
    assert "x-secret" not in str(clean)
    assert ("x-private" in str(clean)) == for_disk
    assert opcodes.lost_secrets(clean)
    assert not opcodes.lost_secrets(wire)
