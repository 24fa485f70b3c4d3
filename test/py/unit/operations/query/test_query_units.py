"""Questions that are answered through a job."""

import pytest

from fakes import clusters
from fakes.engine import Engine
from ganeti.base import errors

ROWS = [
    ["tiny", "/os/tiny", True, "", ["small"], [["dns", "text"]], [20], False],
    ["old", "/os/old", False, "broken", [], [], [], False],
    ["secret", "/os/secret", True, "", [], [], [20], False],
]


def engine():
    return Engine(clusters.snapshot(hidden_os=["secret"]), {"os_diagnose": ROWS})


def diagnose(names=(), fields=("name",)):
    return {
        "OP_ID": "OP_OS_DIAGNOSE",
        "names": list(names),
        "output_fields": list(fields),
    }


def test_os_lists_show_what_can_be_used_unless_the_field_is_asked_for():
    assert engine().run(diagnose()) == [["tiny"]]
    assert engine().run(diagnose(fields=["name", "valid"])) == [
        ["old", False],
        ["tiny", True],
    ] or sorted(engine().run(diagnose(fields=["name", "valid"]))) == [
        ["old", False],
        ["tiny", True],
    ]
    actual = engine().run(diagnose(fields=["name", "hidden", "variants"]))
    assert sorted(actual) == [["secret", True, []], ["tiny", False, ["small"]]]
    assert engine().run(diagnose(["tiny"])) == [["tiny"]]
    with pytest.raises(errors.OpPrereqError, match="unknown fields: bogus"):
        engine().run(diagnose(fields=["bogus"]))


def test_jobs_answer_queries_about_oses_and_the_cluster_only():
    answer = engine().run({"OP_ID": "OP_QUERY", "what": "cluster", "fields": ["name"]})
    assert answer["data"] == [[(0, "cluster1.example.com")]]
    assert answer["fields"][0]["kind"] == "text"
    answer = engine().run(
        {
            "OP_ID": "OP_QUERY",
            "what": "os",
            "fields": ["name"],
            "qfilter": ["==", "name", "old"],
        }
    )
    assert [list(row[0]) for row in answer["data"]] == [[0, "old"]]
    with pytest.raises(errors.OpPrereqError, match="LUXI"):
        engine().run({"OP_ID": "OP_QUERY", "what": "node", "fields": ["name"]})


def test_fields_are_described_by_name_or_all():
    some = engine().run({"OP_ID": "OP_QUERY_FIELDS", "what": "os", "fields": ["name"]})
    assert [field["name"] for field in some["fields"]] == ["name"]
    every = engine().run({"OP_ID": "OP_QUERY_FIELDS", "what": "node"})
    assert "pinst_cnt" in {field["name"] for field in every["fields"]}


def test_single_values_of_the_cluster_come_in_the_order_asked_for():
    op = {
        "OP_ID": "OP_CLUSTER_CONFIG_QUERY",
        "output_fields": ["master_node", "drain_flag", "cluster_name"],
    }
    assert engine().run(op) == ["node1.example.com", False, "cluster1.example.com"]
    with pytest.raises(errors.OpPrereqError, match="unknown fields: x"):
        engine().run({**op, "output_fields": ["x"]})
