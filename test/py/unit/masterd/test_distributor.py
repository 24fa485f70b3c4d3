"""Which changes matter to ssconf files and to the queue."""

import pytest

from fakes import clusters
from ganeti.masterd.distributor import matters, wakes_queue
from ganeti.objects import FilterRule, Update
from ganeti.store import Document

BEFORE = clusters.snapshot(nodes=2, instances=2)
FIRST = BEFORE.instances[clusters.instance_uuid(1)]


def rule():
    return FilterRule(
        uuid="f",
        watermark=0,
        priority=0,
        predicates=(),
        action="PAUSE",
        reason_trail=(),
    )


@pytest.mark.parametrize(
    ("change", "for_files", "for_queue"),
    [
        (Document("jobs", "1", b"{}"), False, False),
        (Update("instances", FIRST.uuid, FIRST.replace(tags=("a",))), False, False),
        (Update("instances", FIRST.uuid, FIRST.replace(name="new")), True, False),
        (Update("instances", FIRST.uuid, None), True, False),
        (Update("instances", "new", FIRST.replace(uuid="new")), True, False),
        (Update("disks", "d", None), False, False),
        (Update("nodes", "n", clusters.node(2)), True, False),
        (Update("nodegroups", "g", clusters.group()), True, False),
        (Update("cluster", "", BEFORE.cluster.replace(tags=("a",))), True, False),
        (Update("cluster", "", BEFORE.cluster.replace(max_running_jobs=1)), True, True),
        (Update("filters", "f", rule()), False, True),
        (Update("filters", "f", None), False, True),
    ],
)
def test_what_matters(change, for_files, for_queue):
    assert matters(BEFORE, [change]) is for_files
    assert wakes_queue(BEFORE, [change]) is for_queue
