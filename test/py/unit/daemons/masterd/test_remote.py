"""Calls that the socket of the remote API accepts, and results that it shows."""

import types

import msgspec
import pytest

from ganeti.base import errors
from ganeti.daemons.masterd import remote

REASON = ["gnt:daemon:rapi", "user ann, address 192.0.2.1, request 0123456789ab", 7]
SHOWN = ["gnt:daemon:rapi", "request 0123456789ab", 7]


def check(method, *args):
    remote.check(types.SimpleNamespace(method=method, args=list(args)))


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
    text = remote.without_requesters(msgspec.json.encode(value))
    assert msgspec.json.decode(text) == [
        {"ops": [{"reason": [*others, SHOWN]}]},
        SHOWN,
        "user ann",
    ]


def test_other_results_stay_as_they_are():
    text = msgspec.json.encode(["user ann, address x, request 0", {"a": [1]}])
    assert remote.without_requesters(text) is text
