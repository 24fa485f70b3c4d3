"""ssconf files: which changes matter, who gets them, and who is tried again."""

import queue

import pytest

from fakes import clusters
from fakes.master import fill
from fakes.rpc import FakeRunner, failure
from ganeti import store
from ganeti.clock import SystemClock
from ganeti.masterd.distributor import Distributor, matters, wakes_queue
from ganeti.objects import FilterRule, Update
from ganeti.store import Document


class Nodes(FakeRunner):
    """Records data as it arrives."""

    def __init__(self, source, script=None):
        super().__init__(source, script)
        self.arrived = queue.SimpleQueue()

    def call(self, procedure, nodes, args=(), *, timeout_s=None):
        actual = super().call(procedure, nodes, args, timeout_s=timeout_s)
        self.arrived.put((procedure, set(nodes)))
        return actual


@pytest.fixture
def opened(tmp_path):
    actual = store.open_master(
        str(tmp_path / "store.db"), replicate=None, clock=SystemClock()
    )
    fill(actual, clusters.snapshot(nodes=3))
    yield actual
    actual.close()


def started(opened, nodes, retry_s):
    made = Distributor(
        opened,
        nodes,
        lambda snapshot: {"cluster_tags": " ".join(snapshot.cluster.tags)},
        wake_queue=lambda: None,
        retry_s=retry_s,
    )
    made.start()
    return made


ALL = {clusters.node_uuid(n) for n in (1, 2, 3)}


def test_nodes_are_written_once_per_change_and_then_pinged(opened):
    nodes = Nodes(opened.snapshot)
    made = started(opened, nodes, retry_s=0.01)
    try:
        assert nodes.arrived.get(timeout=60) == ("write_ssconf_files", ALL)
        ping = ("version", ALL - {clusters.node_uuid(1)})
        assert nodes.arrived.get(timeout=60) == ping
        record = opened.snapshot().cluster.replace(tags=("x",))
        opened.commit([Update("cluster", "", record)])
        while (arrived := nodes.arrived.get(timeout=60)) == ping:
            pass
        assert arrived == ("write_ssconf_files", ALL)
    finally:
        opened.close()
        made.stop()


def test_only_nodes_that_failed_are_written_again(opened):
    second = clusters.node_uuid(2)
    left = [failure()]
    nodes = Nodes(
        opened.snapshot,
        {
            "write_ssconf_files": lambda node, _args: (
                left.pop() if node == second and left else None
            )
        },
    )
    made = started(opened, nodes, retry_s=0.01)
    try:
        assert nodes.arrived.get(timeout=60) == ("write_ssconf_files", ALL)
        assert nodes.arrived.get(timeout=60) == ("write_ssconf_files", {second})
        assert nodes.arrived.get(timeout=60)[0] == "version"
    finally:
        opened.close()
        made.stop()


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
