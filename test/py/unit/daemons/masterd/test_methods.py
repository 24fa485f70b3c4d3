"""The method table is the documented one."""

import gc
import json
import pathlib
import weakref
from types import SimpleNamespace

import msgspec
import pytest

from ganeti.daemons.masterd import service
from ganeti.daemons.masterd.methods import calls

SPEC = json.loads(
    (pathlib.Path(__file__).parents[4] / "data" / "spec" / "luxi.json").read_text()
)
#: Methods that Ganeti does not have.
OURS = {
    "CancelIncident",
    "ChangeMaintenance",
    "ChangeNodeDeaths",
    "FreezeAutomation",
    "NoteUserChange",
    "PlanBalance",
    "PlanJob",
    "QueryAutomation",
    "QueryCapacity",
    "QueryCopies",
    "QueryDiskName",
    "QueryJobWaits",
    "QueryJournal",
    "QueryMaintenance",
    "QueryMetrics",
    "QueryObjects",
    "QueryNodeDeaths",
    "RecordRound",
    "RemoveIncident",
    "ThawAutomation",
    "WaitForJobChanges",
}
ROWS = {row["method"]: row for row in SPEC["methods"]}


def test_all_documented_methods_are_there():
    assert service.METHOD_MODULES
    assert set(calls.METHODS) == set(ROWS) | OURS


@pytest.mark.parametrize("name", sorted(ROWS))
def test_methods_take_as_many_arguments_as_documented(name):
    fields = msgspec.structs.fields(calls.METHODS[name].arguments)
    assert len(fields) == len(ROWS[name]["args"])
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert([None] * (len(fields) + 1), calls.METHODS[name].arguments)


def test_cluster_info_has_the_documented_keys():
    from fakes import clusters
    from ganeti.master.query import cluster_info

    info = cluster_info.cluster_info(clusters.snapshot())
    documented = {row["key"] for row in SPEC["cluster_info"]}
    assert set(info) == documented | set(clusters.ADDED_KEYS)


class Kept(list):
    """A result that can be watched."""


def test_an_answered_call_leaves_its_result_to_nobody():
    from concurrent.futures import Future

    from ganeti.protocols.luxi import server

    sent = []
    owner = SimpleNamespace(
        warning_for=lambda _method: "", answer=lambda _call, data: sent.append(data)
    )
    request = server.Request("Query", [])
    for early in (True, False):
        future, result = Future(), Kept([1])
        watched = weakref.ref(result)
        call = server.Call(owner, SimpleNamespace(), request)
        if early:
            future.set_result(result)
        later = calls.Later(future, can_cancel=True)
        calls._answer_later(call, later, stalls=None)
        if not early:
            assert call.on_close is not None
            future.set_result(result)
        assert call.on_close is None
        gc.disable()
        try:
            del call, future, later, result
            assert watched() is None
        finally:
            gc.enable()
    assert sent == [b'{"success":true,"result":[1]}\x03'] * 2
