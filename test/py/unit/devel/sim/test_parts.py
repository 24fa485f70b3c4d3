"""Time, events and descriptions of simulations; and that broken rules are noticed."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from fakes import simulations
from ganeti.base import errors
from ganeti.devel.sim import Simulation, description, events
from ganeti.devel.sim.description import (
    ClusterDescription,
    InstanceDescription,
    NodeDescription,
)
from ganeti.devel.sim.hardware import Guest, Hardware, Machine
from ganeti.devel.sim.master import Master
from ganeti.devel.sim.scheduler import Scheduler
from ganeti.master.config import checks
from ganeti.model.objects import Update

NODES = tuple(NodeDescription(name=f"node{n}") for n in (1, 2, 3))
WEB = InstanceDescription(name="web1", primary="node2", secondary="node3")


# Time
def test_tasks_take_turns_in_the_order_of_their_times():
    scheduler, seen = Scheduler(100.0), []

    def count(name, seconds):
        for _ in range(3):
            scheduler.sleep(seconds)
            seen.append((name, scheduler.monotonic()))

    scheduler.spawn("a", lambda: count("a", 2.0))
    scheduler.spawn("b", lambda: count("b", 3.0))
    scheduler.at(4.5, lambda: seen.append(("event", 4.5)))
    scheduler.run(107.0)
    names = [("a", 2), ("b", 3), ("a", 4), ("event", 4.5), ("b", 6), ("a", 6)]
    assert seen == names
    assert scheduler.time() == 107.0
    scheduler.close()
    assert not scheduler.tasks


def test_an_error_of_a_task_ends_the_run():
    scheduler = Scheduler(0.0)

    def fail():
        raise KeyError("x")

    scheduler.spawn("a", fail)
    with pytest.raises(KeyError):
        scheduler.run(1.0)


def test_a_wait_in_a_thread_that_is_no_task_ends_the_run():
    """Automatons log errors and go on; this one is none of theirs."""
    scheduler = Scheduler(0.0)

    def work():
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join()

    def wait():
        with pytest.raises(errors.ProgrammerError):
            scheduler.sleep(1.0)

    scheduler.spawn("a", work)
    with pytest.raises(errors.ProgrammerError, match="outside of tasks"):
        scheduler.run(1.0)


def test_a_wait_without_limit_is_refused():
    with pytest.raises(errors.ProgrammerError, match="without limit"):
        Scheduler(0.0).wait(threading.Event(), None)


def test_a_sleep_of_nothing_moves_the_time():
    scheduler, seen = Scheduler(0.0), []

    def work():
        for _ in range(1000):
            scheduler.sleep(0.0)
        seen.append(scheduler.now)

    scheduler.spawn("a", work)
    scheduler.run(10.0)
    assert seen[0] == pytest.approx(1.0)


# Events
@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("kill", "wanted a number with s, m, h or d"),
        ("10m", "wanted one of kill, .* found nothing"),
        ("10m explode node1", "found 'explode'"),
        ("10m kill", "wanted 1 argument; its form is: kill NODE"),
        ("10m cut node1 up", "wanted one of both, in, out, found 'up'"),
        ("10m slow node1 0", "wanted 1 to 1000, found '0'"),
        ("10m slow node1 nan", "wanted 1 to 1000, found 'nan'"),
        ("31d kill node1", "at most 30d, found '31d'"),
        ("-5 kill node1", "found '-5'"),
        ("5 lie", "wanted 1 argument; its form is: lie NODE"),
        ("5 disk-full node1 maybe", "wanted one of yes, no, found 'maybe'"),
        ("5 tag rack1 x", "wanted cluster, or group, node, instance with a name"),
    ],
)
def test_a_malformed_event_is_refused(text, error):
    with pytest.raises(errors.OpPrereqError, match=error):
        events.parse_events(text)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("1 kill node9", "node9 is no node of the cluster; wanted one of node1, node2"),
        ("1 kill-guest db1", "db1 is no instance of the cluster; wanted one of web1"),
        ("1 cut node1 both node9", "node9 is no node"),
        (
            "1 tag group:rack x",
            "rack is no group of the cluster; wanted one of default",
        ),
        ("1 untag node:rack x", "rack is no node"),
        ("1 freeze node2", "'freeze-node node2' freezes a node"),
        ("1 master-failover node9", "node9 is no node of the cluster"),
    ],
)
def test_an_event_about_an_unknown_object_is_refused(text, error):
    described = ClusterDescription(nodes=NODES, instances=(WEB,))
    with pytest.raises(errors.OpPrereqError, match=error):
        Simulation(described, events.parse_events(text))


NAMES = {
    "node": {"u1": "node1", "n": "node2"},
    "instance": {"u1": "web1"},
    "group": {"u3": "default"},
}


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("kill u1", "kill node1"),
        ("kill-guest u1", "kill-guest web1"),
        ("cut n both u1 other", "cut node2 both node1 other"),
        ("tag group:u3 u1", "tag group:default u1"),
        ("tag cluster u1", "tag cluster u1"),
        ("clock 5", "clock 5"),
        ("cut n", "cut node2 both"),
        ("cut-in n", "cut node2 in"),
        ("lie u1", "helper node1 lies"),
        ("disk-full u1", "disk-full node1 yes"),
    ],
)
def test_objects_of_events_get_their_whole_names(text, whole):
    event = events.parse_event(f"7 {text}")
    named = events.with_names(event, NAMES)
    assert (named.at_s, str(named)) == (7.0, whole)


def test_events_are_sorted_and_comments_left_out():
    listed = events.parse_events("# first\n2m kill node1 # why\n\n90 thaw\n")
    assert [(event.at_s, str(event)) for event in listed] == [
        (90.0, "thaw"),
        (120.0, "kill node1"),
    ]


# Descriptions
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"nodes": ()}, "wanted at least one node"),
        ({"nodes": (*NODES, NODES[0])}, "node node1: is there twice"),
        ({"master": "node9"}, "master node9: is no node"),
        ({"store": "cloud"}, "store: wanted file or etcd, found 'cloud'"),
        ({"limits": {"speed": 1.0}}, "automation limits: wanted one of"),
        (
            {"instances": (InstanceDescription(name="a", primary="node1"),)},
            "wanted two nodes for drbd",
        ),
        (
            {
                "instances": (
                    InstanceDescription(name="a", primary="x", template="rbd"),
                )
            },
            "instance a: x is no node",
        ),
    ],
)
def test_a_description_that_does_not_fit_is_refused(changes, error):
    described = ClusterDescription(**{"nodes": NODES, **changes})
    with pytest.raises(errors.OpPrereqError, match=error):
        description.snapshot(described, 0.0)


def test_the_configuration_of_a_described_cluster_has_no_problems():
    mirrors = [
        InstanceDescription(
            name=f"web{number}",
            primary="node1",
            secondary="node2",
            disks_mib=(1024, 1024, 1024),
        )
        for number in (1, 2)
    ]
    alone = InstanceDescription(name="web3", primary="node1", template="plain")
    described = ClusterDescription(
        nodes=(NodeDescription(name="node1"), NodeDescription(name="node2")),
        instances=(*mirrors, alone),
    )
    made = description.snapshot(described, 0.0)
    assert checks.verify(made) == []
    assert made.cluster.highest_used_port == 11005


def test_a_malformed_description_is_refused():
    with pytest.raises(errors.OpPrereqError, match="description of a cluster"):
        description.read(b'{"nodes": [{"name": 5}]}')


def test_a_host_needs_memory_itself():
    machine = Machine("a", 4096, 4096, 4, own_memory_mib=1024)
    hardware = Hardware([machine], lambda: 0.0)
    assert not hardware.start(Guest("web1", "a", 3073, 1))
    assert hardware.start(Guest("web1", "a", 3072, 1))


def test_no_thread_of_the_machine_takes_part(monkeypatch):
    """It would see the machines at a time that nothing decides."""

    def refuse(*_args, **_options):
        raise AssertionError

    monkeypatch.setattr(ThreadPoolExecutor, "submit", refuse)
    text, broken = simulations.play("death-short")
    assert (text, broken) == (simulations.expected("death-short"), ())


def test_progress_is_reported():
    simulation, seen = Simulation(ClusterDescription(nodes=NODES), []), []
    simulation.run(200.0, seen.append)
    assert seen == [pytest.approx(2.0 * part) for part in range(1, 101)]


# Rules
def test_a_second_start_is_noticed():
    seen = []
    hardware = Hardware([Machine(n, 4096, 4096, 4) for n in ("a", "b")], lambda: 0.0)
    hardware.on_twice = lambda name, places: seen.append((name, list(places)))
    assert hardware.start(Guest("web1", "a", 1024, 1))
    assert not hardware.start(Guest("web2", "a", 4096, 1))
    assert hardware.start(Guest("web1", "b", 1024, 1))
    assert seen == [("web1", ["a", "b"])]


def test_a_repair_without_permission_is_noticed():
    """A tag that nobody may set, as a program with a fault would."""
    described = ClusterDescription(nodes=NODES, instances=(WEB,))
    simulation = Simulation(described, [])
    tag = "ganeti:watcher:autorepair:pending:failover:x:1700000000:"
    snapshot = simulation._data.snapshot
    (record,) = snapshot.instances.values()
    change = [Update("instances", record.uuid, record.replace(tags=(tag,)))]
    simulation._data.take(change, snapshot.apply(change))
    (problem,) = simulation.invariants.problems
    assert "begins without a permission" in problem


def test_a_clock_that_jumps_ahead_does_not_raise_the_limit_of_fences():
    described = ClusterDescription(
        nodes=tuple(NodeDescription(name=f"node{n}") for n in range(1, 6)),
        instances=(),
        node_death=True,
    )
    text = "1m kill node2\n10m clock 3600\n11m kill node3\n"
    report = Simulation(described, events.parse_events(text)).run(1500.0)
    assert not report.problems
    ends = [str(line) for line in report.lines if "node3: node-death" in str(line)]
    assert ends[-1].endswith(
        "nodes fenced within an hour: 1, the limit fenced-per-hour is 1"
    )


def test_a_second_candidate_may_die_while_the_first_one_is_held():
    described = ClusterDescription(
        nodes=tuple(NodeDescription(name=f"node{n}") for n in range(1, 6)),
        instances=(),
        node_death=True,
        limits={"fenced-per-hour": 2.0},
    )
    text = "0 helper node2 fails\n1m kill node2\n20m kill node3\n"
    report = Simulation(described, events.parse_events(text)).run(1500.0)
    lines = [str(line) for line in report.lines]
    assert any(line.endswith("node node3: is offline") for line in lines), lines
    assert not any("node node2: is offline" in line for line in lines)


def test_answers_about_instances_follow_each_change():
    """Only changed instances are computed again, unless others have a part in them."""
    db = InstanceDescription(name="db1", primary="node1", template="plain")
    simulation = Simulation(ClusterDescription(nodes=NODES, instances=(WEB, db)), [])
    simulation._start_master()
    master, data, asked = simulation._people.master, simulation._data, []
    question = ("instance", ["name", "pnode", "pnode.group", "tags"], None)
    answer = master._answer

    def note(method, args):
        asked.append(args[2])
        return answer(method, args)

    master._answer = note
    only_web = ["|", ["==", "name", "web1"]]
    try:
        for table, changes, computed in (
            ("instances", {}, [None, None]),
            ("instances", {"tags": ("a",)}, [only_web]),
            ("nodegroups", {"name": "rack"}, [None, None]),
            ("nodes", {"name": "node9"}, [None, None]),
            ("instances", {"name": "web2"}, [None, None]),
        ):
            records = getattr(data.snapshot, table).values()
            record = next(r for r in records if r.name in ("web1", "default", "node2"))
            update = [Update(table, record.uuid, record.replace(**changes))]
            data.take(update, data.snapshot.apply(update))
            asked.clear()
            assert master.call("Query", question) == answer("Query", question)
            assert asked == computed, (table, changes)
            # Nothing has changed since.
            assert master.call("Query", question) == answer("Query", question)
            assert asked == computed
    finally:
        simulation._scheduler.close()


def test_a_waiting_repair_costs_few_looks(monkeypatch):
    calls, real = [], Master.call

    def call(self, method, args):
        calls.append(method)
        return real(self, method, args)

    monkeypatch.setattr(Master, "call", call)
    simulations.play("death-moved-share-zero")
    assert calls.count("QueryAutomation") < 200
