"""The allocator mode ``capacity``: strict requests, honest answers."""

import json

import pytest

from fakes import placement
from ganeti.base import errors
from ganeti.decisions.htools.hail import answer
from ganeti.decisions.htools.model.cluster import DataError
from ganeti.master import iallocator
from ganeti.master.iallocator import answer_checks

SIZE = {"memory": 1024, "disk": 4096, "vcpus": 1}


def data(template: str = "drbd", **request) -> dict:
    actual = placement.some_cluster(3, template)
    asked = iallocator.Capacity(template, [SIZE]).to_dict()
    return actual | {"request": asked | request}


@pytest.mark.parametrize("template", ["drbd", "plain", "sharedfile"])
def test_the_answer_says_where_each_goes_and_why_there_is_no_more(template) -> None:
    solution = answer.solve(data(template), answer.SolverOptions())
    actual = json.loads(json.dumps(solution.answer))
    result = actual["result"]
    assert actual["success"]
    assert actual["info"] == f"Request successful: {result['count']} instances fit"
    assert result["count"] == len(result["instances"]) > 0
    assert result["stopped"]["why"] == "full"
    assert sum(result["stopped"]["failures"].values()) > 0
    checked = {reason["node"] for reason in result["stopped"]["reasons"]}
    assert checked == {node.name for node in solution.before.nodes}
    for row in result["instances"]:
        assert len(row["nodes"]) == (2 if template == "drbd" else 1)
        assert {key: row[key] for key in SIZE} == SIZE


def test_the_space_of_metadata_counts() -> None:
    solution = answer.solve(data(limit=2), answer.SolverOptions())
    assert [item.disk for item in solution.after.instances[-2:]] == [4224, 4224]
    assert solution.answer["result"]["stopped"]["why"] == "limit"


def test_sizes_may_shrink() -> None:
    large = SIZE | {"memory": 30000}
    actual = answer.solve(
        data(sizes=[large], tiered=True), answer.SolverOptions()
    ).answer
    sizes = [row["memory"] for row in actual["result"]["instances"]]
    assert sizes == sorted(sizes, reverse=True)
    assert 0 < sizes[0] <= 30000


def test_only_the_groups_that_are_named_take_instances() -> None:
    asked = data("plain")
    group = next(iter(asked["nodegroups"]))
    actual = answer.solve(
        asked | {"request": asked["request"] | {"groups": [group]}},
        answer.SolverOptions(),
    )
    members = {n for n, node in asked["nodes"].items() if node["group"] == group}
    rows = actual.answer["result"]["instances"]
    assert {name for row in rows for name in row["nodes"]} <= members


@pytest.mark.parametrize(
    ("change", "reported"),
    [
        ({"sizes": []}, "request: request.sizes: wanted at least one size, found []"),
        ({"sizes": [SIZE, SIZE]}, "request.sizes: wanted one size unless they shrink"),
        ({"sizes": [{"memory": 1}]}, "request.sizes[0].disk: wanted a value"),
        ({"required_nodes": 1}, "request.required_nodes: wanted 2 for drbd, found 1"),
        ({"groups": ["moon"]}, "request.groups: wanted names or uuids of node groups"),
        ({"disk_template": "tape"}, "request.disk_template: wanted one of"),
        ({"limit": -1}, "request.limit: wanted a number from 0, found -1"),
        ({"tiered": "yes"}, "request.tiered: wanted true or false"),
    ],
)
def test_bad_requests_are_named(change, reported) -> None:
    with pytest.raises(DataError) as caught:
        answer.solve(data(**change), answer.SolverOptions())
    assert reported in str(caught.value)


def parsed(result):
    from fakes import clusters

    request = iallocator.Capacity("drbd", [SIZE])
    actual = {"success": True, "info": "", "result": result}
    return answer_checks.parse("mine", actual, request, clusters.snapshot())


def row(*nodes):
    return SIZE | {"nodes": list(nodes)}


def test_an_external_allocator_need_not_say_why() -> None:
    from fakes import clusters

    one, two = (clusters.node(n).name for n in (1, 2))
    actual = parsed({"count": 1, "instances": [row(one, two)]}).result
    assert actual == {"count": 1, "instances": [row(one, two)], "stopped": None}


@pytest.mark.parametrize(
    ("result", "reported"),
    [
        ([], "result: wanted an object"),
        ({"count": 0}, "instances: wanted a list"),
        ({"count": 2, "instances": []}, "count: wanted 0, found 2"),
        ({"count": 1, "instances": [row("x", "y")]}, "nodes: wanted names of known"),
        ({"count": 1, "instances": [row("x")]}, "nodes: wanted 2 node names"),
        ({"count": 1, "instances": [{"nodes": []}]}, "objects with memory, disk"),
        ({"count": 0, "instances": [], "stopped": 3}, "stopped: wanted an object"),
    ],
)
def test_malformed_answers_are_refused(result, reported) -> None:
    with pytest.raises(errors.ResultValidationError) as caught:
        parsed(result)
    assert reported in str(caught.value)
