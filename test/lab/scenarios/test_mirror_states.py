"""States of mirrors that are named and mended, conversions, and nodes that are emptied."""

import pytest

from lab.mirroring import (
    COMPLETE,
    GROUP,
    kernel,
    mirroring_cluster,
    shell,
    volumes,
    wait_until,
)
from lab.steps import timed

NODES = ["lab1", "lab2", "lab3"]
WEB1 = "web1.lab.test"
ADD = (
    *("gnt-instance", "add", "-t", "drbd", "--no-install", "--no-nics"),
    *("--ignore-ipolicy", "-B", "memory=64m", "-n", "lab1:lab2"),
    *("--disk", "0:size=64m", WEB1),
)
DEVICE = "/dev/drbd0"


@pytest.fixture
def trio(machines):
    """A cluster of three machines with a volume group each."""
    with mirroring_cluster(machines, NODES) as made:
        yield made


def named(machines):
    """Return the lines about a mirror in the details of the instance."""
    lines = machines.check("gnt-instance", "info", WEB1).splitlines()
    return [
        line.strip() for line in lines if "mirror:" in line or "to mend it:" in line
    ]


# Takes many minutes.
@pytest.mark.long
def test_states_are_named_disks_converted_and_nodes_emptied(trio):
    trio.check(*ADD)
    for step in (
        a_connection_is_ended,
        both_nodes_are_written_to,
        a_node_loses_its_volumes,
        a_primary_comes_back_with_old_data,
        a_primary_has_lost_its_volumes,
        mirrors_become_volumes_and_mirrors_again,
        nodes_are_emptied,
    ):
        timed(step, trio)
    trio.check("gnt-instance", "remove", "-f", "--shutdown-timeout=1", WEB1)
    assert [volumes(trio, node) for node in NODES] == [[], [], []]


def a_connection_is_ended(machines):
    """verify-disks connects the nodes again."""
    shell(machines, "drbdsetup disconnect ipv4:10.77.0.1:11000 ipv4:10.77.0.2:11000")
    text, command = named(machines)
    assert "node lab1.lab.test does not try to connect" in text
    assert command == f"to mend it: gnt-instance activate-disks {WEB1}"
    shown = machines.check("gnt-cluster", "verify-disks")
    assert f"Activating disks for instance '{WEB1}'" in shown
    wait_until(machines, COMPLETE, "lab1")
    assert named(machines) == []


def both_nodes_are_written_to(machines):
    """The named command gives up the data of the secondary node."""
    machines.lab.cut("lab1", "lab2", "both")
    shell(machines, f"echo one > {DEVICE}; sync {DEVICE}")
    wait_until(machines, "cs:WFConnection", "lab2")
    write = f"drbdsetup primary 0; echo two > {DEVICE}; sync {DEVICE}"
    shell(machines, f"{write}; drbdsetup secondary 0", "lab2")
    machines.lab.join()
    wait_until(machines, "cs:StandAlone", "lab1")
    text, command = named(machines)
    assert "split brain: both nodes were written to alone" in text
    shown = machines.check("gnt-cluster", "verify-disks")
    assert f"instance {WEB1}: disk/0: {text.removeprefix('mirror: ')}" in shown
    assert "No disks need" in shown
    refused = machines.refuse("gnt-instance", "failover", "-f", WEB1)
    assert "may be old there" in refused
    machines.check(*command.removeprefix("to mend it: ").split())
    assert COMPLETE in kernel(machines, "lab1")
    assert named(machines) == []
    assert machines.check("head", "-n", "1", DEVICE) == "one\n"


def a_node_loses_its_volumes(machines):
    shell(machines, "drbdsetup detach 0", "lab2")
    text, command = named(machines)
    assert "diskless: node lab2.lab.test has lost its copy" in text
    machines.check(*command.removeprefix("to mend it: ").split())
    assert named(machines) == []


def a_primary_comes_back_with_old_data(machines):
    """It gets what the guest has written since; without a connection, it is refused."""
    write = f"drbdsetup detach 0; echo newer > {DEVICE}; sync {DEVICE}"
    shell(machines, f"echo old > {DEVICE}; sync {DEVICE}; {write}")
    machines.check("gnt-instance", "deactivate-disks", WEB1)
    machines.check("gnt-instance", "activate-disks", "--wait-for-sync", WEB1)
    assert machines.check("head", "-n", "1", DEVICE) == "newer\n"
    shell(machines, write.replace("newer", "newest"))
    machines.check("gnt-instance", "deactivate-disks", WEB1)
    chain = "'add chain ip lab in { type filter hook input priority 0 ; }'"
    ports = "nft add rule ip lab in tcp {}port 11000-11100 drop"
    rules = " && ".join(ports.format(side) for side in "ds")
    shell(machines, f"nft add table ip lab && nft {chain} && {rules}")
    refused = machines.refuse("gnt-instance", "activate-disks", WEB1)
    assert "lab1.lab.test, the primary one, has older data than node lab2" in refused
    assert "cs:" not in kernel(machines, "lab1")
    shell(machines, "nft delete table ip lab")
    machines.check("gnt-instance", "activate-disks", "--wait-for-sync", WEB1)
    assert machines.check("head", "-n", "1", DEVICE) == "newest\n"
    assert named(machines) == []


def a_primary_has_lost_its_volumes(machines):
    """The named commands go on with the other node's data, on two nodes again."""
    shell(machines, f"drbdsetup down resource0; lvremove -q -f -y {GROUP}")
    text, command = named(machines)
    forced = f"gnt-instance failover --ignore-consistency {WEB1}"
    assert "missing on node lab1.lab.test, its primary node" in text
    assert f"run {forced} first" in text
    # It asks twice, and only at a terminal.
    shell(machines, f"printf 'y\\n%.0s' 1 2 3 4 | script -qec '{forced}' /dev/null")
    machines.check(*command.removeprefix("to mend it: ").split())
    machines.check("gnt-instance", "activate-disks", WEB1)
    assert named(machines) == []
    assert machines.check("head", "-n", "1", DEVICE, node="lab2") == "newest\n"
    machines.check("gnt-instance", "failover", "-f", WEB1)
    machines.check("gnt-instance", "activate-disks", WEB1)


def mirrors_become_volumes_and_mirrors_again(machines):
    """The data stays, also if the master daemon is killed on the way."""
    modify = ("gnt-instance", "modify", "-t")
    total = shell(
        machines,
        f"head -c 33554432 /dev/urandom > {DEVICE}; sync {DEVICE}; md5sum < {DEVICE}",
    )
    machines.check("gnt-instance", "deactivate-disks", WEB1)
    machines.check(*modify, "plain", WEB1)
    (volume,) = volumes(machines, "lab1")
    assert volumes(machines, "lab2") == []
    assert shell(machines, f"md5sum < /dev/{GROUP}/{volume}") == total
    done = machines.check(
        *modify, "drbd", "-n", "lab3", "--submit", "--print-jobid", WEB1
    )
    job = done.split()[-1]
    shell(machines, f"gnt-job watch {job} | grep -q 'creating disk/0 on lab1'")
    shell(machines, "kill -9 $(cat /run/ganeti/ganeti-masterd.pid)")
    machines.check("/usr/lib/ganeti/daemon-util", "start", "ganeti-masterd")
    ended = machines.run("gnt-job", "wait", job)
    if ended.returncode != 0:
        # It was undone, and can be repeated.
        assert volumes(machines, "lab1") == [volume]
        assert volumes(machines, "lab3") == []
        machines.check(*modify, "drbd", "-n", "lab3", WEB1)
    assert len(volumes(machines, "lab1")) == len(volumes(machines, "lab3")) == 2
    machines.check("gnt-instance", "failover", "-f", WEB1)
    machines.check("gnt-instance", "activate-disks", "--wait-for-sync", WEB1)
    assert shell(machines, f"md5sum < {DEVICE}", "lab3") == total


def nodes_are_emptied(machines):
    """The instance runs on the third machine, its other copy is on the first one."""
    machines.check("gnt-instance", "start", WEB1)
    machines.check("gnt-node", "migrate", "-f", "lab3")
    assert "ro:Primary/Secondary" in kernel(machines, "lab1")
    machines.check("gnt-node", "evacuate", "-f", "-s", "-n", "lab2", "lab3")
    assert volumes(machines, "lab3") == []
    machines.check("gnt-node", "failover", "-f", "lab1")
    assert "ro:Primary/Secondary" in kernel(machines, "lab2")
    assert COMPLETE in kernel(machines, "lab2")
    machines.check("gnt-node", "evacuate", "-f", "-p", "-I", ".", "lab2")
    assert "ro:Primary/Secondary" in kernel(machines, "lab1")
    assert named(machines) == []
