"""Exclusive storage: each disk has physical volumes of its own, on real groups."""

import json

import pytest

from lab.mirroring import GROUP, mirroring_cluster

NODES = ["lab1", "lab2"]
#: The physical volumes of each node.
UNITS = ("/dev/vdb", "/dev/vdc")
ADD = (
    *("gnt-instance", "add", "-t", "plain", "--no-install", "--no-nics"),
    *("--ignore-ipolicy", "-B", "memory=16m"),
)
WEB1, WEB2, WEB3 = "web1.lab.test", "web2.lab.test", "web3.lab.test"


@pytest.fixture
def pair(machines):
    """A cluster of two machines with two physical volumes each."""
    with mirroring_cluster(machines, NODES, UNITS) as made:
        yield made


def devices(machines, node="lab1"):
    """Return volume -> the physical volumes that it is on."""
    argv = ("lvs", "--reportformat", "json", "-o", "lv_name,devices", GROUP)
    (report,) = json.loads(machines.check(*argv, node=node))["report"]
    placed = {}
    for row in report["lv"]:
        units = {part.split("(")[0] for part in row["devices"].split(",")}
        placed.setdefault(row["lv_name"], set()).update(units)
    return placed


def placed(machines):
    """Return the sets of physical volumes of the disks, none of which may be shared."""
    sets = list(devices(machines).values())
    assert sum(map(len, sets)) == len(set().union(*sets)), sets
    return sorted(map(len, sets))


def free(machines):
    """Return all and free physical volumes of the first node."""
    fields = ("--no-headers", "--separator=|", "-o", "sptotal,spfree")
    return machines.check("gnt-node", "list", *fields, "lab1").strip()


# Takes two minutes.
@pytest.mark.long
def test_disks_share_no_physical_volume(pair):
    pair.check("gnt-cluster", "modify", "--node-parameters", "exclusive_storage=true")
    add = (*ADD, "-n", "lab1", "--disk")
    pair.check(*add, "0:size=512m,spindles=1", WEB1)
    assert placed(pair) == [1]
    assert free(pair) == "2|1"
    # The disk keeps to the volume that it has.
    pair.check("gnt-instance", "grow-disk", "--ignore-ipolicy", WEB1, "0", "256m")
    assert placed(pair) == [1]
    before = devices(pair)
    mirrored = ["drbd" if word == "plain" else word for word in ADD]
    for argv, words in (
        (("gnt-instance", "grow-disk", "--ignore-ipolicy", WEB1, "0", "24g"), "disk/0"),
        ((*add, "0:size=1g,spindles=2", WEB3), "lab1.lab.test"),
        (
            (*mirrored, "-n", "lab1:lab2", "--disk", "0:size=128m,spindles=1", WEB3),
            "drbd is not possible with the exclusive storage",
        ),
    ):
        text = pair.refuse(*argv)
        print(text)
        assert words in text
        assert devices(pair) == before
    pair.check(*add, "0:size=1g,spindles=1", WEB2)
    assert placed(pair) == [1, 1]
    assert free(pair) == "2|0"
    verified = pair.run("gnt-cluster", "verify", "--error-codes").stdout
    assert "exclusive storage" not in verified
    _a_foreign_volume_is_named(pair)
    for name in (WEB1, WEB2):
        pair.check("gnt-instance", "remove", "-f", name)
    pair.check(*add, "0:size=1g,spindles=2", WEB3)
    assert placed(pair) == [2]
    pair.check("gnt-instance", "remove", "-f", WEB3)
    assert devices(pair) == {}


def _a_foreign_volume_is_named(machines):
    make = f"lvcreate -qq -y -L 64m -n foreign {GROUP} /dev/vdc"
    machines.check("sh", "-ec", make)
    text = machines.run("gnt-cluster", "verify", "--error-codes").stdout
    (line,) = [line for line in text.splitlines() if "is shared by" in line]
    assert "ENODELVM:node:lab1" in line
    assert "physical volume /dev/vdc" in line
    assert f"{GROUP}/foreign" in line
    machines.check("lvremove", "-qq", "-f", f"{GROUP}/foreign")
