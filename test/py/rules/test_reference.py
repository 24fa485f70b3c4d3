"""The reference documents and JSON Schemas against the code.

Allocators, hooks, the OS interface, security and LUXI.
"""

import json
import pathlib
import re
import subprocess
import sys

import jsonschema
import pytest

from fakes import clusters
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.base.constants import daemons, disks
from ganeti.base.constants.parameters import hvparams
from ganeti.base.constants.protocols import os as os_constants
from ganeti.base.tls import x509
from ganeti.daemons.masterd.methods import calls
from ganeti.master.iallocator import answer_checks, builtin, requests
from ganeti.node.calls import os_definitions
from ganeti.operations import unit_table
from ganeti.protocols.http import limits
from ganeti.protocols.luxi.server import Server
from ganeti.tools import ensure_dirs

TOP = pathlib.Path(__file__).parents[3]
DOC = TOP / "doc"
HOOKS = json.loads((TOP / "test" / "data" / "spec" / "hooks.json").read_text())


def _block(page, name):
    """Return the text of a code block with a name."""
    text = (DOC / page).read_text()
    match = re.search(rf"   :name: {name}\n\n((?:   .*\n|\n)+)", text)
    assert match, name
    return re.sub(r"^   ", "", match[1], flags=re.MULTILINE)


# Allocators
@pytest.fixture
def example(tmp_path):
    path = tmp_path / "request.json"
    path.write_text(_block("iallocator.rst", "request"))
    return path


def test_the_answer_of_the_example_is_the_answer_of_hail(example):
    rows = (TOP / "autotools" / "programs").read_text().splitlines()
    (row,) = (row.split() for row in rows if row.startswith("hail "))
    code = f"import sys, {row[1]} as m; sys.exit(m.main({row[2]!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(example)],
        env={"PYTHONPATH": str(TOP / "build" / "py"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    answer = json.loads(_block("iallocator.rst", "answer"))
    actual = json.loads(done.stdout)
    assert actual["success"]
    assert actual["result"] == answer["result"]
    assert set(answer) == {"success", "info", "result"}


def test_the_allocator_of_the_example_works(example, tmp_path):
    program = tmp_path / "simple"
    program.write_text(_block("iallocator.rst", "allocator"))
    done = subprocess.run(
        [sys.executable, str(program), str(example)],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    actual = json.loads(done.stdout)
    expected = json.loads(_block("iallocator.rst", "answer"))
    assert actual["result"] == expected["result"]


ASKED = requests.Allocate(
    name="web2.example.com",
    disk_template="sharedfile",
    tags=(),
    os="tiny+default",
    vcpus=1,
    memory=1024,
    spindle_use=1,
    disks=[{"size": 10240, "mode": "rw"}],
    nics=[{"mac": "auto", "ip": None}],
    hypervisor="kvm",
)


def test_the_example_request_has_the_members_that_the_master_sends(example):
    sent = ASKED.to_dict()
    request = json.loads(example.read_text())["request"]
    assert set(request) == set(sent)
    assert request["disks"] == sent["disks"]


def test_the_master_accepts_the_answer_of_the_example_and_refuses_a_drained_node():
    start = clusters.snapshot(nodes=2)
    second = start.nodes[clusters.node_uuid(2)]
    state = clusters.changed(
        start, second.replace(drained=True, master_candidate=False)
    )
    answer = json.loads(_block("iallocator.rst", "answer"))
    checked = answer_checks.parse("example", answer, ASKED, state)
    assert checked.success
    assert checked.result == ["node1.example.com"]
    answer["result"] = ["node2.example.com"]
    with pytest.raises(errors.ResultValidationError, match="drained"):
        answer_checks.parse("example", answer, ASKED, state)


def _named(page):
    return set(re.findall(r"``([^`]+)``", (DOC / page).read_text()))


def test_each_type_of_request_has_a_section_with_its_members():
    text = (DOC / "iallocator.rst").read_text()
    samples = (
        requests.Relocate("i", ["n"], 1),
        requests.AllocateSecondary("i"),
        requests.NodeEvacuate(["i"], "all"),
        requests.ChangeGroup(["i"], ["g"]),
        requests.MultiAllocate([]),
        requests.Balance(5),
        requests.Capacity("file", [{"memory": 1, "disk": 1, "vcpus": 1}]),
    )
    assert len(samples) + 1 == len(requests.Request.__args__)
    for sample in samples:
        members = sample.to_dict()
        kind = members.pop("type")
        section = text.partition(f"\n{kind}\n~")[2].partition("\n~")[0]
        assert set(members) <= set(re.findall(r"``([\w-]+)``", section)), kind
    assert builtin.NAME in text


# Hooks
def _hook_entries():
    text = (DOC / "hooks.rst").read_text()
    return {
        op: (hook, body)
        for hook, op, body in re.findall(
            r"^``([\w-]+)`` \(``(OP_\w+)``\)\n((?:   .*\n)+)", text, re.MULTILINE
        )
    }


def test_each_operation_with_hooks_has_an_entry_with_its_variables():
    entries = _hook_entries()
    offered = {op: unit for op, unit in unit_table.UNITS.items() if unit.HOOKS_PATH}
    assert set(entries) == set(offered)
    table = {row["op"]: row for row in HOOKS["operations"]}
    for op, (hook, body) in entries.items():
        assert hook == offered[op].HOOKS_PATH == table[op]["hook"]
        variables = " ".join(body.split()).partition("Variables: ")[2]
        listed = re.findall(r"``([^`]+)``", re.split(r"\.(?:\s|$)", variables)[0])
        expected = [re.sub(r" \(.*", "", name) for name in table[op]["env"]]
        if "INSTANCE_ENV" in expected:
            expected.remove("INSTANCE_ENV")
            assert "the instance variables" in variables, op
        if "NETWORK_ENV" in expected:
            expected.remove("NETWORK_ENV")
            assert "the network variables" in variables, op
        assert sorted(listed) == sorted(expected), op


def test_common_and_instance_variables_of_hooks_are_described():
    named = _named("hooks.rst")
    common = {row["var"].removeprefix("GANETI_") for row in HOOKS["common_env"]}
    assert common <= named
    expected_network = {row["var"] for row in HOOKS["network_env"]} - {"(all)"}
    assert expected_network <= named
    absent = ("_VG", "_PROVIDER", "NODE", "MINOR", "_PORT", "_ID")
    expected = {
        row["var"]
        for row in HOOKS["instance_env"]
        if not any(part in row["var"] for part in absent)
    }
    assert expected <= named


# The OS interface
def _os_variables():
    text = (DOC / "os-interface.rst").read_text()
    return set(re.findall(r"``([A-Z][A-Z_n]+(?:<parameter>)?)``", text))


def test_each_variable_of_os_scripts_is_described():
    source = pathlib.Path(os_definitions.__file__).read_text()
    keys = set(re.findall(r'"([A-Z][A-Z_]+)":', source))
    keys |= set(re.findall(r'values\["([A-Z_]+)"\]', source))
    core = {key for key in keys if key.startswith(("OS_", "INSTANCE_"))}
    core |= keys & {"DEBUG_LEVEL", "PATH", "HYPERVISOR", "DISK_COUNT", "NIC_COUNT"}
    core |= keys & {"GANETI_TOOLS_DIR"}
    described = _os_variables()
    assert core <= described
    for key in keys - core:
        assert described & {f"DISK_n_{key}", f"NIC_n_{key}"}, key


def test_files_and_scripts_of_the_shipped_os_are_described():
    named = _named("os-interface.rst")
    tiny = TOP / "tools" / "os" / "tiny"
    scripts = {n for n in vars(os_constants) if n.startswith("OS_SCRIPT_")}
    assert {getattr(os_constants, name) for name in scripts} <= named
    assert {str(version) for version in os_constants.OS_API_VERSIONS} <= named
    texts = ("ganeti_api_version", "variants.list", "parameters.list")
    assert all((tiny / name).is_file() for name in texts)
    assert set(texts) <= named
    page = (DOC / "os-interface.rst").read_text()
    for name in texts:
        for line in (tiny / name).read_text().splitlines():
            assert f"\n      {line}\n" in page, (name, line)


# Security
def test_modes_of_files_are_those_that_daemons_correct():
    page = (DOC / "security.rst").read_text()
    rows = dict(re.findall(r"^``([^`]+)`` +(0\d{3}) ", page, re.MULTILINE))
    #: Formats of other implementations, which this one does not write.
    foreign = {"config.data", "watcher.pause"}
    for name, mode in ensure_dirs._DATA_FILES:
        if name not in foreign:
            assert int(rows[name], 8) == mode, name
    assert int(rows["store.db"], 8) == ensure_dirs._STORE_MODE
    assert int(rows["ssconf_*"], 8) == ensure_dirs._SSCONF_MODE
    assert int(rows["/var/log/ganeti/*.log"], 8) == ensure_dirs._LOG_MODE


def test_ports_and_ciphers_of_the_security_page_are_those_in_use():
    page = (DOC / "security.rst").read_text()
    firewall = page.partition("\nFirewall\n")[2].partition("\nChecklist\n")[0]
    migration = hvparams.HYPERVISOR["kvm"]["migration_port"].default
    consoles = f"11000 to {disks.LAST_DRBD_PORT}"
    for port in (daemons.DAEMONS["ganeti-noded"].port, migration, consoles):
        assert f"\nTCP {port} " in firewall
    assert f"``{limits.CIPHERS}``" in page
    assert f"{x509.KEY_BITS} bits" in page
    assert x509.VALIDITY_DAYS == 5 * 365
    assert "valid for five years" in " ".join(page.split())


# LUXI
def test_each_method_of_the_master_is_described_and_no_other():

    text = (DOC / "luxi.rst").read_text()
    entries = set()
    for line in re.findall(r"^``[A-Z]\w+``.*$", text, re.MULTILINE):
        entries |= set(re.findall(r"``([A-Z]\w+)``", line))
    assert entries == set(calls.METHODS)


def test_the_number_of_arguments_of_each_method_is_described():
    text = (DOC / "luxi.rst").read_text()
    for name, described in re.findall(
        r"^``([A-Z]\w+)`` \[([^\]]*)\]$", text, re.MULTILINE
    ):
        fields = calls.METHODS[name].arguments.__struct_fields__
        count = len(described.split(",")) if described else 0
        assert count == len(fields), name


def test_the_client_of_the_example_works(tmp_path):
    text = (DOC / "luxi.rst").read_text().partition("A client in Python")[2]
    code = re.sub(r"^   ", "", text.partition("::\n")[2], flags=re.MULTILINE)
    code = code.partition("job = ")[0]
    names = {}
    exec(compile(code, "luxi.rst", "exec"), names)
    path = str(tmp_path / "query")

    def handle(call):
        if call.method == "Fly":
            call.reject("Failed to parse request")
        else:
            call.succeed([call.method, *call.args])

    server = Server(handle, [path], clock=SystemClock())
    server.start()
    try:
        assert names["call"]("Echo", 1, ["a"], path=path) == ["Echo", 1, ["a"]]
        with pytest.raises(RuntimeError, match="Failed to parse"):
            names["call"]("Fly", path=path)
    finally:
        server.stop()


# The JSON Schemas in doc/schema are those that the tables give.

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
