"""The table of resources against the documented one."""

import json
import pathlib
import re

import pytest

from ganeti.model import opcodes
from ganeti.protocols.rapi import model, row_parts
from ganeti.protocols.rapi import resource_table as resources

SPEC = json.loads(
    (pathlib.Path(__file__).parents[4] / "data/spec/rapi.json").read_text()
)
ROWS = {(row["uri"], row["method"]): row for row in SPEC["resources"]}
#: Resources of the design of reservations, which no release of Ganeti has.
DESIGNED = {
    ("/2/instances/[instance_name]/create", "POST"): {
        "access": ["write"],
        "opcode": "OP_INSTANCE_CREATE",
        "query": ["dry-run", "reason"],
        "renames": {"os": "os_type"},
    }
}
ROWS |= DESIGNED
TABLE = {(each.path, each.method): each for each in resources.RESOURCES}
#: How a row says that Ganeti does not have it.
NOT_IN_GANETI = "(not in Ganeti)"
OURS = {key for key, each in TABLE.items() if NOT_IN_GANETI in each.about}
JOBS = {key: each for key, each in TABLE.items() if each.job is not None}


def test_the_table_has_every_documented_resource_and_no_other():
    assert set(TABLE) == set(ROWS) | OURS
    assert len(resources.RESOURCES) == len(TABLE)


@pytest.mark.parametrize("key", sorted(set(TABLE) - OURS), ids=" ".join)
def test_access_arguments_and_opcode_are_the_documented_ones(key):
    row, mine = ROWS[key], TABLE[key]
    assert set(mine.access) == set(row["access"]) - {"none"}
    listed = {re.match(r"[\w-]+", text)[0] for text in row["query"]}
    allowed = {"reason"} if row.get("runs") == "luxi ReplaceFilter" else set()
    documented = [each for each in mine.arguments if NOT_IN_GANETI not in each.about]
    assert {each.name for each in documented} - allowed == listed
    assert (mine.job.op_id if mine.job else None) == row["opcode"]


@pytest.mark.parametrize("key", sorted(set(JOBS) - OURS), ids=" ".join)
def test_parameters_of_jobs_are_those_of_their_opcodes(key):
    row, job = ROWS[key], JOBS[key].job
    known = set(opcodes.OPCODES[job.op_id].__struct_fields__)
    assert set(job.renames) == set(row.get("renames", {}))
    assert dict(job.renames) == row.get("renames", {})
    # A setting that Ganeti does not have.
    forbidden = [n for n in job.forbidden if n != "rapi_require_authentication"]
    assert forbidden == row.get("forbidden", [])
    if not job.adapt:
        by_uri = {each.field for each in JOBS[key].arguments if each.field}
        fixed = {*job.path, *job.constants, *by_uri}
        assert fixed <= known
        wanted = {text.partition("=")[0] for text in row.get("fixed_params", ())}
        assert fixed == wanted


def test_flags_and_features_and_fields_are_the_documented_ones():
    assert [each["name"] for each in SPEC["features"]] == list(resources.FEATURES)
    listed = {each["object"]: tuple(each["fields"]) for each in SPEC["object_fields"]}
    assert listed == {
        "instance": row_parts.INSTANCE,
        "node": row_parts.NODE,
        "network": row_parts.NETWORK,
        "group": row_parts.GROUP,
        "filter": row_parts.FILTER,
        "job (bulk)": row_parts.JOB_IN_BULK,
        "job (single)": row_parts.JOB,
    }


@pytest.mark.parametrize(
    ("path", "wanted", "variables"),
    [
        ("/", "/", {}),
        ("/2/instances/web1.x/tags", "/2/instances/[instance_name]/tags", {"instance_name": "web1.x"}),
        ("/2/instances/wéb_1", "/2/instances/[instance_name]", {"instance_name": "wéb_1"}),
        ("/2/instances/a/disk/3/grow", "/2/instances/[instance_name]/disk/[disk_index]/grow", {"instance_name": "a", "disk_index": "3"}),
        ("/2/jobs/12", "/2/jobs/[job_id]", {"job_id": "12"}),
    ],
)  # fmt: skip
def test_a_path_is_found_with_its_variables(path, wanted, variables):
    actual = resources.find(path)
    assert actual is not None
    assert {each.path for each in actual.methods.values()} == {wanted}
    assert actual.variables == variables


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/3",
        "/2/",
        "//2",
        "/2/instances/",
        "/2/instances/a b",
        "/2/instances/a%2fb",
        "/2/instances/../nodes/a/x",
        "/2/instances/a\n",
        "/2/jobs/x",
        "/2/jobs/\u0661",
        "/2/jobs/1\n",
        "/2/instances/a/disk/x/grow",
        "/version/",
    ],
)
def test_other_paths_are_not_found(path):
    assert resources.find(path) is None


@pytest.mark.parametrize(
    ("path", "method", "name"),
    [
        ("/2/instances/[instance_name]/reboot", "POST", "instances_name_reboot"),
        ("/2/instances/[instance_name]/disk/[disk_index]/grow", "POST", "instances_name_disk_grow"),
        ("/2/groups/[group_name]/assign-nodes", "PUT", "groups_name_assign_nodes"),
        ("/2/tags", "PUT", "tags"),
        ("/2/redistribute-config", "PUT", "redistribute_config"),
    ],
)  # fmt: skip
def test_names_for_reasons_follow_the_path(path, method, name):
    assert TABLE[path, method].name == name


def test_rights_are_the_documented_words():
    assert (model.READ, model.WRITE) == ("read", "write")
