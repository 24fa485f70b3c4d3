"""A mirrored instance moves only to a node that has all of its data."""

import pytest

from fakes import clusters
from fakes.engine import Engine
from fakes.rpc import SUCCESSFUL_ACTS
from ganeti.base import errors

N1, N2 = clusters.node_uuid(1), clusters.node_uuid(2)
NAME = "inst1.example.com"
COMPLETE, FAULTY = 1, 3


def state(*, ldisk=COMPLETE, is_degraded=False, path="/dev/drbd0"):
    return {
        "dev_path": path,
        "major": 147,
        "minor": 0,
        "sync_percent": None,
        "estimated_time": None,
        "is_degraded": is_degraded,
        "ldisk_status": ldisk,
    }


def engine(row, *, source_offline=False):
    """Return a cluster on whose second node the disk has this state."""
    disk = clusters.drbd_disk("d0", 1, 2)
    start = clusters.snapshot(
        nodes=2,
        extra=[disk, clusters.instance(1, disks=[disk.uuid], admin_state="down")],
        volume_group_name="xenvg",
    )
    if source_offline:
        start = clusters.changed(start, start.nodes[N1].replace(offline=True))
    return Engine(
        start,
        {
            **SUCCESSFUL_ACTS,
            "blockdev_getmirrorstatus_multi": lambda node, _args: (
                [[True, row]] if node == N2 else [[True, state()]]
            ),
            "blockdev_assemble": ["/dev/drbd0", "/link", None],
            "hooks_runner": [],
            "instance_info": {},
        },
    )


def move(eng, kind, **changes):
    eng.run({"OP_ID": kind, "instance_name": NAME, **changes})
    return eng.snapshot.instances[clusters.instance_uuid(1)].primary_node


def fail_over(eng, **changes):
    return move(eng, "OP_INSTANCE_FAILOVER", **changes)


def fall_back(eng):
    """Migrate what does not run, so that it fails over."""
    return move(eng, "OP_INSTANCE_MIGRATE", allow_failover=True)


def test_a_complete_secondary_takes_over():
    assert fail_over(engine(state())) == N2


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (state(ldisk=FAULTY, is_degraded=True), "is not up to date there"),
        (state(is_degraded=True), "may be old there, since it is not connected"),
        (state(path=""), "is not active there"),
    ],
)
def test_another_one_is_refused_unless_the_loss_is_accepted(row, why):
    eng = engine(row)
    with pytest.raises(errors.OpPrereqError, match=why):
        fail_over(eng)
    assert eng.snapshot.instances[clusters.instance_uuid(1)].primary_node == N1
    with pytest.raises(errors.OpPrereqError, match=why):
        fall_back(eng)
    assert not eng.rpc.called("instance_shutdown")
    assert fail_over(eng, ignore_consistency=True) == N2


@pytest.mark.parametrize("source_offline", [False, True])
def test_a_migration_that_falls_back_takes_a_complete_secondary(source_offline):
    assert fall_back(engine(state(), source_offline=source_offline)) == N2


def test_an_instance_leaves_a_node_that_has_lost_its_disk():
    words = ["Connected", "Secondary", "UpToDate", "Diskless", []]
    names = ("connection", "role", "disk", "peer_disk", "generations")
    kernel = dict(zip(names, words, strict=True))
    assert fail_over(engine(state(is_degraded=True) | {"mirror": kernel})) == N2


def test_what_a_secondary_has_is_enough_when_the_primary_is_offline():
    eng = engine(state(is_degraded=True), source_offline=True)
    assert fail_over(eng) == N2
