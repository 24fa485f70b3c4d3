"""The JSON Schemas in doc/schema are those that the tables give."""

import json
import pathlib
import re
import subprocess
import sys

import jsonschema
import pytest

TOP = pathlib.Path(__file__).parents[3]
SCHEMAS = TOP / "doc" / "schema"


def test_schemas_are_current(tmp_path):
    subprocess.run(
        [sys.executable, TOP / "autotools" / "make-schemas", tmp_path],
        env={"PYTHONPATH": str(TOP / "build" / "py"), "PATH": "/usr/bin:/bin"},
        check=True,
        timeout=60,
    )
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    kept = {path.name: path.read_text() for path in SCHEMAS.iterdir()}
    assert made == kept, "run autotools/make-schemas"


@pytest.mark.parametrize("path", sorted(SCHEMAS.iterdir()), ids=lambda path: path.stem)
def test_schemas_are_valid(path):
    schema = json.loads(path.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    if path.stem == "plan":
        return
    program, command = re.fullmatch(
        r"(gnt-(?:rapi-token|[a-z]+))-(.*)", path.stem
    ).groups()
    assert schema["title"] == f"{program} {command} --json"
