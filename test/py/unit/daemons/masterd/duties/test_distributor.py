"""ssconf files: which changes matter, who gets them, and who is tried again."""

import queue
import threading

import pytest

from fakes import clusters
from fakes.clocks import FakeClock
from fakes.master import fill
from fakes.rpc import FakeRunner, failure
from ganeti import store
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.base.constants import versions
from ganeti.daemons.masterd.duties import distributor
from ganeti.daemons.masterd.duties.distributor import (
    Distributor,
    Files,
    Pace,
    affected,
    wakes_queue,
)
from ganeti.model import objects
from ganeti.model.objects import FilterRule, Update
from ganeti.store import Document


class Nodes(FakeRunner):
    """Records data as it arrives."""

    def __init__(self, source, script=None):
        answers = {"write_ssconf_files": None, "version": versions.PROTOCOL_VERSION}
        super().__init__(source, answers | (script or {}))
        self.arrived = queue.SimpleQueue()
        self.files = queue.SimpleQueue()

    def call(self, procedure, nodes, args=(), *, timeout_s=None):
        actual = super().call(procedure, nodes, args, timeout_s=timeout_s)
        self.arrived.put((procedure, set(nodes)))
        self.files.put(args[0] if args else None)
        return actual


@pytest.fixture
def opened(tmp_path):
    actual = store.open_master(
        str(tmp_path / "store.db"), replicate=None, clock=SystemClock()
    )
    fill(actual, clusters.snapshot(nodes=3))
    yield actual
    actual.close()


def values_of(snapshot):
    return {
        "cluster_tags": " ".join(snapshot.cluster.tags),
        "instance_list": "\n".join(sorted(snapshot.names("instances"))),
    }


def started(opened, nodes, retry_s, clock=None, on_refusal=lambda _refused: None):
    made = Distributor(
        opened,
        nodes,
        values_of,
        wake_queue=lambda: None,
        on_refusal=on_refusal,
        clock=clock or SystemClock(),
        retry_s=retry_s,
    )
    made.start()
    return made


def failing(node, left):
    """Return answers: a node fails to write as often as failures are left."""
    return {
        "write_ssconf_files": lambda at, _args: (
            left.pop() if at == node and left else None
        )
    }


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
    nodes = Nodes(opened.snapshot, failing(second, left))
    made = started(opened, nodes, retry_s=0.01)
    try:
        assert nodes.arrived.get(timeout=60) == ("write_ssconf_files", ALL)
        assert nodes.arrived.get(timeout=60) == ("write_ssconf_files", {second})
        assert nodes.arrived.get(timeout=60)[0] == "version"
    finally:
        opened.close()
        made.stop()


def test_nodes_that_refuse_the_certificate_are_reported_and_tried_again(opened):
    second = clusters.node_uuid(2)
    left = [failure(refused=True)]
    nodes = Nodes(opened.snapshot, failing(second, left))
    reported = []
    made = started(opened, nodes, retry_s=0.01, on_refusal=reported.append)
    try:
        assert nodes.arrived.get(timeout=60) == ("write_ssconf_files", ALL)
        assert nodes.arrived.get(timeout=60) == ("write_ssconf_files", {second})
        assert reported == [[second]]
    finally:
        opened.close()
        made.stop()


def first_files(nodes):
    assert nodes.arrived.get(timeout=60) == ("write_ssconf_files", ALL)
    return nodes.files.get(timeout=60)


def tag(opened, name):
    record = opened.snapshot().cluster.replace(tags=(name,))
    opened.commit([Update("cluster", "", record)])


def test_nodes_get_the_files_that_differ(opened):
    nodes = Nodes(opened.snapshot)
    made = started(opened, nodes, retry_s=60)
    try:
        assert first_files(nodes).keys() == {"cluster_tags", "instance_list"}
        tag(opened, "x")
        assert first_files(nodes) == {"cluster_tags": "x"}
    finally:
        opened.close()
        made.stop()


def test_a_node_whose_record_changed_gets_all_files(opened):
    nodes = Nodes(opened.snapshot)
    made = started(opened, nodes, retry_s=60)
    try:
        first_files(nodes)
        second = opened.snapshot().nodes[clusters.node_uuid(2)]
        opened.commit([Update("nodes", second.uuid, second.replace(serial_no=9))])
        assert nodes.arrived.get(timeout=60)[1] == {second.uuid}
        assert len(nodes.files.get(timeout=60)) == 2
    finally:
        opened.close()
        made.stop()


def test_a_file_that_a_job_has_written_is_written_again_behind_it(opened):
    """The value may have changed back since; nothing else would be sent."""
    nodes = Nodes(opened.snapshot)
    made = started(opened, nodes, retry_s=60)
    try:
        first_files(nodes)
        made.write_again([clusters.node_uuid(2)], ["cluster_tags", "node_list"])
        assert nodes.arrived.get(timeout=60)[1] == {clusters.node_uuid(2)}
        assert nodes.files.get(timeout=60).keys() == {"cluster_tags"}
    finally:
        opened.close()
        made.stop()


class Blocked(Nodes):
    """Nodes that answer when the test allows it."""

    def __init__(self, source):
        super().__init__(source)
        self.may_answer = threading.Semaphore(0)

    def call(self, procedure, nodes, args=(), *, timeout_s=None):
        actual = super().call(procedure, nodes, args, timeout_s=timeout_s)
        assert self.may_answer.acquire(timeout=60)
        return actual


def add_instances(opened, numbers):
    for number in numbers:
        record = clusters.instance(number, 1)
        opened.commit([Update("instances", record.uuid, record)])


def test_changes_during_a_push_are_sent_as_one(opened, monkeypatch):
    monkeypatch.setattr(distributor, "PAUSES_S", (0.0,))
    nodes = Blocked(opened.snapshot)
    made = started(opened, nodes, retry_s=60)
    try:
        first_files(nodes)
        add_instances(opened, range(20))
        nodes.may_answer.release()
        sent = first_files(nodes)
        assert set(sent) == {"instance_list"}
        assert len(sent["instance_list"].splitlines()) == 20
        nodes.may_answer.release(2)
        tag(opened, "last")
        assert first_files(nodes) == {"cluster_tags": "last"}
    finally:
        nodes.may_answer.release(9)
        opened.close()
        made.stop()


def test_new_instances_wait_for_the_next_push_and_tags_do_not(opened):
    clock = FakeClock()
    nodes = Nodes(opened.snapshot)
    made = started(opened, nodes, retry_s=60, clock=clock)
    try:
        first_files(nodes)
        # The clock stands still, so the next push of the list alone is never due.
        add_instances(opened, (1, 2))
        tag(opened, "x")
        sent = first_files(nodes)
        assert sent["cluster_tags"] == "x"
        assert len(sent["instance_list"].splitlines()) == 2
    finally:
        opened.close()
        made.stop()


def test_new_instances_are_sent_after_the_pause(opened, monkeypatch):
    monkeypatch.setattr(distributor, "PAUSES_S", (0.01,))
    nodes = Nodes(opened.snapshot)
    made = started(opened, nodes, retry_s=60)
    try:
        first_files(nodes)
        add_instances(opened, (1,))
        assert set(first_files(nodes)) == {"instance_list"}
    finally:
        opened.close()
        made.stop()


def pushes(changes):
    """Return the times of the pushes of a list that changes at these times."""
    pace, times, left = Pace(), [], list(changes)
    while left:
        now = left.pop(0)
        pace.changed(now)
        while left and left[0] < max(now, pace.due()):
            now = left.pop(0)
            pace.changed(now)
        times.append(max(now, pace.due()))
        pace.pushed(times[-1], is_paced=True)
    return times


def test_a_long_run_of_new_instances_is_sent_more_and_more_rarely():
    assert pushes(number / 4 for number in range(121)) == [0, 1, 3, 7, 15, 23, 31]


def test_single_new_instances_are_sent_at_once():
    assert pushes([0, 1.5, 30, 31.5]) == [0, 1.5, 30, 31.5]


def test_pauses_are_short_again_after_a_run_of_changes():
    times = pushes([*(number / 4 for number in range(41)), 20, 20.25])
    assert times == [0, 1, 3, 7, 15, 20, 21]


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
        (Document("jobs", "1", b"{}"), Files.NONE, False),
        (
            Update("instances", FIRST.uuid, FIRST.replace(tags=("a",))),
            Files.NONE,
            False,
        ),
        (
            Update("instances", FIRST.uuid, FIRST.replace(name="new")),
            Files.INSTANCES,
            False,
        ),
        (Update("instances", FIRST.uuid, None), Files.INSTANCES, False),
        (Update("instances", "new", FIRST.replace(uuid="new")), Files.INSTANCES, False),
        (Update("disks", "d", None), Files.NONE, False),
        (Update("nodes", "n", clusters.node(2)), Files.ANY, False),
        (Update("nodegroups", "g", clusters.group()), Files.ANY, False),
        (Update("cluster", "", BEFORE.cluster.replace(tags=("a",))), Files.ANY, False),
        (
            Update("cluster", "", BEFORE.cluster.replace(max_running_jobs=1)),
            Files.ANY,
            True,
        ),
        (Update("cluster", "", BEFORE.cluster.replace(serial_no=9)), Files.NONE, False),
        (Update("filters", "f", rule()), Files.NONE, True),
        (Update("filters", "f", None), Files.NONE, True),
    ],
)
def test_what_matters(change, for_files, for_queue):
    assert affected(BEFORE, [change]) is for_files
    assert wakes_queue(BEFORE, [change]) is for_queue


def test_pauses_after_failures_double_and_start_again_for_further_nodes(opened):
    made = Distributor(
        opened,
        Nodes(opened.snapshot),
        values_of,
        wake_queue=lambda: None,
        on_refusal=lambda _refused: None,
        clock=SystemClock(),
        retry_s=10 * distributor.FIRST_RETRY_S,
    )
    first, longest = distributor.FIRST_RETRY_S, 10 * distributor.FIRST_RETRY_S
    assert made._next_wait(first, {"a"}, set()) == longest
    assert made._next_wait(longest, set(), {"a"}) == first
    assert made._next_wait(first, {"a"}, {"a"}) == 2 * first
    assert made._next_wait(8 * first, {"a", "b"}, {"a"}) == longest
    assert made._next_wait(4 * first, {"a"}, {"a", "b"}) == first


class Forgetful:
    """A store that has dropped the changes that its first follower asks for."""

    def __init__(self, inner):
        self.inner, self.asked = inner, []

    def snapshot(self):
        return self.inner.snapshot()

    def follow(self, revision):
        self.asked.append(revision)
        if len(self.asked) == 1:
            tag(self.inner, "missed")
            raise errors.StorageError("no such change")
        return self.inner.follow(revision)


def test_after_missed_changes_all_is_looked_at_again(opened):
    nodes, woken = Nodes(opened.snapshot), queue.SimpleQueue()
    forgetful = Forgetful(opened)
    made = Distributor(
        forgetful,
        nodes,
        values_of,
        wake_queue=lambda: woken.put("woken"),
        on_refusal=lambda _refused: None,
        clock=SystemClock(),
        retry_s=60,
    )
    made.start()
    try:
        assert woken.get(timeout=60) == "woken"
        while first_files(nodes).get("cluster_tags") != "missed":
            pass
        # It follows again, from what it has seen.
        tag(opened, "next")
        assert first_files(nodes) == {"cluster_tags": "next"}
    finally:
        opened.close()
        made.stop()
    assert forgetful.asked[1] > forgetful.asked[0]


def test_a_node_that_failed_once_gets_all_files(opened):
    second, left = clusters.node_uuid(2), []
    nodes = Nodes(opened.snapshot, failing(second, left))
    made = started(opened, nodes, retry_s=0.01)
    try:
        first_files(nodes)
        left.append(failure())
        tag(opened, "x")
        written = []
        while len(written) < 2:
            arrived, files = nodes.arrived.get(timeout=60), nodes.files.get(timeout=60)
            if arrived[0] == "write_ssconf_files":
                written.append((arrived[1], set(files)))
        # Nobody knows which of them a node that failed has written.
        assert written == [
            (ALL, {"cluster_tags"}),
            ({second}, {"cluster_tags", "instance_list"}),
        ]
    finally:
        opened.close()
        made.stop()


def set_node(opened, number, **changes):
    record = opened.snapshot().nodes[clusters.node_uuid(number)].replace(**changes)
    opened.commit([Update("nodes", record.uuid, record)])


def test_a_node_gets_its_files_when_it_is_online_again(opened):
    set_node(opened, 3, offline=True)
    third = clusters.node_uuid(3)
    nodes = Nodes(opened.snapshot)
    made = started(opened, nodes, retry_s=60)
    try:
        assert nodes.arrived.get(timeout=60)[1] == ALL - {third}
        nodes.files.get(timeout=60)
        set_node(opened, 3, offline=False)
        assert nodes.arrived.get(timeout=60)[1] == {third}
        assert nodes.files.get(timeout=60).keys() == {"cluster_tags", "instance_list"}
    finally:
        opened.close()
        made.stop()


def idle(opened, nodes):
    return Distributor(
        opened,
        nodes,
        values_of,
        wake_queue=lambda: None,
        on_refusal=lambda _refused: None,
        clock=SystemClock(),
    )


def test_only_other_candidates_that_are_online_are_pinged(opened):
    nodes = Nodes(opened.snapshot)
    made = idle(opened, nodes)
    set_node(opened, 2, master_candidate=False)
    made._ping(opened.snapshot())
    assert [node for node, _args in nodes.called("version")] == [clusters.node_uuid(3)]
    # A frozen candidate must not hold up the files of the others for long.
    assert nodes.limits["version"] == {10.0}
    set_node(opened, 3, offline=True)
    made._ping(opened.snapshot())
    assert len(nodes.called("version")) == 1


class Broken(Nodes):
    """Nodes whose first calls of each procedure raise."""

    def __init__(self, source):
        super().__init__(source)
        self.raised = set()

    def call(self, procedure, nodes, args=(), *, timeout_s=None):
        if procedure not in self.raised:
            self.raised.add(procedure)
            raise errors.TermError("deposed")
        return super().call(procedure, nodes, args, timeout_s=timeout_s)


def test_calls_that_raise_are_repeated(opened):
    nodes = Broken(opened.snapshot)
    made = started(opened, nodes, retry_s=0.01)
    try:
        assert nodes.arrived.get(timeout=60) == ("write_ssconf_files", ALL)
        assert nodes.arrived.get(timeout=60)[0] == "version"
        assert nodes.raised == {"write_ssconf_files", "version"}
    finally:
        opened.close()
        made.stop()


@pytest.mark.parametrize(
    ("changes", "for_files"),
    [
        ({"highest_used_port": 11500, "tcpudp_port_pool": (11400,)}, Files.NONE),
        ({"mtime": 5.0, "serial_no": 9}, Files.NONE),
        ({"mtime": 5.0, "tags": ("a",)}, Files.ANY),
    ],
)
def test_ports_and_serials_alone_are_in_no_file(changes, for_files):
    change = Update("cluster", "", BEFORE.cluster.replace(**changes))
    assert affected(BEFORE, [change]) is for_files


def test_the_most_urgent_change_of_several_counts():
    renamed = Update("instances", FIRST.uuid, FIRST.replace(name="new"))
    tagged = Update("cluster", "", BEFORE.cluster.replace(tags=("a",)))
    other = Update("instances", FIRST.uuid, FIRST.replace(tags=("a",)))
    assert affected(BEFORE, [renamed, tagged]) is Files.ANY
    assert affected(BEFORE, [tagged, renamed]) is Files.ANY
    assert affected(BEFORE, [renamed, other]) is Files.INSTANCES
    assert wakes_queue(BEFORE, [other, Update("filters", "f", rule())])


def test_the_first_record_of_a_cluster_wakes_the_queue():
    first = Update("cluster", "", BEFORE.cluster)
    assert wakes_queue(objects.Snapshot(), [first])
    assert not wakes_queue(BEFORE, [first])
