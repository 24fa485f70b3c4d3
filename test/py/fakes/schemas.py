"""Checks of output with the JSON Schemas in doc/schema."""

import json
import pathlib
from typing import Any

import jsonschema

_SCHEMAS = pathlib.Path(__file__).parents[3] / "doc" / "schema"


def problems(command: str, value: Any) -> list[str]:
    """Return where the output of a command, such as gnt-instance-info, is wrong."""
    schema = json.loads((_SCHEMAS / f"{command}.json").read_text())
    checker = jsonschema.Draft202012Validator(schema)
    return [f"{row.json_path}: {row.message}" for row in checker.iter_errors(value)]
