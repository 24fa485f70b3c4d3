"""Tags: reading, searching, changing."""

import pytest

from fakes import clusters
from fakes.engine import Engine
from ganeti.base import errors
from ganeti.master.locking import Level

N1 = clusters.node_uuid(1)


def tag(op, *tags, kind="node", name="node1"):
    return {"OP_ID": f"OP_TAGS_{op}", "kind": kind, "name": name, "tags": list(tags)}


@pytest.mark.parametrize(
    ("kind", "name", "level", "lock"),
    [
        ("cluster", None, None, None),
        ("node", "node2", Level.NODE, clusters.node_uuid(2)),
        ("instance", "inst1", Level.INSTANCE, "inst1.example.com"),
        ("nodegroup", "default", Level.NODEGROUP, clusters.GROUP),
    ],
)
def test_tags_can_be_set_read_and_removed_under_the_objects_lock(
    kind, name, level, lock
):
    engine = Engine(clusters.snapshot(instances=1))
    engine.run(tag("SET", "b", "a:1", kind=kind, name=name))
    expected = {} if level is None else {level: (frozenset([lock]), False)}
    assert engine.locks.modes() == expected
    get = {"OP_ID": "OP_TAGS_GET", "kind": kind, "name": name}
    assert engine.run(get) == ["a:1", "b"]
    assert engine.locks.modes() == {}
    shared = {} if level is None else {level: (frozenset([lock]), True)}
    assert engine.run(get | {"use_locking": True}) == ["a:1", "b"]
    assert engine.locks.modes() == shared
    engine.run(tag("DEL", "b", kind=kind, name=name))
    assert engine.run(get) == ["a:1"]


def test_setting_a_tag_twice_is_fine_and_removing_a_missing_one_is_not():
    engine = Engine()
    engine.run(tag("SET", "a"))
    engine.run(tag("SET", "a"))
    before = engine.snapshot
    with pytest.raises(errors.OpPrereqError, match="not found: b") as info:
        engine.run(tag("DEL", "a", "b"))
    assert info.value.args[1] == "unknown_entity"
    assert engine.snapshot is before


@pytest.mark.parametrize("bad", ["", "x" * 129, "white space", "semi;colon", "ä/ö?"])
def test_invalid_tags_are_refused(bad):
    with pytest.raises(errors.TagError):
        Engine().run(tag("SET", bad))


def test_an_object_has_at_most_4096_tags():
    engine = Engine()
    engine.run(tag("SET", *(f"t{n}" for n in range(4096))))
    with pytest.raises(errors.TagError, match="too many tags"):
        engine.run(tag("SET", "one-more"))


def test_names_are_for_everything_but_the_cluster():
    with pytest.raises(errors.OpPrereqError, match="wanted no name"):
        Engine().run(tag("SET", "a", kind="cluster", name="x"))
    with pytest.raises(errors.OpPrereqError, match="wanted a name"):
        Engine().run(tag("SET", "a", kind="node", name=None))


def test_search_finds_all_kinds_of_objects_by_documented_paths():
    engine = Engine(clusters.snapshot(nodes=1, instances=1))
    for kind, name in (
        ("cluster", None),
        ("node", "node1"),
        ("instance", "inst1"),
        ("nodegroup", "default"),
    ):
        engine.run(tag("SET", f"own:{kind}", "other", kind=kind, name=name))
    actual = engine.run({"OP_ID": "OP_TAGS_SEARCH", "pattern": "^own"})
    assert actual == [
        ("/cluster", "own:cluster"),
        ("/instances/inst1.example.com", "own:instance"),
        ("/nodegroup/default", "own:nodegroup"),
        ("/nodes/node1.example.com", "own:node"),
    ]
    with pytest.raises(
        errors.OpPrereqError, match=r"pattern: regular expression .*: missing"
    ):
        engine.run({"OP_ID": "OP_TAGS_SEARCH", "pattern": "("})
