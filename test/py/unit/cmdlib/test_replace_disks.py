"""Without a second copy nothing can be replaced, and the refusal says what can."""

import pytest

from fakes import clusters
from fakes.engine import Engine
from ganeti import errors, objects

NAME = "inst1.example.com"


def refused(template, **changes):
    disk = objects.Disk(
        uuid="d1",
        dev_type=template,
        logical_id=("loop", f"/srv/ganeti/file-storage/{NAME}/disk0"),
        size=64,
        serial_no=1,
    )
    eng = Engine(
        clusters.snapshot(extra=[disk, clusters.instance(1, disks=["d1"])]), {}
    )
    before = eng.snapshot
    request = {"OP_ID": "OP_INSTANCE_REPLACE_DISKS", "instance_name": NAME}
    with pytest.raises(errors.OpPrereqError) as caught:
        eng.run(request | {"disks": [], "mode": "replace_auto"} | changes)
    assert eng.snapshot is before
    return caught.value.args[0]


@pytest.mark.parametrize("template", ["file", "sharedfile"])
def test_disks_with_one_copy_are_refused_with_what_helps(template):
    text = refused(template)
    assert f"disk template {template} has no second copy to replace" in text
    assert "only drbd has" in text
    assert "gnt-instance recreate-disks" in text


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"mode": "replace_new_secondary"}, "either a new secondary or an allocator"),
        (
            {"mode": "replace_new_secondary", "iallocator": "a", "remote_node": "b"},
            "either a new secondary or an allocator",
        ),
        ({"iallocator": "hail"}, "goes with mode replace_new_secondary, found"),
        ({"mode": "replace_new_secondary", "remote_node": "node9"}, "not known"),
    ],
)
def test_contradictions_are_refused_first(changes, text):
    assert text in refused("file", **changes)
