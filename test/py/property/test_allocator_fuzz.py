"""Whatever an allocator answers: a checked result or one error, never anything else."""

import copy
import json
import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fakes import allocators, clusters
from fakes.rpc import FakeRunner
from fakes.seeds import examples
from ganeti.base import errors
from ganeti.master import iallocator
from ganeti.master.iallocator import answer_checks

INSTANCE, NEW = "inst1.example.com", allocators.NEW
ALLOCATE = allocators.allocate()
OTHER = clusters.group(name="other", uuid="00000000-0000-4000-8000-0000000000b0")
APART = clusters.node(9, group=OTHER.uuid)
SNAPSHOT = clusters.snapshot(instances=2, extra=[OTHER, APART])
NODES = ["node1.example.com", "node2.example.com"]
MIGRATE = {"OP_ID": "OP_INSTANCE_MIGRATE", "instance_name": INSTANCE}
EVACUATION = [[[INSTANCE, "default", [NODES[1]]]], [], [[MIGRATE]]]
REQUESTS = {
    "allocate": ALLOCATE,
    "relocate": iallocator.Relocate(INSTANCE, NODES[:1], 0),
    "node-evacuate": iallocator.NodeEvacuate([INSTANCE], "primary-only"),
    "change-group": iallocator.ChangeGroup([INSTANCE], []),
    "multi-allocate": iallocator.MultiAllocate([ALLOCATE]),
}
VALID = {
    "allocate": NODES[1:],
    "relocate": NODES[1:],
    "node-evacuate": EVACUATION,
    "change-group": [[[INSTANCE, "other", [APART.name]]], [], [[MIGRATE]]],
    "multi-allocate": [[[NEW, NODES[1:]]], []],
}
MODES = st.sampled_from(sorted(REQUESTS))
WORDS = st.sampled_from(
    [*NODES, INSTANCE, NEW, "default", "OP_ID", "instance_name", "OP_CLUSTER_DESTROY"]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner),
    max_leaves=12,
)


def texts(result, success=True):
    return {"success": success, "info": "fine", "result": result}


def judge(mode, answer):
    """Return the checked answer, or None for a refused one."""
    try:
        return answer_checks.parse("mine", answer, REQUESTS[mode], SNAPSHOT)
    except errors.ResultValidationError as err:
        reported = str(err)
    assert reported.startswith("allocator mine: ")
    assert len(reported) < 1000
    return None


@pytest.mark.parametrize("mode", sorted(REQUESTS))
def test_the_valid_answers_are_valid(mode: str) -> None:
    assert judge(mode, texts(VALID[mode])).success


@settings(max_examples=examples(150), deadline=None)
@given(MODES, VALUES)
@example("multi-allocate", [[[[], []]], []])
@example("node-evacuate", [[], [], [[{"OP_ID": []}]]])
@example("node-evacuate", [[], [], [[dict(MIGRATE, instance_name="inst0.x")]]])
def test_any_result(mode: str, value: object) -> None:
    judge(mode, texts(value))
    judge(mode, value)


def places(value, path=()):
    """List the paths of all parts of a value."""
    actual = [path]
    if isinstance(value, dict):
        items = value.items()
    else:
        items = enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        actual += places(inner, (*path, key))
    return actual


def with_part(value, path, part):
    """Return a copy with one part exchanged."""
    if not path:
        return part
    out = copy.deepcopy(value)
    place = out
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = part
    return out


@settings(max_examples=examples(200), deadline=None)
@given(MODES, st.randoms(use_true_random=False), VALUES)
def test_valid_answers_with_one_part_exchanged(
    mode: str, dice: random.Random, part: object
) -> None:
    answer = texts(VALID[mode])
    path = dice.choice(places(answer))
    actual = judge(mode, with_part(answer, path, part))
    if (
        actual is not None
        and actual.success
        and mode in ("node-evacuate", "change-group")
    ):
        for op in (op for job in actual.result.jobs for op in job):
            assert op.instance_name == INSTANCE


@settings(max_examples=examples(60), deadline=None)
@given(st.text() | st.binary().map(lambda data: data.decode(errors="replace")))
@example("[" * 200000)
@example('{"success": true')
@example('{"success": 1e999}')
def test_any_output_of_the_program(output: str) -> None:
    script = {
        "node_info": ["boot", [], [{"memory_free": 4000}]],
        "all_instances_info": {},
        "iallocator_runner": output,
    }
    runner = FakeRunner(lambda: SNAPSHOT, script)
    with pytest.raises(errors.GenericError, match="allocator mine: ") as caught:
        iallocator.run(runner, SNAPSHOT, "mine", ALLOCATE)
    assert json.dumps(caught.value.args)
