"""The OpenAPI 3.1 document of the remote API, made from the table of resources.

`document` is a function of the table and of the opcodes, so the document states the
parameters that the server really accepts. Operation ids are stable: programs that make
clients from the document use them as names of functions.
"""

import functools
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from ganeti.base.constants import versions
from ganeti.daemons.rapi import bodies, schemas
from ganeti.daemons.rapi.schemas import Schema
from ganeti.model import ht
from ganeti.operations.mcpu import Plan
from ganeti.protocols.rapi import model
from ganeti.protocols.rapi.model import Argument, Body, Job, Kind, Resource
from ganeti.protocols.rapi.resource_table import RESOURCES

_TITLE: Final = "Ganeti remote API"
_ABOUT: Final = (
    "Requests that change the cluster submit a job and return its number; the job's"
    " result is read from /2/jobs/[job_id]. With plan=1 they return what the job would"
    " do, and do nothing. Only status 200 means success. Anonymous"
    " requests may read unless the server requires authentication."
)
_JSON: Final = "application/json"
_NAME: Final[Schema] = {"type": "string", "pattern": r"^[A-Za-z0-9_.\-]+$"}
_ANY_NAME: Final[Schema] = {"type": "string", "pattern": r"^[^\x00-\x1f\x7f]+$"}
#: Longest number in a path that is still a valid index or job id.
_NUMBER: Final[Schema] = {"type": "string", "pattern": "^[0-9]{1,9}$"}
_DISK_INDEX: Final[Schema] = {"type": "string", "pattern": "^([0-9]|1[0-5])$"}
_FLAG: Final[Schema] = {"type": "integer", "enum": [0, 1], "default": 0}
_ERROR: Final[Schema] = {
    "type": "object",
    "properties": {
        "code": {"type": "integer", "description": "status of HTTP"},
        "message": {"type": "string", "description": "reason of this error"},
        "explain": {"type": "string", "description": "meaning of the status"},
        "detail": {"type": "string", "description": "reason of status 404"},
        "conflict": {"$ref": "#/components/schemas/Conflict"},
    },
    "required": ["code", "message", "explain"],
}
_CHANGE: Final[Schema] = {
    "type": ["object", "null"],
    "properties": {
        "job_info": {"type": ["array", "null"], "description": "values of the fields"},
        "log_entries": {"type": ["array", "null"], "description": "new log entries"},
    },
}
_CONFLICT: Final[Schema] = {
    "description": "of status 409: the state of an object that has changed",
    "type": "object",
    "properties": {
        "uuid": {"type": "string", "description": "of the object"},
        "serial": {"type": "integer", "description": "its present serial"},
        "wanted": {
            "type": "array",
            "items": {"type": "integer"},
            "description": "serials in If-Match",
        },
        "present": {
            "type": "object",
            "description": "values that the object has where the request gives others",
        },
    },
    "required": ["uuid", "serial", "wanted", "present"],
}
#: Lists of tags in the form of RFC 9110.
_TAGS: Final[Schema] = {
    "type": "string",
    "pattern": r'^(\*|(W/)?"[!#-~]*"(, ?(W/)?"[!#-~]*")*)$',
}
_IF_MATCH: Final = (
    "tag of the object as it was read: refused with 409 if it has changed since"
)
_IF_NONE_MATCH: Final = "tag of the last answer: 304 if it would be the same"
_TAG: Final[Schema] = {
    "description": "UUID, serial and digest of the object",
    "schema": schemas.TEXT,
}
#: Functions whose answers have a tag.
_TAGGED: Final = frozenset({"cluster_info", "get_object"})
_PAGE: Final[Schema] = {
    "type": "object",
    "properties": {
        "items": {"type": "array", "items": {"type": "object"}},
        "next": {
            "type": ["string", "null"],
            "description": "cursor of the next page; null after the last one",
        },
        "count": {
            "type": ["integer", "null"],
            "description": "objects of all pages, null without count=1",
        },
    },
    "required": ["items", "next", "count"],
}
_FORTHCOMING: Final = ["forthcoming"]
_DEPENDS: Final = "jobs that must end first, and how they may end"
#: Result of resources whose type says less than the schema can; by name of function.
_RESULTS: Final[Mapping[str, Schema]] = {
    "query": {"$ref": "#/components/schemas/QueryResponse"},
    "query_fields": {"$ref": "#/components/schemas/QueryFieldsResponse"},
    "wait_for_job": {"$ref": "#/components/schemas/JobChange"},
}
_SIGNED_IN: Final[list[Schema]] = [{"basic": []}, {"bearer": []}]


def document(
    resources: Iterable[Resource] = RESOURCES,
    *,
    version: str = versions.RELEASE_VERSION,
) -> dict[str, Any]:
    """Return the document as JSON types.

    Args:
        resources: rows of the table.
        version: of the program.
    """
    paths: dict[str, dict[str, Any]] = {}
    for resource in resources:
        path = resource.path.replace("[", "{").replace("]", "}")
        methods = paths.setdefault(path, {})
        methods[resource.method.lower()] = _operation(resource)
    return {
        "openapi": "3.1.0",
        "info": {"title": _TITLE, "version": version, "description": _ABOUT},
        "paths": paths,
        "components": {
            "schemas": _components(),
            "responses": {
                "Error": {
                    "description": "the request was refused or failed",
                    "content": {_JSON: {"schema": _reference("Error")}},
                }
            },
            "securitySchemes": {
                "basic": {"type": "http", "scheme": "basic"},
                "bearer": {"type": "http", "scheme": "bearer"},
            },
        },
    }


@functools.cache
def encoded() -> bytes:
    """Return the document of this release as JSON."""
    return msgspec.json.encode(document())


def operation_id(resource: Resource) -> str:
    """Return the stable name of an operation, such as ``put_instances_name_rename``."""
    name = resource.name or ("root" if resource.path == "/" else "version_2")
    return f"{resource.method.lower()}_{name}"


def _reference(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _components() -> dict[str, Schema]:
    return {
        "Conflict": _CONFLICT,
        "Error": _ERROR,
        "JobChange": _CHANGE,
        "Page": _PAGE,
        "Plan": _plans(),
        "QueryResponse": schemas.of_type(ht.QueryResponse),
        "QueryFieldsResponse": schemas.of_type(ht.QueryFieldsResponse),
        **{name: schemas.row(name) for name in schemas.OBJECTS},
    }


def _operation(resource: Resource) -> dict[str, Any]:
    """Return the description of one path and method."""
    needs_user = bool(resource.access) or resource.signed_in
    operation: dict[str, Any] = {
        "operationId": operation_id(resource),
        "summary": resource.about,
        "tags": [_tag(resource)],
        "parameters": [
            *map(_variable, resource.variables),
            *(_argument(each, resource.job) for each in resource.arguments),
            *_headers(resource),
        ],
        "responses": {
            "200": {
                "description": "the number of the job" if resource.job else "success",
                "content": {
                    resource.options.get("media", _JSON): {"schema": _result(resource)}
                },
            },
            "default": {"$ref": "#/components/responses/Error"},
        },
        "security": _SIGNED_IN if needs_user else [{}, *_SIGNED_IN],
    }
    if resource.direct in _TAGGED:
        operation["responses"]["200"]["headers"] = {"ETag": _TAG}
        operation["responses"]["304"] = {"description": "the client has the answer"}
    body = _body(resource)
    if body is not None:
        operation["requestBody"] = {
            "required": resource.body is Body.REQUIRED or _must_have_body(resource),
            "content": {_JSON: {"schema": body}},
        }
    if resource.access:
        operation["x-ganeti-rights"] = list(resource.access)
    if resource.job is not None:
        operation["x-ganeti-opcode"] = resource.job.op_id
    return operation


def _headers(resource: Resource) -> list[dict[str, Any]]:
    """Return the descriptions of the headers with conditions."""
    rows = []
    if resource.target:
        rows.append(("If-Match", _IF_MATCH))
    if resource.direct in _TAGGED:
        rows.append(("If-None-Match", _IF_NONE_MATCH))
    return [
        {"name": name, "in": "header", "description": about, "schema": _TAGS}
        for name, about in rows
    ]


def _tag(resource: Resource) -> str:
    parts = resource.path.split("/")
    known = {"instances", "nodes", "groups", "networks", "jobs", "filters", "query"}
    part = parts[2] if len(parts) > 2 else ""
    if part == "instances-multi-alloc":
        return "instances"
    return part if part in known else "cluster"


def _variable(name: str) -> dict[str, Any]:
    number = _DISK_INDEX if name == "disk_index" else _NUMBER
    schema = _ANY_NAME if name in model.ANY_NAMES else _NAME
    return {
        "name": name,
        "in": "path",
        "required": True,
        "schema": number if name in model.NUMBERS else schema,
    }


def _argument(argument: Argument, job: Job | None) -> dict[str, Any]:
    """Return the description of a query argument."""
    described: dict[str, Any] = {
        "name": argument.name,
        "in": "query",
        "description": argument.about,
        "required": argument.required or _is_needed(argument, job),
    }
    if argument.kind is Kind.FLAG:
        return {**described, "schema": _FLAG}
    if argument.kind is Kind.TEXT:
        if argument.form is not None:
            return {**described, "schema": argument.form}
        schema = {**schemas.TEXT, "minLength": 1}
        if isinstance(argument.default, str):
            schema["default"] = argument.default
        return {**described, "schema": {**schema, **_choices(argument, job)}}
    schema = {"type": "array", "items": {**schemas.TEXT, "minLength": 1}}
    repeated = argument.kind is Kind.TEXTS
    return {**described, "schema": schema, "style": "form", "explode": repeated}


def _is_needed(argument: Argument, job: Job | None) -> bool:
    """Return whether an opcode lacks a parameter without this argument."""
    if job is None or argument.kind is not Kind.TEXT or argument.default is not None:
        return False
    return argument.field in schemas.parameters(job.op_id)["required"]


def _choices(argument: Argument, job: Job | None) -> Schema:
    """Return the words that the opcode's parameter takes, if it takes no others."""
    if job is None:
        return {}
    properties = schemas.parameters(job.op_id)["properties"]
    parameter = properties.get(argument.field or argument.name, {})
    words = [
        each for each in (parameter, *parameter.get("anyOf", ())) if "enum" in each
    ]
    return {"enum": words[0]["enum"]} if words else {}


def _result(resource: Resource) -> Schema:
    """Return the schema of the answer."""
    if resource.direct in _RESULTS:
        return dict(_RESULTS[resource.direct])
    listed = resource.options.get("fields")
    for name, (_kind, names) in schemas.OBJECTS.items():
        if listed != names:
            continue
        if resource.direct != "list_objects":
            return _reference(name)
        shown = str(resource.options["shown"])
        short = {
            "type": "object",
            "properties": {shown: {}, "uri": schemas.TEXT},
            "required": [shown, "uri"],
        }
        return {
            "description": "names with their paths; with bulk=1 whole objects; with"
            " limit, cursor, sort, filter, fields or count a page",
            "anyOf": [
                {"type": "array", "items": short},
                {"type": "array", "items": _reference(name)},
                _reference("Page"),
            ],
        }
    schema = schemas.of_type(resource.result)
    if model.PLAN not in resource.arguments:
        return schema
    return {
        "description": "the number of the job; with plan=1 what it would do",
        "anyOf": [schema, _reference("Plan")],
    }


def _plans() -> Schema:
    """Return the schema of a plan: that of ``--plan --json`` of commands."""
    # As JSON: defaults of the type are tuples.
    plan = msgspec.json.decode(msgspec.json.encode(schemas.of_type(Plan)))
    jobs = {"type": "array", "items": plan}
    return {"type": "object", "properties": {"jobs": jobs}, "required": ["jobs"]}


def _must_have_body(resource: Resource) -> bool:
    """Return whether a body of its own form has members without a default."""
    if resource.body is Body.OWN:
        kind = bodies.TYPES[resource.body_type]
        return kind is bodies.Role or bool(schemas.of_type(kind).get("required"))
    return resource.body is Body.PARAMETERS and bool(_rules(_parameters(resource)))


def _rules(schema: Schema) -> list[Any]:
    """Return what an empty object lacks."""
    lacks = [rule for rule in schema.get("allOf", ()) if "oneOf" in rule]
    return [*schema["required"], *lacks]


def _body(resource: Resource) -> Schema | None:
    """Return the schema of the body, None if the server ignores any."""
    if resource.body is Body.OWN:
        kind = bodies.TYPES[resource.body_type]
        is_struct = hasattr(kind, "__struct_fields__")
        return schemas.struct(kind) if is_struct else schemas.of_type(kind)
    if resource.body is not Body.IGNORED:
        return _parameters(resource)
    if resource.job is None:
        return None
    depends = schemas.nullable(schemas.of_type(ht.Depends))
    return {
        "type": "object",
        "properties": {"depends": {**depends, "description": _DEPENDS}},
    }


def _parameters(resource: Resource) -> Schema:
    """Return the schema of a body of opcode parameters."""
    job = resource.job
    assert job is not None
    by_uri = {each.field for each in resource.arguments if each.field}
    left_out = {*job.path, *job.constants, *job.forbidden, *by_uri}
    schema = schemas.without(schemas.parameters(job.op_id), left_out)
    properties = schema["properties"]
    if job.op_id == "OP_INSTANCE_MULTI_ALLOC":
        child = schemas.parameters("OP_INSTANCE_CREATE")
        child["properties"]["OP_ID"] = {"const": "OP_INSTANCE_CREATE"}
        items = _creation(schemas.with_earlier_names(_relaxed(child), job.renames))
        properties["instances"] = {"type": "array", "items": items}
        schema["required"] = [*schema["required"], "instances"]
        return schema
    if job.op_id == "OP_INSTANCE_REPLACE_DISKS":
        properties["disks"] = {"anyOf": [properties["disks"], model.INDICES]}
    if job.op_id != "OP_INSTANCE_CREATE":
        return schemas.with_earlier_names(schema, job.renames)
    properties["__version__"] = {"const": 1, "description": "form of the body"}
    schema = _relaxed(schema)
    if "commit" in job.constants:
        return schemas.with_earlier_names(schema, job.renames)
    schema["required"] = ["__version__"]
    return _creation(schemas.with_earlier_names(schema, job.renames))


def _relaxed(schema: Schema) -> Schema:
    """Return the schema of a creation without what only some requests must have."""
    return {**schema, "required": []}


def _creation(schema: Schema) -> Schema:
    """Return the schema of a creation that needs all parameters unless it reserves."""
    named = [{"required": ["instance_name"]}, {"required": ["name"]}]
    return {
        **schema,
        "anyOf": [
            {"required": ["disks", "mode", "nics"], "anyOf": named},
            {"properties": {"forthcoming": {"const": True}}, "required": _FORTHCOMING},
            {
                "properties": {"commit": {"const": True}},
                "required": ["commit"],
                "anyOf": named,
            },
        ],
    }
