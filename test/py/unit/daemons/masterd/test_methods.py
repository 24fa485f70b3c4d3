"""The method table is the documented one, also for the socket of the remote API."""

import gc
import json
import pathlib
import types
import weakref
from types import SimpleNamespace

import msgspec
import pytest

from ganeti.base import errors
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
    "OpenConsole",
    "OpenSession",
    "PlanBalance",
    "PlanJob",
    "QueryAutomation",
    "QueryCapacity",
    "QueryCopies",
    "QueryDiskName",
    "QueryJobWaits",
    "QueryJournal",
    "QueryLivingSessions",
    "QueryMaintenance",
    "QueryMetrics",
    "QueryObjects",
    "QueryNodeDeaths",
    "QueryPage",
    "QuerySessions",
    "QueryStatus",
    "RecordRound",
    "RemoveIncident",
    "RevokeSessions",
    "Search",
    "ThawAutomation",
    "UseSession",
    "WaitForEvents",
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
    owner = SimpleNamespace(warning=str, answer=lambda _call, data: sent.append(data))
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


# Calls that the socket of the remote API accepts, and results that it shows.

REASON = ["gnt:daemon:rapi", "user ann, address 192.0.2.1, request 0123456789ab", 7]
SHOWN = ["gnt:daemon:rapi", "request 0123456789ab", 7]


def check(method, *args):
    service.check_remote(types.SimpleNamespace(method=method, args=list(args)))


@pytest.mark.parametrize("reason", [None, [], [["gnt:user", "x", 1]], "x", [7], [[]]])
def test_a_job_says_that_it_is_of_the_remote_api(reason):
    op = {"OP_ID": "OP_TAGS_SET", "reason": [["gnt:user", "x", 1], REASON]}
    check("SubmitJob", [op])
    with pytest.raises(errors.OpPrereqError, match="without a reason"):
        check("SubmitJob", [op, op | {"reason": reason}])


@pytest.mark.parametrize("name", ["ann", 'a"b', "a\\b", "\u00fc", "a,b", "request"])
def test_users_do_not_see_who_else_asked_and_from_where(name):
    hidden = [REASON[0], f"user {name}, address ::1, request 0123456789ab", 7]
    others = [["gnt:user", hidden[1], 1], ["x", '["gnt:daemon:rapi","user', 2]]
    value = [{"ops": [{"reason": [*others, hidden]}]}, hidden, "user ann"]
    text = service.without_requesters(msgspec.json.encode(value))
    assert msgspec.json.decode(text) == [
        {"ops": [{"reason": [*others, SHOWN]}]},
        SHOWN,
        "user ann",
    ]


def test_other_results_stay_as_they_are():
    text = msgspec.json.encode(["user ann, address x, request 0", {"a": [1]}])
    assert service.without_requesters(text) is text
