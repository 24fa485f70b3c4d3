"""``burnin`` on real mirrors: every step passes, and nothing is left on any node."""

import re

import pytest

from lab.mirroring import GROUP, active, mapped, mirroring_cluster, ports
from lab.steps import timed

NODES = ["lab1", "lab2", "lab3"]
WEB1, WEB2 = "web1.lab.test", "web2.lab.test"
BURNIN = (
    *("/usr/lib/ganeti/tools/burnin", "-v", "-o", "tiny+default", "-t", "drbd"),
    *("--disk-size", "128m", "--disk-growth", "64m"),
    *("--maxmem-size", "64m", "--minmem-size", "48m", "--vcpu-count", "1"),
)
#: Limits of the policy that disks and guests of this size keep.
SMALL = (
    "min:cpu-count=1,disk-count=1,disk-size=64,memory-size=32,nic-count=0,spindle-use=1"
    "/max:cpu-count=8,disk-count=16,disk-size=1024,memory-size=256,nic-count=8,"
    "spindle-use=12"
)
#: Steps that disks of this template, three nodes and two instances leave out.
LEFT_OUT = ["Moving instances", "Renaming instances"]


@pytest.fixture
def trio(machines):
    """A cluster of three machines with a volume group each."""
    with mirroring_cluster(machines, NODES) as made:
        made.check("gnt-cluster", "modify", "--ipolicy-bounds-specs", SMALL)
        yield made


# Takes many minutes.
@pytest.mark.long
@pytest.mark.parametrize(
    "more",
    [(), ("--parallel", "--early-release")],
    ids=["one after the other", "all at once"],
)
def test_all_steps_pass_and_nothing_is_left(trio, more):
    timed(_burn_in, trio, *more)
    last, released = ports(trio)
    assert released == [*range(released[0], last + 1)]
    for node in NODES:
        assert trio.check("lvs", "--noheadings", GROUP, node=node).strip() == ""
        assert (mapped(trio, node), active(trio, node)) == (0, 0)
        remains = "find /run/ganeti/fake-hypervisor /srv/ganeti/export -type f"
        assert trio.run("sh", "-c", remains, node=node).stdout == ""
    assert trio.check("gnt-instance", "list", "--no-headers") == ""
    assert trio.check("gnt-backup", "list", "--no-headers") == ""


def _burn_in(machines, *more):
    # The time of each line shows how long a step takes.
    stamp = 'while IFS= read -r line; do echo "$(date +%T) $line"; done'
    script = f'set -o pipefail; "$@" 2>&1 | {stamp}'
    argv = ("bash", "-c", script, "burnin", *BURNIN, *more, WEB1, WEB2)
    done = machines.run(*argv, timeout_s=3000)
    print(done.stdout, flush=True)
    assert done.returncode == 0
    stages = re.findall(r"^\S+ - (.*)", done.stdout, re.MULTILINE)
    assert stages[-2:] == ["Removing instances", "All steps passed"]
    left = [text.split(":")[0] for text in stages if "left out" in text]
    assert left == LEFT_OUT
