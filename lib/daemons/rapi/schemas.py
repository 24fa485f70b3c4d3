"""JSON Schemas of bodies and answers, derived from the types of opcodes and fields.

The dialect is that of JSON Schema 2020-12, which OpenAPI 3.1 uses. Everything here is a
function of the tables.
"""

import itertools
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from ganeti.base.constants import query as q
from ganeti.master.query import RESOURCES
from ganeti.model import opcodes
from ganeti.model.ht import Doc
from ganeti.model.opcodes.codec import HIDDEN
from ganeti.protocols.rapi import row_parts

Schema = dict[str, Any]

TEXT: Final[Schema] = {"type": "string"}
INTEGER: Final[Schema] = {"type": "integer"}
NULL: Final[Schema] = {"type": "null"}
_KINDS: Final[Mapping[str, Schema]] = {
    q.QFT_TEXT: TEXT,
    q.QFT_BOOL: {"type": "boolean"},
    q.QFT_NUMBER: INTEGER,
    q.QFT_NUMBER_FLOAT: {"type": "number"},
    q.QFT_UNIT: INTEGER,
    q.QFT_TIMESTAMP: {"type": "number"},
    q.QFT_OTHER: {},
}
_STAMP: Final[Schema] = {
    "description": "seconds and microseconds since 1970",
    "type": "array",
    "items": INTEGER,
    "minItems": 2,
    "maxItems": 2,
}
#: Fields whose form does not follow from their kind.
_OWN_FORMS: Final[Mapping[tuple[str, str], Schema]] = {
    ("job", "received_ts"): _STAMP,
    ("job", "start_ts"): _STAMP,
    ("job", "end_ts"): _STAMP,
    ("job", "summary"): {"type": "array", "items": TEXT},
    ("job", "opstatus"): {"type": "array", "items": TEXT},
    ("job", "ops"): {"type": "array", "items": {"type": "object"}},
    ("job", "opresult"): {"type": "array", "items": {}},
    ("node", "pinst_list"): {"type": "array", "items": TEXT},
    ("node", "sinst_list"): {"type": "array", "items": TEXT},
    ("group", "node_list"): {"type": "array", "items": TEXT},
}
#: Schema name -> kind of object and its fields.
OBJECTS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "Instance": ("instance", row_parts.INSTANCE),
    "Node": ("node", row_parts.NODE),
    "Network": ("network", row_parts.NETWORK),
    "Group": ("group", row_parts.GROUP),
    "FilterRule": ("filter", row_parts.FILTER),
    "JobInList": ("job", row_parts.JOB_IN_BULK),
    "Job": ("job", row_parts.JOB),
}
_CONTAINERS: Final[Mapping[type, str]] = {
    msgspec.inspect.ListType: "array",
    msgspec.inspect.DictType: "object",
}
#: A source of a reason that a client may write.
_REASON_SOURCE: Final[Schema] = {"type": "string", "not": {"pattern": "^gnt:"}}


def nullable(schema: Schema) -> Schema:
    """Return the schema that also accepts null."""
    if not schema or schema.get("type") == "null" or NULL in schema.get("anyOf", ()):
        return schema
    if isinstance(schema.get("type"), str) and "enum" not in schema:
        return {**schema, "type": [schema["type"], "null"]}
    outside: Schema = {
        key: schema[key] for key in ("description", "default") if key in schema
    }
    inside = {key: value for key, value in schema.items() if key not in outside}
    return {"anyOf": [inside, dict(NULL)], **outside}


def of_type(kind: Any) -> Schema:
    """Return the schema of an annotation, with all its parts in place."""
    (schema,), parts = msgspec.json.schema_components([kind], ref_template="{name}")
    placed: Schema = _portable(_in_place(schema, parts))
    _name_keys(placed, msgspec.inspect.type_info(kind))
    return placed


def _name_keys(schema: Schema, info: Any) -> None:
    """Add the allowed names of members of objects, which the library leaves out.

    Args:
        schema: of the type; changed in place.
        info: the library's description of the type.
    """
    if isinstance(info, msgspec.inspect.Metadata):
        _name_keys(schema, info.type)
    elif isinstance(info, msgspec.inspect.StructType):
        for field in info.fields:
            _name_keys(schema["properties"][field.encode_name], field.type)
    elif isinstance(info, msgspec.inspect.ListType):
        _name_keys(schema.get("items", {}), info.item_type)
    elif isinstance(info, msgspec.inspect.DictType):
        if isinstance(info.key_type, msgspec.inspect.LiteralType):
            schema["propertyNames"] = {"enum": list(info.key_type.values)}
        _name_keys(schema.get("additionalProperties", {}), info.value_type)
    elif isinstance(info, msgspec.inspect.UnionType):
        for option, part in itertools.product(info.types, schema.get("anyOf", ())):
            if part.get("type") == _CONTAINERS.get(type(option), ""):
                _name_keys(part, option)


def _in_place(schema: Any, parts: Mapping[str, Any]) -> Any:
    """Return a schema with the parts that it refers to; they are not recursive."""
    if isinstance(schema, list):
        return [_in_place(item, parts) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _in_place(parts[schema["$ref"]], parts)
    return {key: _in_place(value, parts) for key, value in schema.items()}


def _portable(schema: Any) -> Any:
    r"""Return a schema whose patterns are those of ECMAScript, which has no ``\Z``."""
    if isinstance(schema, list):
        return [_portable(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: value.replace(r"\Z", "$")
        if key == "pattern" and isinstance(value, str)
        else _portable(value)
        for key, value in schema.items()
    }


def _described(kind: Any, properties: Mapping[str, Schema]) -> dict[str, Schema]:
    """Return properties with the texts of their annotations."""
    described = {}
    hints = typing.get_type_hints(kind, include_extras=True)
    for name, schema in properties.items():
        texts = [
            str(each)
            for each in getattr(hints.get(name), "__metadata__", ())
            if isinstance(each, Doc)
        ]
        described[name] = {**schema, "description": texts[0]} if texts else schema
    return described


def struct(kind: Any) -> Schema:
    """Return the schema of a record type, with the texts of its fields."""
    schema = of_type(kind)
    schema.pop("title", None)
    schema["properties"] = _described(kind, schema["properties"])
    return schema


def parameters(op_id: str) -> Schema:
    """Return the schema of an opcode's parameters, without its ``OP_ID``.

    Null stands for the default of every parameter that has one. Values that logs never
    show are marked ``writeOnly``.
    """
    kind = opcodes.OPCODES[op_id]
    schema = struct(kind)
    required = [name for name in schema.get("required", ()) if name != "OP_ID"]
    hidden = HIDDEN.get(op_id, {})
    properties = {}
    for name, each in schema["properties"].items():
        if name == "OP_ID":
            continue
        allowed = each if name in required else nullable(each)
        properties[name] = {**allowed, "writeOnly": True} if name in hidden else allowed
    properties["reason"]["items"]["prefixItems"][0] = dict(_REASON_SOURCE)
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def without(schema: Schema, names: Iterable[str]) -> Schema:
    """Return the schema of an object without some of its members."""
    left_out = set(names)
    return {
        **schema,
        "properties": {
            name: each
            for name, each in schema["properties"].items()
            if name not in left_out
        },
        "required": [name for name in schema["required"] if name not in left_out],
    }


def with_earlier_names(schema: Schema, renames: Mapping[str, str]) -> Schema:
    """Return the schema of an object whose members may have an earlier name instead.

    Args:
        schema: of an object.
        renames: earlier name -> present name. Both together are refused.
    """
    properties = dict(schema["properties"])
    required = list(schema["required"])
    rules: list[Schema] = []
    for old, new in renames.items():
        properties[old] = {**properties[new], "deprecated": True}
        if new in required:
            required.remove(new)
            rules.append({"oneOf": [{"required": [new]}, {"required": [old]}]})
        else:
            rules.append({"not": {"required": [old, new]}})
    named = {**schema, "properties": properties, "required": required}
    return {**named, "allOf": rules} if rules else named


def row(name: str) -> Schema:
    """Return the schema of one of `OBJECTS`; values that are not available are null."""
    kind, names = OBJECTS[name]
    table = RESOURCES[kind].fields
    properties = {}
    for each in names:
        field = table[each]
        form = _OWN_FORMS.get((kind, each), _KINDS[field.kind])
        if each == "tags":
            form = {"type": "array", "items": TEXT}
        properties[each] = {**nullable(form), "description": field.doc}
    return {"type": "object", "properties": properties, "required": list(names)}
