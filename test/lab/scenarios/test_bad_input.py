"""Faults of the disks of a node are named in one error, and nothing stays behind.

Real groups, minors, modules and disks; what LVM, DRBD and the configuration have is
compared before and after each refusal.
"""

import re

import pytest

from lab.mirroring import GROUP, mirroring_cluster

NODES = ["lab1", "lab2", "lab3"]
NAME = "web1.lab.test"
ADD = (
    *("gnt-instance", "add", "-t", "drbd", "--no-install", "--ignore-ipolicy"),
    *("-B", "memory=16m", "--no-wait-for-sync"),
)
DISK = ("--no-nics", "--disk", "0:size=16m")
#: A device of somebody else with the first number; its volumes are in the group.
FOREIGN = f"""
lvcreate -qq -y -L 16m -n foreign.data {GROUP}
lvcreate -qq -y -L 128m -n foreign.meta {GROUP}
drbdmeta --force 999999 v08 /dev/{GROUP}/foreign.meta 0 create-md
drbdsetup new-resource foreign
drbdsetup new-minor foreign 0 0
drbdsetup attach 0 /dev/{GROUP}/foreign.data /dev/{GROUP}/foreign.meta 0
"""
NOT_FOREIGN = f"""
drbdsetup down foreign
lvremove -qq -f {GROUP}/foreign.data {GROUP}/foreign.meta
"""
OLD_MODULE = """
echo 'version: 8.3.16 (api:88/proto:86-97)' > /run/old-drbd
mount --bind /run/old-drbd /proc/drbd
"""
#: An OS definition whose create script never ends.
HANGING = """
mkdir -p /srv/ganeti/os/hanging && cd /srv/ganeti/os/hanging && echo 10 > ganeti_api_version
for name in import export rename create; do
printf '#!/bin/sh\\necho begun\\nexec tail -f /dev/null\\n' > $name; chmod 755 $name
done
"""
#: Frames of a machine come late: an answer takes three seconds more.
LATE = "modprobe sch_netem; tc qdisc add dev eth0 root netem delay 3s"
STATE = "lvs --noheadings -o lv_name,lv_size; grep cs: /proc/drbd | cut -d: -f1"


@pytest.fixture
def three(machines):
    with mirroring_cluster(machines, NODES) as made:
        yield made


def shell(machines, script, node="lab1"):
    return machines.check("sh", "-ec", script, node=node)


def state(machines):
    """Return what the nodes and the configuration have."""
    names = shell(machines, "gnt-instance list --no-headers -o name,pnode,snodes")
    return names, [sorted(shell(machines, STATE, node).split()) for node in NODES]


def refused(machines, pattern, *argv):
    """Run a command that must fail with a text, and leave nothing."""
    before = state(machines)
    text = machines.refuse(*argv)
    assert re.search(pattern, text), text
    assert state(machines) == before


# Takes many minutes.
@pytest.mark.long
def test_faults_of_disks_are_named_in_one_error_and_nothing_stays(three):
    _groups(three)
    _numbers_and_modules(three)
    _addresses(three)
    _volumes(three)
    _a_disk_with_errors(three)
    _foreign_volumes(three)
    _a_script_that_hangs(three)
    _memory_for_failovers(three)
    _a_peer_that_answers_late(three)


def _groups(machines):
    fill = f"lvcreate -qq -y -l 100%FREE -n filler {GROUP}"
    shell(machines, f"{fill}; lvreduce -qq -y -f -L -100m {GROUP}/filler", "lab2")
    refused(
        machines,
        rf"{NAME}: needs 144 MiB in volume group {GROUP} of node lab2\.lab\.test, which"
        " has 100 MiB free",
        *(*ADD, *DISK, "-n", "lab1:lab2", NAME),
    )
    shell(machines, f"lvremove -qq -f {GROUP}/filler", "lab2")
    refused(
        machines,
        r"volume group other is missing on node lab1\.lab\.test",
        *(*ADD, "--no-nics", "--disk", "0:size=16m,vg=other"),
        *("-n", "lab1:lab2", NAME),
    )


def _numbers_and_modules(machines):
    add = (*ADD, *DISK, "-n", "lab3:lab2", NAME)
    shell(machines, FOREIGN, "lab3")
    refused(
        machines,
        r"node lab3\.lab\.test: .*minor 0 is in use by resource foreign with"
        rf" /dev/{GROUP}/foreign\.data.*drbdsetup down foreign on this node",
        *add,
    )
    shell(machines, NOT_FOREIGN, "lab3")
    shell(machines, OLD_MODULE, "lab3")
    refused(
        machines,
        r"node lab3\.lab\.test: DRBD: wanted version 8\.4 or 9, found 8\.3\.16",
        *add,
    )
    shell(machines, "umount /proc/drbd", "lab3")


def _addresses(machines):
    shell(
        machines,
        "gnt-network add --network 192.0.2.0/30 --gateway 192.0.2.1 small;"
        " gnt-network connect -N mode=bridged,link=br0 small",
    )
    pool = (*ADD, "--disk", "0:size=16m", "--net", "0:ip=pool,network=small")
    machines.check(*pool, "-n", "lab1:lab2", "web2.lab.test")
    refused(
        machines,
        r"nic 0: network small \(192\.0\.2\.0/30\) has no free address",
        *(*pool, "-n", "lab1:lab2", NAME),
    )


def _volumes(machines):
    """A lost volume of a copy."""
    name = "web2.lab.test"
    machines.check("gnt-instance", "deactivate-disks", name)
    lost = shell(
        machines, f"lvs --noheadings -o lv_name {GROUP} | grep disk0_data", "lab2"
    ).strip()
    shell(machines, f"lvrename -qq {GROUP} {lost} hidden", "lab2")
    refused(
        machines,
        rf"disk/0: node lab2\.lab\.test: .*{lost}.*{GROUP} has no such volume",
        *("gnt-instance", "activate-disks", name),
    )
    shell(machines, f"lvrename -qq {GROUP} hidden {lost}", "lab2")
    machines.check("gnt-instance", "activate-disks", "--wait-for-sync", name)
    machines.check("gnt-instance", "remove", "-f", name)


def _a_disk_with_errors(machines):
    """The group cannot be read; afterwards all is as before."""
    before = state(machines)
    machines.lab.fail_disk("lab2", 0, ["read"])
    text = machines.refuse(*ADD, *DISK, "-n", "lab3:lab2", NAME)
    machines.lab.fail_disk("lab2", 0, [])
    assert re.search(rf"{GROUP} .*on node lab2\.lab\.test, or cannot be read", text), (
        text
    )
    assert state(machines) == before


def _foreign_volumes(machines):
    """Volumes of somebody else, or of nobody, are not adopted."""
    plain = ("gnt-instance", "add", "-t", "plain", "--no-install", "--no-nics")
    adopt = (*plain, "--ignore-ipolicy", "-B", "memory=16m", "-n", "lab1", "--disk")
    refused(machines, "no_such", *adopt, "0:adopt=no_such", NAME)
    make = f"lvcreate -qq -y -L 64m -n used {GROUP}; mkfs.ext4 -q /dev/{GROUP}/used"
    shell(machines, f"{make}; mkdir -p /mnt/used; mount /dev/{GROUP}/used /mnt/used")
    refused(machines, "used", *adopt, "0:adopt=used", NAME)
    shell(machines, f"umount /mnt/used; lvremove -qq -f {GROUP}/used")
    machines.check(*adopt, "0:size=16m", "web3.lab.test")
    listed = shell(machines, f"lvs --noheadings -o lv_name {GROUP}").split()
    (owned,) = [name for name in listed if name.endswith("disk0")]
    refused(machines, owned, *adopt, f"0:adopt={owned}", NAME)
    machines.check("gnt-instance", "remove", "-f", "web3.lab.test")


def _a_script_that_hangs(machines):
    """The administrator kills its job, and removes the instance that it leaves."""
    logs = "/var/log/ganeti/os/add-hanging-*"
    for node in NODES:
        shell(machines, f"{HANGING}\nrm -f {logs}", node)
    before = state(machines)
    add = [word for word in ADD if word != "--no-install"]
    submit = ("--submit", "--print-jobid", "-o", "hanging", "-n", "lab1:lab2", NAME)
    job = machines.check(*add, *DISK, *submit).split()[-1]
    begun = f"until grep -qs begun {logs}; do sleep 0.5; done"
    shell(machines, begun)
    machines.check("gnt-job", "cancel", "--kill", "--yes-do-it", job)
    text = machines.refuse("gnt-job", "wait", job)
    assert f"Job {job} failed" in text
    assert shell(machines, "pgrep -f 'tail -[f] /dev/null' || true") == ""
    shown = machines.check("gnt-instance", "info", NAME)
    assert "not finished, reinstall or remove the instance" in shown
    machines.check("gnt-instance", "remove", "-f", NAME)
    assert state(machines) == before


def _memory_for_failovers(machines):
    """Verify names the node that cannot take the instances of another one."""
    # One uses the memory of the node to which the other one would fail over.
    pairs = {"web2.lab.test": "lab2:lab1", "web3.lab.test": "lab3:lab2"}
    for name, pair in pairs.items():
        machines.check(*ADD, *DISK, "-B", "memory=400m", "-n", pair, name)
        machines.check("gnt-instance", "start", name)
    text = machines.run("gnt-cluster", "verify", "--error-codes").stdout
    words = "not enough memory to accommodate instance failovers should node"
    lines = [line for line in text.splitlines() if words in line]
    assert any("ENODEN1:node:lab2" in line and "lab3" in line for line in lines), text
    for name in pairs:
        machines.check("gnt-instance", "remove", "-f", "--shutdown-timeout=1", name)


def _a_peer_that_answers_late(machines):
    """DRBD or a call gives up; nothing stays, and the instance can be made in time."""
    add = (*ADD, *DISK, "-n", "lab1:lab2", NAME)
    before = state(machines)
    shell(machines, LATE, "lab2")
    text = machines.refuse(*add)
    shell(machines, "tc qdisc del dev eth0 root", "lab2")
    assert re.search("disk/0.* so the instance was removed again", text), text
    # The master removes remains of a silent node when that answers.
    while state(machines) != before:
        pass
    machines.check(*add)
    machines.check("gnt-instance", "activate-disks", "--wait-for-sync", NAME)
    machines.check("gnt-instance", "remove", "-f", "--shutdown-timeout=1", NAME)
