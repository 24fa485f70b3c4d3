"""Nodes with real mirrors are lost; what their instances have left is repaired.

By the watcher, or by the maintenance daemon. A fourth machine is the spare of the last
steps. Lost machines stay off.
"""

import itertools
import re

import pytest

from lab.guest_writer import Writer
from lab.mirroring import COMPLETE, join, mirroring_cluster, shell
from lab.steps import timed

NODES = ["lab1", "lab2", "lab3"]
SPARE = "lab4"
WEB1, WEB2, WEB3 = "web1.lab.test", "web2.lab.test", "web3.lab.test"
ADD = (
    *("gnt-instance", "add", "-t", "drbd", "--no-install", "--no-nics", "-o", "small"),
    *("-B", "memory=64m", "--disk", "0:size=64m"),
)
#: Instances of this size are within the policy, as new nodes are chosen by it.
SMALL = (
    "min:cpu-count=1,disk-count=1,disk-size=64,memory-size=64,nic-count=0,spindle-use=1"
    "/max:cpu-count=8,disk-count=16,disk-size=1024,memory-size=128,nic-count=8,"
    "spindle-use=12"
)
REPAIR = "ganeti:watcher:autorepair"
#: An OS definition whose guest is one line at the beginning of its first disk.
OS = """
mkdir -p /srv/ganeti/os/small && cd /srv/ganeti/os/small && echo 10 > ganeti_api_version
for name in import export rename; do printf '#!/bin/sh\\nexit 0\\n' > $name; done
printf '#!/bin/sh\\necho new | dd of=$DISK_0_PATH conv=notrunc,fsync\\n' > create
chmod 755 create import export rename
"""
#: A tag of a repair, without the prefix.
RECORD = re.compile(
    "(?:pending|result):(?P<kind>[a-z-]+):(?P<id>[^:]+):[0-9]+"
    "(?::(?P<outcome>[a-z]+))?:(?P<jobs>[0-9+]*)"
)
NEW_COPY = ("fix-storage", ["REPLACE_DISKS"])
#: One repair: the second step is the end of what the first one has begun.
CHAIN = ("failover", ["FAILOVER", "REPLACE_DISKS"])
#: More runs than any of the chains needs.
RUNS = 12


@pytest.fixture
def four(machines):
    """A cluster of three machines; the spare is on at the end of the test only."""
    with mirroring_cluster(machines, NODES) as made:
        try:
            yield made
        finally:
            if machines.lab.machine(SPARE).pid() is not None:
                machines.lab.leave(SPARE, ("/dev/vdb",))


def device(machines, instance, node="lab1"):
    """Return the path of the mirror of an instance on a node."""
    argv = ("gnt-node", "list-drbd", "--no-headers", "--separator=|", node)
    rows = [line.split("|") for line in machines.check(*argv).splitlines()]
    (minor,) = [row[1] for row in rows if row[2] == instance]
    return f"/dev/drbd{minor}"


def nodes(machines, instance):
    """Return the names of the primary and the secondary node."""
    fields = ("--no-headers", "--separator=|", "-o", "pnode,snodes")
    line = machines.check("gnt-instance", "list", *fields, instance).strip()
    return tuple(name.split(".")[0] for name in line.split("|"))


def marks(machines, instance):
    """Return the tags of its repairs, without the prefix."""
    tags = machines.check("gnt-instance", "list-tags", instance).split()
    return [tag.removeprefix(f"{REPAIR}:") for tag in tags if tag.startswith(REPAIR)]


def lose(machines, node):
    """Take the power of a machine away, and mark the node offline."""
    machines.lab.power(node, "off")
    machines.check("gnt-node", "modify", "-O", "yes", node)


class Watcher:
    """Repairs by the watcher, which does one step of each repair per run."""

    def __init__(self, machines):
        self._machines = machines

    def begin(self):
        """Let it repair."""

    def steps(self):
        """Yield after each run."""
        for _run in range(RUNS):
            text = self._machines.run("ganeti-watcher").stderr
            assert "Traceback" not in text, text
            yield


class Maintenance:
    """Repairs by the maintenance daemon, which goes on by itself."""

    def __init__(self, machines):
        self._machines = machines

    def begin(self):
        """Let it repair, in place of the watcher."""
        every = ("--maintenance-interval", "1")
        modify = ("gnt-cluster", "modify", "--maintenance-repairs", "yes")
        self._machines.check(*modify, *every)

    def steps(self):
        """Yield without end."""
        return itertools.repeat(None)


def repair(machines, repairer, wanted):
    """Wait until instances are on their new nodes; return the repairs of each.

    Args:
        machines: the machines.
        repairer: the program that repairs them.
        wanted: instance -> its nodes, in any order.

    Returns:
        instance -> kind and jobs of each repair that was seen.
    """
    repairs = {instance: {} for instance in wanted}
    for _step in repairer.steps():
        # Before the tags: a repair is pending until its last job has ended.
        placed = {instance: set(nodes(machines, instance)) for instance in wanted}
        is_pending = False
        for instance in wanted:
            for mark in marks(machines, instance):
                assert ":failure:" not in mark
                parts = RECORD.fullmatch(mark)
                if parts is None or parts["outcome"] == "enoperm":
                    continue
                jobs = [job for job in parts["jobs"].split("+") if job]
                repairs[instance][parts["id"]] = (parts["kind"], jobs)
                is_pending |= parts["outcome"] is None
                for job in jobs:
                    machines.check("gnt-job", "wait", job)
        if placed == wanted and not is_pending:
            return {name: acts(machines, of) for name, of in repairs.items()}
    raise AssertionError(f"{placed} after {RUNS} runs, wanted {wanted}")


def acts(machines, repairs):
    """Return kind and opcodes of each of the repairs of an instance."""
    listed = []
    for kind, jobs in repairs.values():
        argv = ("gnt-job", "list", "--no-headers", "-o", "summary", *jobs)
        names = re.findall(r"INSTANCE_\w+", machines.check(*argv)) if jobs else []
        listed.append((kind, [name.removeprefix("INSTANCE_") for name in names]))
    return listed


# Takes many minutes.
@pytest.mark.long
@pytest.mark.parametrize("program", [Watcher, Maintenance])
def test_lost_nodes_are_replaced(four, program):
    repairer = program(four)
    writers = {WEB1: Writer(four, "first"), WEB2: Writer(four, "second")}
    timed(_three_instances, four, writers)
    repairer.begin()
    timed(_the_second_node_is_lost, four, repairer, writers)
    timed(_the_third_node_is_lost, four, repairer, writers)
    timed(_an_instance_has_lost_both, four, repairer)


def _three_instances(machines, writers):
    for node in NODES:
        shell(machines, OS, node)
    std = (
        "cpu-count=1,disk-count=1,disk-size=64,memory-size=64,nic-count=1,spindle-use=1"
    )
    bounds = ("--ipolicy-bounds-specs", SMALL, "--ipolicy-std-specs", std)
    machines.check("gnt-cluster", "modify", *bounds)
    machines.check("gnt-cluster", "add-tags", f"{REPAIR}:failover")
    machines.check(*ADD, "-n", "lab1:lab2", WEB1)
    machines.check(*ADD, "-n", "lab2:lab1", WEB2)
    machines.check(*ADD, "-n", "lab2:lab3", WEB3)
    machines.check("gnt-instance", "start", "--force-multiple", WEB1, WEB2, WEB3)
    machines.check("gnt-instance", "add-tags", WEB3, f"{REPAIR}:suspend")
    for instance, node in ((WEB1, "lab1"), (WEB2, "lab2")):
        writers[instance].start(node, device(machines, instance, node))


def _the_second_node_is_lost(machines, repairer, writers):
    """One instance lost its secondary node, one its primary one and then has one node."""
    lost = writers[WEB2].acknowledged()
    lose(machines, "lab2")
    wanted = {WEB1: {"lab1", "lab3"}, WEB2: {"lab1", "lab3"}}
    done = repair(machines, repairer, wanted)
    assert done == {WEB1: [NEW_COPY], WEB2: [CHAIN]}
    assert nodes(machines, WEB2) == ("lab1", "lab3")
    for node in ("lab1", "lab3"):
        assert machines.check("cat", "/proc/drbd", node=node).count(COMPLETE) == 2
    # An acknowledged write was on both nodes.
    writers[WEB2].last = lost
    writers[WEB2].require_all("lab1", device(machines, WEB2))
    # The suspended instance is left alone.
    assert nodes(machines, WEB3) == ("lab2", "lab3")
    assert marks(machines, WEB3) == ["suspend"]


def _the_third_node_is_lost(machines, repairer, writers):
    """The new copies are lost as well; the guest that writes does not notice."""
    machines.lab.start([machines.lab.machine(SPARE)])
    shell(machines, OS, SPARE)
    join(machines, SPARE)
    lose(machines, "lab3")
    wanted = {WEB1: {"lab1", SPARE}, WEB2: {"lab1", SPARE}}
    done = repair(machines, repairer, wanted)
    # The results of the earlier repairs are still there.
    assert [done[name][-1] for name in (WEB1, WEB2)] == [NEW_COPY, NEW_COPY]
    writers[WEB1].stop()
    for instance in (WEB1, WEB2):
        machines.check("gnt-instance", "failover", "-f", instance)
        writers[instance].require_all(SPARE, device(machines, instance, SPARE))


def _an_instance_has_lost_both(machines, repairer):
    """Its data is gone: only the tag `reinstall` permits to begin again, on new nodes."""
    machines.check("gnt-instance", "remove-tags", WEB3, f"{REPAIR}:suspend")
    next(mark for _step in repairer.steps() for mark in marks(machines, WEB3))
    (mark,) = marks(machines, WEB3)
    assert re.fullmatch("result:reinstall:.*:enoperm:", mark)
    assert nodes(machines, WEB3) == ("lab2", "lab3")
    machines.check("gnt-instance", "add-tags", WEB3, f"{REPAIR}:reinstall")
    repair(machines, repairer, {WEB3: {"lab1", SPARE}})
    status = ("gnt-instance", "list", "--no-headers", "-o", "status", WEB3)
    assert machines.check(*status).strip() == "running"
    primary = nodes(machines, WEB3)[0]
    head = ("head", "-n", "1", device(machines, WEB3, primary))
    assert machines.check(*head, node=primary) == "new\n"
    assert machines.check("cat", "/proc/drbd", node=primary).count(COMPLETE) == 3
