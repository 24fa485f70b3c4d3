"""Conditions of opcodes: serials that objects must still have."""

import pytest

from fakes import clusters
from ganeti.decisions.jobs.serials import conflict
from ganeti.model import opcodes
from ganeti.model.objects import CLUSTER_KEY

DISK = clusters.instance_uuid(99)
SNAPSHOT = clusters.snapshot(
    instances=1, extra=[clusters.network(serial_no=5), clusters.group(serial_no=4)]
)
CLUSTER = SNAPSHOT.table("cluster")[CLUSTER_KEY]
STATES = {
    "cluster " + CLUSTER.uuid: (CLUSTER.uuid, CLUSTER.serial_no),
    "instance inst1.example.com": (clusters.instance_uuid(1), 1),
    "network lan": (clusters.NETWORK, 5),
    "node group default": (clusters.GROUP, 4),
}


def delay(**condition):
    return opcodes.TestDelay(duration=0.0, if_serial=condition or None)


@pytest.mark.parametrize("subject", sorted(STATES))
def test_another_serial_of_any_object_is_a_conflict(subject):
    uuid, serial = STATES[subject]
    assert conflict(SNAPSHOT, delay(**{uuid: serial})) == ""
    for wanted in (serial - 1, serial + 1):
        assert conflict(SNAPSHOT, delay(**{uuid: wanted})) == (
            f"{subject}: was changed since it was read: wanted serial {wanted},"
            f" found {serial}"
        )


def test_without_a_condition_nothing_is_compared():
    assert conflict(SNAPSHOT, delay()) == ""
    assert conflict(SNAPSHOT, opcodes.TestDelay(duration=0.0, if_serial={})) == ""


def test_all_conditions_must_hold():
    held = {clusters.GROUP: 4, clusters.NETWORK: 5}
    assert conflict(SNAPSHOT, delay(**held)) == ""
    assert "network lan" in conflict(SNAPSHOT, delay(**held | {clusters.NETWORK: 4}))


@pytest.mark.parametrize("uuid", [DISK, "", "default", "../x"])
def test_an_object_that_is_gone_is_a_conflict(uuid):
    assert conflict(SNAPSHOT, delay(**{uuid: 1})) == (
        f"{uuid}: no object has this UUID, wanted one with serial 1"
    )


def test_the_text_has_the_present_values_of_what_would_change():
    op = opcodes.GroupSetParams(
        group_name="default",
        alloc_policy="unallocable",
        ndparams={"oob_program": "/bin/x", "spindle_count": 3},
        if_serial={clusters.GROUP: 1},
    )
    policy = SNAPSHOT.nodegroups[clusters.GROUP].alloc_policy
    assert conflict(SNAPSHOT, op).endswith(
        f'found 4; alloc_policy is "{policy}"; ndparams is {{}}'
    )


def test_the_text_has_no_secrets():
    secret = {"a": "secret"}
    start = clusters.snapshot(
        extra=[clusters.instance(1, osparams_private=secret, serial_no=2)]
    )
    op = opcodes.InstanceSetParams(
        instance_name="inst1.example.com",
        osparams_private=secret | {"a": "other"},
        osparams={"b": "new"},
        if_serial={clusters.instance_uuid(1): 1},
    )
    text = conflict(start, op)
    assert text.endswith("found 2; osparams is {}")
