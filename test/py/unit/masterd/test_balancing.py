"""Checks of the arguments of balancing, before anything is planned."""

import types

import pytest

from fakes import clusters
from ganeti import errors
from ganeti.constants import ecodes
from ganeti.masterd import balancing


def deps(submitted):
    """Return the part of a master that the method needs."""
    snapshot = clusters.snapshot()
    planning = types.SimpleNamespace(submit=lambda *args: submitted.append(args))
    config = types.SimpleNamespace(snapshot=lambda: snapshot)
    return types.SimpleNamespace(config=config, planning=planning)


def test_a_group_is_known_by_its_uuid_too() -> None:
    submitted = []
    wanted = balancing.BalanceRequest(group=clusters.GROUP, allocator="mine")
    balancing.plan_balance(deps(submitted), wanted)
    ((_make, _deps, request),) = submitted
    assert (request.group, request.allocator) == ("default", "mine")


def test_an_unknown_group_is_refused_at_once() -> None:
    submitted = []
    with pytest.raises(errors.OpPrereqError, match="'nowhere'") as caught:
        balancing.plan_balance(
            deps(submitted), balancing.BalanceRequest(group="nowhere")
        )
    assert caught.value.args[1] == ecodes.ECODE_NOENT
    assert submitted == []
