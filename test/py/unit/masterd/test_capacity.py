"""The master's request to an allocator about the instances that still fit."""

import pytest

from fakes import clusters
from ganeti import errors
from ganeti.masterd import capacity

SNAPSHOT = clusters.snapshot()
POLICY = SNAPSHOT.cluster.ipolicy


def asked(**wanted):
    return capacity.build_request(SNAPSHOT, capacity.CapacityRequest(**wanted))


def test_what_is_left_out_comes_from_the_policy() -> None:
    actual = asked()
    std = POLICY["std"]
    (size,) = actual.sizes
    assert size["memory"] == std["memory-size"]
    assert size["vcpus"] == std["cpu-count"]
    assert actual.disk_template == SNAPSHOT.cluster.enabled_disk_templates[0]
    assert (actual.tiered, actual.groups, actual.limit) == (False, None, None)


def test_disks_count_only_with_a_template_that_has_some() -> None:
    enabled = SNAPSHOT.cluster.enabled_disk_templates
    assert enabled[0] == "diskless"
    assert [size["disk"] for size in asked().sizes] == [0]
    assert [size["disk"] for size in asked(tiered=True).sizes] == [0]
    (size,) = asked(disk_template="file").sizes
    assert size["disk"] == POLICY["std"]["disk-size"]
    assert [size["disk"] for size in asked(disk_template="file", disk=7).sizes] == [7]
    with pytest.raises(errors.OpPrereqError) as caught:
        asked(disk=7)
    assert "disk: wanted none with disk template diskless, found 7;" in str(
        caught.value
    )
    assert "enabled are file, sharedfile" in str(caught.value)


def test_shrinking_starts_with_the_largest() -> None:
    actual = asked(disk_template="file", tiered=True, memory=640)
    highest = {part["max"]["disk-size"] for part in POLICY["minmax"]}
    assert {size["disk"] for size in actual.sizes} == highest
    assert {size["memory"] for size in actual.sizes} == {640}


def test_groups_are_named_once() -> None:
    (group,) = SNAPSHOT.nodegroups.values()
    assert asked(groups=[group.name, group.uuid]).groups == [group.name]


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        ({"disk_template": "ext"}, "disk template ext: wanted one of the enabled"),
        ({"memory": 0}, "memory: wanted 1 or more, found 0"),
        ({"limit": -1}, "limit: wanted 0 or more, found -1"),
        ({"groups": ["moon"]}, "Node group 'moon' not known"),
    ],
)
def test_invalid_requests_are_refused(wanted, text) -> None:
    with pytest.raises(errors.OpPrereqError) as caught:
        asked(**wanted)
    assert text in str(caught.value)
