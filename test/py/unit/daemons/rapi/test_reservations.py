"""Requests of the remote API about reservations."""

import pytest

from ganeti.daemons.rapi import problems, requests
from ganeti.daemons.rapi.model import Request
from ganeti.daemons.rapi.resources import resource_table as resources
from ganeti.daemons.rapi.rights import access
from ganeti.model import opcodes

TABLE = {(each.path, each.method): each for each in resources.RESOURCES}
POST = TABLE["/2/instances", "POST"]
COMMIT = TABLE["/2/instances/[instance_name]/create", "POST"]
UUID = "3f1d0b9a-2c8e-4b43-9d4e-0f5b6f3c8a11"


def op_of(resource, body, **path):
    (wire,) = requests.job_of(resource, Request(path=path, args={}, body=body))
    return opcodes.decode(wire)


def test_a_reservation_needs_no_parameter():
    op = op_of(POST, {"__version__": 1, "forthcoming": True})
    assert (op.instance_name, op.disks, op.nics, op.mode) == ("", [], [], "create")


@pytest.mark.parametrize(
    "body",
    [
        {"__version__": 1},
        {"__version__": 1, "forthcoming": False},
        {"forthcoming": True},
        {"__version__": 1, "forthcoming": True, "expires": -1},
        {"__version__": 1, "forthcoming": True, "reservation_priority": "urgent"},
        {"__version__": 1, "forthcoming": True, "request_key": "a b"},
    ],
)
def test_other_bodies_are_refused(body):
    with pytest.raises(problems.Refused) as caught:
        op_of(POST, body)
    assert caught.value.status == 400


@pytest.mark.parametrize("body", [None, {}, {"__version__": 1, "os": "tiny"}])
def test_the_creation_takes_the_name_of_the_path(body):
    op = op_of(COMMIT, body, instance_name=UUID)
    assert (op.commit, op.instance_name) == (True, UUID)
    assert op.os_type == (body or {}).get("os")


def test_the_right_for_a_pattern_of_names_does_not_cover_a_nameless_one():
    wire = {"OP_ID": "OP_INSTANCE_CREATE", "forthcoming": True}
    assert access.paths_of("/2/instances", [wire]) == ["/2/instances/"]
