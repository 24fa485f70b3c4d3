"""Methods of the client that are made of the table, each against its own row."""

import ast
import inspect
import pathlib
import runpy
import subprocess
import sys

import pytest

from ganeti.model import opcodes
from ganeti.protocols.rapi import caller, client_method, resource_table
from ganeti.protocols.rapi.api import GanetiRapiClient
from ganeti.protocols.rapi.model import Body

TOP = pathlib.Path(__file__).parents[5]
ROWS = [each for each in resource_table.RESOURCES if each.client is not None]


class Recorder(GanetiRapiClient):
    """Keeps the last request."""

    def _SendRequest(self, *request):
        self.request = request
        return []


def called(row):
    """Return the request of a method whose parameters all have values."""
    client = Recorder("host")
    values = {}
    for each in list(inspect.signature(getattr(client, row.client.name)).parameters):
        if each != client_method.MORE:
            values[each] = ["a"] if each in {"tags", "fields", "disks"} else 1
    for each in ("instances", "tags", "add_reserved_ips"):
        if each in values:
            values[each] = ["a"]
    getattr(client, row.client.name)(**values)
    return client.request


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.client.name)
def test_a_request_goes_to_the_row_and_has_what_it_knows(row):
    verb, path, query, body = called(row)
    actual = resource_table.find(path)
    assert actual is not None
    assert actual.methods[verb] is row
    known = {each.name for each in row.arguments}
    # Ganeti's client sends these to resources without them, which ignore them.
    assert {name for name, _ in query} <= known | {"reason", "dry-run"}
    if row.body in {Body.PARAMETERS, Body.REQUIRED}:
        fields = set(opcodes.OPCODES[row.job.op_id].__struct_fields__)
        assert set(body or ()) <= fields | set(row.job.renames)
    elif row.body is Body.IGNORED:
        assert body is None


def test_each_parameter_is_sent_or_a_part_of_the_path():
    for row in ROWS:
        verb, path, query, body = called(row)
        size = len(body) if isinstance(body, dict) else body is not None
        assert path.count("1") >= len(row.variables), row.client.name
        assert len(query) + size == len(caller.parameters(row)) - any(
            each.name == client_method.MORE for each in row.client.parameters
        ), (verb, path, query, body)


def test_a_wrong_call_is_a_type_error():
    client = Recorder("host")
    with pytest.raises(TypeError, match="instance"):
        client.GetInstance()
    with pytest.raises(TypeError, match="colour"):
        client.GetInstance("web1", colour="red")


def test_texts_name_the_parameters_and_stay_within_a_line():
    text = inspect.getdoc(GanetiRapiClient.CommitInstance)
    assert text.splitlines()[0] == "Create a forthcoming instance; return the job id."
    assert "    instance: its name or uuid.\n" in text
    assert "``OP_NODE_SET_PARAMS``" in GanetiRapiClient.ModifyNode.__doc__
    assert "Args" not in GanetiRapiClient.GetInstance.__doc__
    assert max(map(len, text.splitlines())) <= 80


def test_the_stub_is_current():
    script = runpy.run_path(str(TOP / "autotools/make-rapi-stub"))
    is_current = script["STUB"].read_text() == script["stub"]()
    assert is_current, f"{script['STUB']}: run autotools/make-rapi-stub"


@pytest.mark.parametrize("name", ["client", "modern"])
def test_the_client_loads_nothing_of_the_server(name):
    text = (
        f"import sys; import ganeti.rapi.{name};"
        "print({name.split('.')[1] for name in sys.modules if name[:7] == 'ganeti.'})"
    )
    done = subprocess.run(
        [sys.executable, "-c", text],
        env={"PYTHONPATH": str(TOP / "build/py")},
        check=True,
        capture_output=True,
        text=True,
    )
    assert ast.literal_eval(done.stdout) == {"protocols", "rapi"}
