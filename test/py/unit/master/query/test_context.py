"""The context of a query: calls of nodes, shared values, and columns."""

import pytest

from fakes import clusters
from fakes.rpc import FakeRunner, failure
from ganeti.base import errors
from ganeti.master import query
from ganeti.master.query import encoded, model
from ganeti.protocols.rpc import Result, calls

N1, N2, N3 = (clusters.node_uuid(n) for n in (1, 2, 3))


def context(script=None, **node_changes):
    start = clusters.snapshot(nodes=3)
    start = clusters.changed(start, start.nodes[N3].replace(**node_changes))
    nodes = None if script is None else FakeRunner(lambda: start, script)
    return model.QueryContext(query.Sources(start, nodes)), nodes


def test_online_nodes_are_called_once_each():
    ctx, nodes = context({"instance_list": lambda node, _args: [node]}, offline=True)
    answers = ctx.call([N2, N3, N1, N2], calls.instance_list(["kvm"], {}))
    assert [node for node, _args in nodes.called("instance_list")] == [N1, N2]
    assert {node: answer.payload for node, answer in answers.items()} == {
        N1: [N1],
        N2: [N2],
        N3: None,
    }
    offline = answers[N3]
    assert (offline.fail_msg, offline.offline) == ("offline", True)
    assert offline.node == "node3.example.com"
    assert list(answers) == [N1, N2, N3]


def test_answers_are_read_as_their_types():
    ctx, _nodes = context({"all_instances_info": {}})
    (answer,) = ctx.call([N1], calls.all_instances_info([], {})).values()
    assert answer.payload == {}
    ctx, _nodes = context({"instance_list": failure("dead")})
    (answer,) = ctx.call([N1], calls.instance_list([], {})).values()
    assert answer.fail_msg == "dead"


def test_without_a_connection_all_online_nodes_fail():
    ctx, _nodes = context(offline=True)
    answers = ctx.call([N1, N3], calls.instance_list([], {}))
    assert answers[N1].fail_msg == "no connection to nodes"
    assert not answers[N1].offline
    assert answers[N3].offline
    assert ctx.call([], calls.instance_list([], {})) == {}


def test_a_removed_node_has_its_uuid_as_name():
    ctx, _nodes = context()
    assert ctx.node_name(N1) == "node1.example.com"
    assert ctx.node_name("gone") == "gone"


def test_a_value_is_made_once_per_query():
    ctx, _nodes = context()
    made = []

    def make():
        made.append(1)
        return

    assert [ctx.once("a", make), ctx.once("a", make), ctx.once("b", make)] == [None] * 3
    assert len(made) == 2


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (model.normal(None), (0, None)),
        (model.maybe(5), (0, 5)),
        (model.maybe(0), (0, 0)),
        (model.maybe(None), (3, None)),
        (model.UNKNOWN, (1, None)),
        (model.NODATA, (2, None)),
        (model.UNAVAIL, (3, None)),
        (model.OFFLINE, (4, None)),
        (model.failed_cell(None), (2, None)),
        (model.failed_cell(Result("x", "n", fail_msg="y")), (2, None)),
        (model.failed_cell(Result("x", "n", fail_msg="y", offline=True)), (4, None)),
    ],
)
def test_cells_have_the_documented_status(cell, expected):
    assert cell == expected


def test_rows_with_the_key_of_others_share_their_cell():
    ctx, _nodes = context()
    asked, decided = [], []

    def decide(row):
        decided.append(row)
        return row[0]

    def bind(_context):
        def get(row):
            asked.append(row)
            return (0, row)

        return get

    rows = ["a1", "b1", "a2"]
    column = model.shared_column(bind, decide)
    assert list(column(ctx, rows)) == [(0, "a1"), (0, "b1"), (0, "a1")]
    assert sorted(asked) == ["a1", "b1"]
    # The keys are decided once for all columns of the query.
    assert list(column(ctx, rows)) == [(0, "a1"), (0, "b1"), (0, "a1")]
    assert decided == rows
    other, _nodes = context()
    assert list(column(other, ["a1", "a2"])) == [(0, "a1")] * 2


def test_a_column_of_parts_that_no_row_has_is_unavailable():
    ctx, _nodes = context()
    asked = []

    def bind(_context):
        return lambda row: asked.append(row) or (0, row)

    rows = [[1], [1, 2]]
    assert list(model.sparse_column(bind, len, 1)(ctx, rows)) == [
        (0, row) for row in rows
    ]
    assert list(model.sparse_column(bind, len, 2)(ctx, rows)) == [(3, None)] * 2
    assert asked == rows
    empty, _nodes = context()
    assert list(model.sparse_column(bind, len, 0)(empty, [])) == []


def test_a_field_that_is_defined_twice_is_refused():
    field = model.plain("a", "A", "text", "About", str, match="name")
    assert field.bind(None)(5) == (0, "5")
    assert (field.match, field.live, field.absent) == ("name", "", None)
    with pytest.raises(errors.ProgrammerError, match="query field a is defined twice"):
        model.by_name([field], [field])
    optional = model.optional("b", "B", "text", "About", lambda row: row, absent=7)
    assert [optional.bind(None)(value) for value in (5, None)] == [(0, 5), (3, None)]
    assert optional.absent == 7
    assert list(model.by_name([field], [optional])) == ["a", "b"]


def test_rows_come_in_natural_order_or_as_asked_for():
    start = clusters.snapshot(nodes=1, extra=[clusters.instance(n) for n in (10, 9, 2)])
    ctx = model.QueryContext(query.Sources(start))
    rows = model.rows_by_name("instances")
    names = ["inst2.example.com", "inst9.example.com", "inst10.example.com"]
    assert [row.name for row in rows(ctx, None)] == names
    asked = rows(ctx, ["inst10", "inst2.example.com"])
    assert [row.name for row in asked] == [names[2], names[0]]
    with pytest.raises(errors.OpPrereqError):
        rows(ctx, ["inst7"])


# Lists as text
def test_neighbours_are_encoded_together_and_live_fields_apart():
    instance = query.RESOURCES["instance"]
    runs = encoded._runs(instance, ["oper_ram", "name", "os", "oper_state", "uuid"])
    assert list(runs) == [
        (["oper_ram"], True),
        (["name", "os"], False),
        (["oper_state"], True),
        (["uuid"], False),
    ]
    assert list(encoded._runs(instance, ["name"])) == [(["name"], False)]


def test_resources_whose_texts_are_kept_have_states_for_all_their_sources():
    kept = [each for each in query.RESOURCES.values() if encoded.keeps(each)]
    assert [each.name for each in kept] == ["instance"]
    for resource in kept:
        assert set(resource.states) == set(resource.fetch)
