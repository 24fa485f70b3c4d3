"""Answers of the built-in allocator, kind by kind."""

import json
from typing import Any

import pytest

from fakes import placement
from ganeti.base import errors
from ganeti.decisions.htools.hail import answer
from ganeti.decisions.htools.model.cluster import DataError
from ganeti.master import iallocator
from ganeti.master.iallocator import answer_checks

FOUR = {f"n{k}": placement.node() for k in range(1, 5)}


def solve(data: Any, **options: Any) -> dict[str, Any]:
    return answer.solve(data, answer.SolverOptions(**options)).answer


def test_the_last_of_equal_places_wins() -> None:
    result = solve(placement.request(FOUR, placement.allocation("plain")))
    assert result["success"]
    assert result["result"] == ["n4"]
    assert result["info"].startswith(
        "Request successful: Selected group: group0, Group group0 (preferred): score: "
    )
    assert result["info"].endswith("successes 4, failures 0 () for node(s) n4")


def test_a_loaded_node_is_avoided() -> None:
    there = {"i": placement.instance("plain", nodes=["n4"], memory=8192)}
    result = solve(placement.request(FOUR, placement.allocation("plain"), there))
    assert result["result"] == ["n3"]


def test_two_different_nodes_for_mirrored_disks() -> None:
    result = solve(placement.request(FOUR, placement.allocation()))
    assert len(set(result["result"])) == 2


def test_offline_and_drained_nodes_take_nothing() -> None:
    nodes = dict(FOUR, n4=placement.node(offline=True), n3=placement.node(drained=True))
    result = solve(placement.request(nodes, placement.allocation("plain")))
    assert result["result"] == ["n2"]


def test_the_only_allowed_nodes_are_used() -> None:
    asked = placement.allocation("plain", **{"restrict-to-nodes": ["n1", "n2"]})
    assert solve(placement.request(FOUR, asked))["result"] == ["n2"]
    result = solve(placement.request(FOUR, asked), restrict_to=["n3"])
    assert result["result"] == ["n3"]


def test_a_named_group_is_used_even_if_unallocable() -> None:
    nodes = dict(FOUR, m1=placement.node("g-1"), m2=placement.node("g-1"))
    asked = placement.allocation("plain", group_name="group1")
    data = placement.request(nodes, asked, groups=2)
    data["nodegroups"]["g-1"]["alloc_policy"] = "unallocable"
    assert solve(data)["result"] == ["m2"]
    data["request"] = placement.allocation("plain")
    assert solve(data)["result"][0].startswith("n")


def test_preferred_groups_come_before_last_resorts() -> None:
    nodes = dict(FOUR, m1=placement.node("g-1"), m2=placement.node("g-1"))
    data = placement.request(nodes, placement.allocation("plain"), groups=2)
    data["nodegroups"]["g-0"]["alloc_policy"] = "last_resort"
    assert solve(data)["result"] in (["m1"], ["m2"])


def test_groups_without_the_network_are_left_out() -> None:
    nodes = dict(FOUR, m1=placement.node("g-1"), m2=placement.node("g-1"))
    asked = placement.allocation("plain", nics=[{"network": "blue"}])
    data = placement.request(nodes, asked, groups=2)
    data["nodegroups"]["g-1"]["networks"] = ["blue"]
    result = solve(data)
    assert result["result"] in (["m1"], ["m2"])
    assert "group group0 is not connected to a network" in result["info"]


def test_refusals_are_data() -> None:
    asked = placement.allocation("plain", memory=20000)
    result = answer.solve(placement.request(FOUR, asked), answer.SolverOptions())
    assert not result.answer["success"]
    assert result.answer["result"] == []
    assert "FailMem: 4" in result.answer["info"]
    (first, *_rest) = result.explanation()[0].reasons
    assert (first.node, first.kind) == ("n1", "FailMem")
    assert (first.check, first.relation) == ("free memory", "more than")
    assert (first.wanted, first.actual, first.unit) == (20000, 16384 - 1024, "MiB")


def test_policies_are_kept() -> None:
    asked = placement.allocation("plain", vcpus=9)
    assert "FailCPU: 4" in solve(placement.request(FOUR, asked))["info"]


def test_the_cluster_survives_the_loss_of_any_node() -> None:
    pair = {"n1": placement.node(), "n2": placement.node()}
    there = {"i": placement.instance("sharedfile", nodes=["n1"], memory=10000)}
    asked = placement.allocation("sharedfile", memory=10000)
    data = placement.request(pair, asked, there)
    assert "FailN1" in solve(data)["info"]
    assert solve(data, capacity_checks=False)["result"] == ["n2"]


def test_several_instances_see_each_other() -> None:
    many = {
        "type": "multi-allocate",
        "instances": [placement.allocation("plain", f"v{k}") for k in range(4)],
    }
    placed, failed = solve(placement.request(FOUR, many))["result"]
    assert failed == []
    assert sorted(nodes[0] for _name, nodes in placed) == ["n1", "n2", "n3", "n4"]


def test_what_has_no_place_among_several_is_named() -> None:
    big = placement.allocation("plain", "big", memory=20000)
    many = {
        "type": "multi-allocate",
        "instances": [big, placement.allocation("plain", "small")],
    }
    result = solve(placement.request(FOUR, many))
    assert result["success"]
    assert result["result"] == [[["small", ["n4"]]], ["big"]]


def mirrored() -> dict[str, Any]:
    return {"i": placement.instance(nodes=["n1", "n2"])}


def test_relocation_changes_the_secondary() -> None:
    asked = {
        "type": "relocate",
        "name": "i",
        "required_nodes": 1,
        "relocate_from": ["n2"],
    }
    result = solve(placement.request(FOUR, asked, mirrored()))
    assert result["info"] == "Request successful: success"
    assert result["result"] == ["n4"]


@pytest.mark.parametrize(
    ("mode", "ops"),
    [
        ("primary-only", ["OP_INSTANCE_MIGRATE"]),
        ("secondary-only", ["OP_INSTANCE_REPLACE_DISKS"]),
        (
            "all",
            [
                "OP_INSTANCE_REPLACE_DISKS",
                "OP_INSTANCE_MIGRATE",
                "OP_INSTANCE_REPLACE_DISKS",
            ],
        ),
    ],
)
def test_evacuation_of_mirrored_instances(mode: str, ops: list[str]) -> None:
    asked = {"type": "node-evacuate", "instances": ["i"], "evac_mode": mode}
    data = placement.request(FOUR, asked, mirrored())
    (((_name, group, nodes),), failed, (job,)) = solve(data)["result"]
    assert (group, failed) == ("group0", [])
    assert [op["OP_ID"] for op in job] == ops
    left = {"primary-only": "n1", "secondary-only": "n2", "all": "n1"}[mode]
    assert nodes[0] != left if mode != "secondary-only" else nodes[1] != left
    if mode == "all":
        assert not {"n1", "n2"} & set(nodes)


@pytest.mark.parametrize(
    ("state", "migrates", "count"),
    [("up", True, 1), ("up", False, 0), ("down", False, 1)],
)
def test_balancing_leaves_guests_that_cannot_migrate(
    state: str, migrates: bool, count: int
) -> None:
    """They would be failed over, which stops them."""
    item = placement.instance(nodes=["n1", "n2"], memory=4096, admin_state=state)
    there = {f"i{k}": item | {"migrates": migrates} for k in range(3)}
    data = placement.request(FOUR, {"type": "balance", "max_moves": 1}, there)
    moved, _failed, _jobs = solve(data)["result"]
    assert len(moved) == count


def test_evacuation_lets_what_cannot_migrate_fail_over() -> None:
    there = {"i": placement.instance(nodes=["n1", "n2"], migrates=False)}
    asked = {"type": "node-evacuate", "instances": ["i"], "evac_mode": "primary-only"}
    ((job,),) = [solve(placement.request(FOUR, asked, there))["result"][2]]
    assert [(op["OP_ID"], op["allow_failover"]) for op in job] == [
        ("OP_INSTANCE_MIGRATE", True)
    ]


def test_shared_storage_moves_and_local_files_do_not() -> None:
    there = {
        "s": placement.instance("sharedfile", nodes=["n1"]),
        "f": placement.instance("file", nodes=["n1"]),
    }
    asked = {
        "type": "node-evacuate",
        "instances": ["s", "f"],
        "evac_mode": "primary-only",
    }
    moved, failed, jobs = solve(placement.request(FOUR, asked, there))["result"]
    assert moved == [["s", "group0", ["n4"]]]
    assert failed == [["f", "Instances of type file cannot be relocated"]]
    assert jobs[0][0]["target_node"] == "n4"


def test_another_group_is_found() -> None:
    nodes = dict(FOUR, m1=placement.node("g-1"), m2=placement.node("g-1"))
    asked = {"type": "change-group", "instances": ["i"], "target_groups": []}
    data = placement.request(nodes, asked, mirrored(), groups=2)
    ((_name, group, places),) = solve(data)["result"][0]
    assert group == "group1"
    assert sorted(places) == ["m1", "m2"]


def test_a_secondary_for_an_unmirrored_instance() -> None:
    there = {"p": placement.instance("plain", nodes=["n4"])}
    asked = {"type": "allocate-secondary", "name": "p"}
    assert solve(placement.request(FOUR, asked, there))["result"] == "n3"


def test_exclusive_storage_keeps_room_for_the_sizes_sold() -> None:
    own = {"spindle_count": 4, "exclusive_storage": True}
    nodes = {
        name: placement.node(
            ndparams=own, total_spindles=4, free_spindles=free, free_disk=disk
        )
        for name, free, disk in (("n1", 4, 200000), ("n2", 1, 150000))
    }
    disks = [{"size": 4096, "mode": "rw", "spindles": 1}]
    asked = placement.allocation("plain", disks=disks)
    result = solve(placement.request(nodes, asked))
    assert result["result"] == ["n2"], result
    assert "score: ([1],145904)" in result["info"]


def test_exclusion_tags_keep_instances_apart() -> None:
    there = {
        f"i{k}": placement.instance("plain", nodes=[f"n{k}"], tags=["web:x"])
        for k in (2, 3, 4)
    }
    asked = placement.allocation("plain", tags=["web:x"])
    data = placement.request(FOUR, asked, there)
    data["cluster_tags"] = ["htools:iextags:web"]
    result = solve(data)
    assert result["result"] == ["n1"]
    assert "FailTags: 3" in result["info"]


# The allocator mode ``capacity``: strict requests, honest answers.

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
