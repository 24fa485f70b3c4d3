"""The life of a real guest of Xen on a cluster of two machines below Xen.

The guest writes the random number of its start and a counter to its disk, so that the
disk shows whether it went on, was started again, or ran twice.
"""

import re
import time

import pytest

from lab import lab as labs
from lab import xen_guest
from lab.product import STORED
from lab.scenarios.conftest import Machines

MEMORY_MIB = 1400
WEB1 = "web1.lab.test"
DISK = "/dev/drbd0"
NODES = ("lab1", "lab2")
#: A guest needs a minute for what takes a second on a processor.
PATIENCE_S = 300
#: Words about a node that is too slow.
SLOW = re.compile("does not answer|timed out|Communication failure", re.IGNORECASE)

#: In the place of xl at the target of a migration: ends in the middle of a guest.
FAILING_XL = """#!/bin/sh
if [ "$1" = restore ]; then
  head -c 1000000 > /dev/null
  exit 1
fi
exec /usr/lib/xen-4.*/bin/xl "$@"
"""

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def machines():
    """A cluster of two machines below Xen, with a running guest on the first one."""
    made = labs.up(
        STORED / "xen-guests", count=2, memory_mib=MEMORY_MIB, disks=1, xen=True
    )
    try:
        yield _with_guest(Machines(made))
    finally:
        made.down()


def _with_guest(cluster):
    for node in NODES:
        xen_guest.install(cluster, node)
        cluster.check("vgcreate", "-q", "xenvg", "/dev/vdb", node=node)
    places = f"kernel_path={xen_guest.KERNEL},initrd_path={xen_guest.ARCHIVE}"
    cluster.check(
        *("gnt-cluster", "init", "--vg-name", "xenvg"),
        *("--enabled-hypervisors", "xen-pvm", "-H", f"xen-pvm:{places}"),
        *("--enabled-disk-templates", "drbd", "--master-netdev", "br0"),
        *("-N", "link=br0", "--no-etc-hosts", "cluster.lab.test"),
    )
    cluster.check("gnt-node", "add", "--no-ssh-key-check", "lab2")
    cluster.check(
        *("gnt-instance", "add", "-t", "drbd", "--disk", "0:size=1g", "--no-install"),
        *("-B", "maxmem=128m,minmem=96m", "-n", "lab1:lab2", WEB1),
    )
    cluster.check("gnt-instance", "startup", WEB1)
    return cluster


def written(machines, node):
    """Return the number of the guest's start and its counter, as on its disk."""
    argv = ("dd", f"if={DISK}", "bs=512", "count=1", "iflag=direct", "status=none")
    words = machines.check(*argv, node=node).replace("\0", "").split()
    return (words[0], int(words[1])) if words else ("", 0)


def wait_until_written(machines, node, wanted):
    """Look at the disk until a condition holds; return what is on it."""
    deadline = time.monotonic() + PATIENCE_S
    while not wanted(*(shown := written(machines, node))):
        assert time.monotonic() < deadline, shown
    return shown


def wait_until_started(machines, node, before):
    """Look at the disk until the guest was started again; return the new number."""
    start, _number = wait_until_written(
        machines, node, lambda now, _number: now not in {"", before}
    )
    return start


def answered(machines, *argv):
    """Run a command until no node is too slow to answer; return the finished process.

    A guest that starts or is saved takes the processor of its machine for seconds.
    """
    deadline = time.monotonic() + PATIENCE_S
    while SLOW.search((done := machines.run(*argv)).stdout + done.stderr):
        assert time.monotonic() < deadline, done.stdout + done.stderr
    return done


def wait_until_listed(machines, fields, wanted):
    """Look at the list of instances until it has these values of the guest."""
    argv = ("gnt-instance", "list", "--no-headers", "-o", fields, WEB1)
    deadline = time.monotonic() + PATIENCE_S
    while (shown := machines.check(*argv).split()) != wanted:
        assert time.monotonic() < deadline, shown


def domains(machines, node):
    """Return the states of the guests on a node by name."""
    rows = [
        line.split() for line in machines.check("xl", "list", node=node).split("\n")
    ]
    return {row[0]: row[4] for row in rows[2:] if row}


def test_a_guest_starts_reboots_changes_its_memory_and_shuts_down(machines):
    start, number = wait_until_written(machines, "lab1", lambda start, _number: start)
    wait_until_written(
        machines, "lab1", lambda now, more: (now, more > number) == (start, True)
    )
    wait_until_listed(machines, "status,oper_ram,oper_vcpus", ["running", "128M", "1"])
    machines.check("gnt-instance", "modify", "-m", "100m", WEB1)
    wait_until_listed(machines, "oper_ram", ["100M"])
    done = answered(machines, "gnt-cluster", "verify")
    assert (done.returncode, "ERROR" in done.stdout) == (0, False), done.stdout
    for how in ("soft", "hard"):
        machines.check("gnt-instance", "reboot", "-t", how, WEB1)
        start = wait_until_started(machines, "lab1", start)
    machines.check("gnt-instance", "shutdown", WEB1)
    assert domains(machines, "lab1") == {}
    log = machines.check("cat", f"/var/log/xen/xl-{WEB1}.log")
    assert log.count("has shut down, reason code 0") == 1
    machines.check("gnt-instance", "startup", WEB1)
    wait_until_started(machines, "lab1", start)


def test_a_guest_moves_and_is_never_on_both_nodes(machines):
    start, number = wait_until_written(machines, "lab1", lambda now, more: more > 5)
    done = answered(machines, "gnt-instance", "migrate", "-f", WEB1)
    assert done.returncode != 0
    assert "without shadow page tables" in done.stderr
    assert "the guest runs on node lab1.lab.test as before" in done.stderr
    machines.check("gnt-instance", "migrate", "-f", "--non-live", WEB1)
    assert domains(machines, "lab1") == {}
    assert list(domains(machines, "lab2")) == [WEB1]
    wait_until_written(
        machines, "lab2", lambda now, more: (now, more > number) == (start, True)
    )


def test_a_guest_that_does_not_arrive_goes_on_where_it_was(machines):
    start, number = wait_until_written(machines, "lab2", lambda now, more: more > 5)
    machines.check(
        *("sh", "-c", 'cat > "$1.new"; chmod 755 "$1.new"; mv "$1.new" "$1"'),
        *("sh", "/usr/sbin/xl"),
        node="lab1",
        stdin=FAILING_XL,
    )
    text = machines.refuse("gnt-instance", "migrate", "-f", "--non-live", WEB1)
    assert "the guest runs on node lab2.lab.test as before" in text
    assert domains(machines, "lab1") == {}
    assert list(domains(machines, "lab2")) == [WEB1]
    wait_until_written(
        machines, "lab2", lambda now, more: (now, more > number) == (start, True)
    )
