"""The fake nodes of tests refuse unknown calls and answer as real nodes do."""

import types
from typing import get_origin, get_type_hints

import pytest

from fakes import clusters
from fakes.rpc import SUCCESSFUL_ACTS, FakeRunner, Unscripted
from ganeti.node import calls as backend
from ganeti.node.calls.registry import PROCEDURES, LastAnswer


def test_a_call_that_no_script_answers_fails_the_test():
    runner = FakeRunner(lambda: clusters.snapshot(nodes=1))
    with pytest.raises(Unscripted, match="instance_start"):
        runner.call("instance_start", [clusters.node_uuid(1)], [{}, False, []])


@pytest.mark.parametrize("name", sorted(SUCCESSFUL_ACTS))
def test_a_successful_act_has_an_answer_of_the_real_type(name):
    backend.load()
    actual = get_type_hints(PROCEDURES[name].function)["return"]
    answer = SUCCESSFUL_ACTS[name]
    if actual is LastAnswer or actual is types.NoneType:
        assert answer is None
    else:
        assert isinstance(answer, get_origin(actual) or actual)
