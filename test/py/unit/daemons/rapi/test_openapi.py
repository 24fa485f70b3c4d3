"""The OpenAPI document against the table of resources and the server's own checks."""

import itertools
import json
import pathlib

import jsonschema
import msgspec
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator, validate

from ganeti.base.process import RunResult, SystemRunner
from ganeti.daemons.rapi import document, openapi, problems, requests, schemas
from ganeti.protocols.rapi.model import Body, Request
from ganeti.protocols.rapi.resource_table import RESOURCES

DOCUMENT = openapi.document(version="3.1.1")
OPERATION_IDS = pathlib.Path(__file__).parents[4] / "data/rapi/operations.txt"
#: Values of all JSON types, at the borders of the types of parameters.
POOL = (
    *(None, True, False, 0, 1, -1, 16, 2**40, 1.5, "", "a", "7", "create", "all"),
    *(
        "plain",
        "live",
        "kvm",
        "local",
        "none",
        "preferred",
        "bridged",
        "192.0.2.0/24",
        "192.0.2.1",
    ),
    *([], ["a"], [1], [[]], [["a", 1]], [{}], [{"size": 1}], [[1, ["success"]]]),
    *([["gnt:x", "", 1]], [["me", "", 1]], {}, {"a": 1}, {"a": "b"}, {"link": "x"}),
    *(
        [[0, {"size": 3}]],
        ["replace_auto"],
        "replace_auto",
        {"plain": {}},
        "0, 1",
        "0,",
    ),
)


def operation(resource):
    path = resource.path.replace("[", "{").replace("]", "}")
    return DOCUMENT["paths"][path][resource.method.lower()]


def body_schema(resource):
    content = operation(resource)["requestBody"]["content"]
    return content["application/json"]["schema"]


def test_the_document_is_valid_openapi_and_json():
    validate(DOCUMENT, cls=OpenAPIV31SpecValidator)
    # Without the argument the version is that of this release.
    assert msgspec.json.decode(openapi.encoded()) == openapi.document()


def test_every_resource_has_one_operation_with_its_stable_id():
    listed = {(r.path, r.method): operation(r)["operationId"] for r in RESOURCES}
    total = sum(len(methods) for methods in DOCUMENT["paths"].values())
    assert len(set(listed.values())) == total == len(RESOURCES)
    lines = {f"{name} {m} {p}" for (p, m), name in listed.items()}
    assert set(OPERATION_IDS.read_text().splitlines()) - lines == set()


@pytest.mark.parametrize("resource", RESOURCES, ids=openapi.operation_id)
def test_rights_arguments_and_opcode_are_those_of_the_table(resource):
    described = operation(resource)
    assert described.get("x-ganeti-rights", []) == list(resource.access)
    is_open = not resource.access and not resource.signed_in
    assert ({} in described["security"]) == is_open
    job = resource.job
    assert described.get("x-ganeti-opcode") == (job.op_id if job else None)
    listed = {each["name"]: each["in"] for each in described["parameters"]}
    in_path = dict.fromkeys(resource.variables, "path")
    headers = dict.fromkeys(["If-Match"] if resource.target else [], "header")
    if resource.direct in {"get_object", "cluster_info"}:
        headers["If-None-Match"] = "header"
    assert ("304" in described["responses"]) == ("If-None-Match" in headers)
    in_query = {each.name: "query" for each in resource.arguments}
    assert listed == in_path | in_query | headers


def test_arguments_that_the_opcode_needs_are_required():
    needed = {
        (path, method, each["name"])
        for path, methods in DOCUMENT["paths"].items()
        for method, described in methods.items()
        for each in described["parameters"]
        if each["in"] == "query" and each["required"]
    }
    storage = "/2/nodes/{node_name}/storage"
    assert needed >= {
        ("/2/instances/{instance_name}/prepare-export", "put", "mode"),
        (f"{storage}/modify", "put", "storage_type"),
        (f"{storage}/repair", "put", "storage_type"),
    }
    assert not [each for each in needed if each[2] in {"tag", "reason", "dry-run"}]


def is_valid(schema, value):
    return jsonschema.Draft202012Validator(schema).is_valid(value)


def accepts(resource, body):
    args = {a.name: "a" for a in resource.arguments if a.required}
    path = dict.fromkeys(resource.variables, "1")
    request = Request(path=path, args=args, body=body)
    try:
        requests.job_of(resource, request)
    except problems.Refused:
        return False
    return True


def minimal(schema):
    """Return the smallest valid body, made of the pool."""
    names = list(schema["required"])
    names += [
        r["oneOf"][0]["required"][0] for r in schema.get("allOf", ()) if "oneOf" in r
    ]
    for rule in schema.get("anyOf", ())[:1]:
        names += rule["required"]
        names += rule["anyOf"][0]["required"]
    body = {}
    for name in names:
        allowed = schema["properties"][name]
        if "const" in allowed:
            body[name] = allowed["const"]
        else:
            body[name] = next(v for v in POOL if is_valid(allowed, v))
    assert is_valid(schema, body)
    return body


WITH_PARAMETERS = [
    each for each in RESOURCES if each.body in {Body.PARAMETERS, Body.REQUIRED}
]


@pytest.mark.parametrize("resource", WITH_PARAMETERS, ids=openapi.operation_id)
def test_the_schema_and_the_server_accept_the_same_bodies(resource):
    schema = body_schema(resource)
    validator = jsonschema.Draft202012Validator(schema)
    base = minimal(schema)
    bodies = [base, {**base, "no_such_parameter": 1}]
    bodies += [{k: v for k, v in base.items() if k != name} for name in base]
    bodies += [
        {**base, name: value}
        for name, value in itertools.product(schema["properties"], POOL)
    ]
    differ = [
        body for body in bodies if validator.is_valid(body) != accepts(resource, body)
    ]
    assert differ == []


def test_only_parameters_of_the_uri_are_missing_in_bodies():
    grow = next(r for r in RESOURCES if r.path.endswith("/grow"))
    names = set(body_schema(grow)["properties"])
    assert {"amount", "absolute", "reason", "depends"} <= names
    assert not names & {"instance_name", "disk", "OP_ID"}


def test_hidden_parameters_are_marked_and_earlier_names_are_deprecated():
    create = next(
        r for r in RESOURCES if (r.path, r.method) == ("/2/instances", "POST")
    )
    properties = body_schema(create)["properties"]
    assert properties["osparams_secret"]["writeOnly"]
    assert "writeOnly" not in properties["osparams"]
    assert properties["os"]["deprecated"]
    assert properties["name"]["deprecated"]
    assert properties["disks"]["description"] == "disks to create"


def test_no_pattern_is_python_only():
    assert r"\Z" not in json.dumps(DOCUMENT)


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        ({}, {}),
        ({"type": "null"}, {"type": "null"}),
        ({"type": "string"}, {"type": ["string", "null"]}),
        ({"anyOf": [{"type": "null"}]}, {"anyOf": [{"type": "null"}]}),
        ({"enum": ["a"]}, {"anyOf": [{"enum": ["a"]}, {"type": "null"}]}),
        ({"type": "string", "enum": ["a"], "default": "a"}, {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}], "default": "a"}),
    ],
)  # fmt: skip
def test_nullable_adds_null(schema, wanted):
    assert schemas.nullable(schema) == wanted


def test_rows_of_objects_have_the_documented_fields_and_may_be_null():
    instance = DOCUMENT["components"]["schemas"]["Instance"]
    assert instance["required"][:2] == ["name", "admin_state"]
    assert is_valid(instance, dict.fromkeys(instance["required"]))
    assert not is_valid(instance, {name: [] for name in instance["required"]})


# The OpenAPI document that a process of its own makes.


class Counting:
    """The real runner, or one whose commands fail; counts them."""

    def __init__(self):
        self.count = 0
        self.fails = False

    def run_bounded(self, argv, **limits):
        self.count += 1
        if self.fails:
            return RunResult(tuple(argv), 1, None, "", "why")
        return SystemRunner().run_bounded(argv, **limits)


def test_another_process_makes_the_text_once():
    runner = Counting()
    made = document.Document(lambda: runner)
    assert made() == openapi.encoded()
    assert made() == openapi.encoded()
    assert runner.count == 1


def test_without_that_process_the_daemon_makes_it(monkeypatch, caplog):
    runner = Counting()
    runner.fails = True
    assert document.Document(lambda: runner)() == openapi.encoded()
    assert "costs memory: exited with code 1: why" in caplog.text
    monkeypatch.setattr(document.sys, "executable", "/none")
    assert document.Document(SystemRunner)() == openapi.encoded()
    assert "/none" in caplog.text
