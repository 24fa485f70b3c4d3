"""Disks are converted between all templates of the lab, and keep their content.

After each conversion no volume, minor, port, file or entry of device mapper is left of
the disks before.
"""

import re

import pytest

from lab.holding import Held
from lab.mirroring import (
    GROUP,
    empty,
    errors_of_verify,
    fill,
    kill_master,
    mirroring_cluster,
    ports_in_use,
    shell,
    start_master,
    taken,
)

# All take many minutes together.
pytestmark = pytest.mark.long
NODES = ["lab1", "lab2"]
WEB1 = "web1.lab.test"
ADD = (
    *("gnt-instance", "add", "-t", "plain", "--no-install", "--no-nics", "-n", "lab1"),
    *("--ignore-ipolicy", "-B", "memory=64m"),
    *("--disk", "0:size=32m", "--disk", "1:size=64m", WEB1),
)
SIZES_MIB = (32, 64)
TEMPLATES = ("drbd", "plain", "file", "sharedfile")
#: Each pair of templates once, from plain to plain.
ROUND = (
    *("drbd", "file", "drbd", "sharedfile", "drbd", "plain"),
    *("file", "sharedfile", "file", "plain", "sharedfile", "plain"),
)
FOLDERS = {
    "file": "/srv/ganeti/file-storage",
    "sharedfile": "/srv/ganeti/shared-file-storage",
}
_INACTIVE_MIRROR = (4, 4, 0, 2)
#: Counts of both nodes: volumes, entries, minors in use, all minors.
PLACES = {
    "plain": [(2, 2, 0, 0), (0, 0, 0, 0)],
    "drbd": [_INACTIVE_MIRROR, _INACTIVE_MIRROR],
    "file": [(0, 0, 0, 0), (0, 0, 0, 0)],
    "sharedfile": [(0, 0, 0, 0), (0, 0, 0, 0)],
}


class Disks:
    """The disks of one instance, which is stopped."""

    def __init__(self, machines):
        self.machines = machines
        machines.check(*ADD)
        for path in self._activate():
            shell(machines, f"head -c 24M /dev/urandom > /run/random; {_put(path)}")
        self.digests = self.read()

    def _activate(self):
        """Activate the disks; return their paths on the first node."""
        lines = self.machines.check("gnt-instance", "activate-disks", WEB1)
        paths = re.findall(r"disk/\d+:(\S+)", lines)
        assert len(paths) == len(SIZES_MIB), lines
        return paths

    def read(self):
        """Return the checksums; the disks are inactive afterwards."""
        sums = [
            shell(self.machines, f"head -c {size}M {path} | md5sum")
            for path, size in zip(self._activate(), SIZES_MIB, strict=True)
        ]
        self.machines.check("gnt-instance", "deactivate-disks", WEB1)
        return sums

    def template(self):
        """Return the recorded template."""
        row = ("gnt-instance", "list", "--no-headers", "-o", "disk_template", WEB1)
        return self.machines.check(*row).strip()

    def state(self):
        """Return what the nodes have of the disks, and the number of ports."""
        files = [
            shell(self.machines, f"find {' '.join(FOLDERS.values())} -mindepth 1", node)
            for node in NODES
        ]
        places = [taken(self.machines, node) for node in NODES]
        return places, ports_in_use(self.machines), files

    def convert(self, target, *more):
        """Convert the disks, which must succeed."""
        self.machines.check(*_modify(target), *more, WEB1)

    def require(self, target):
        """The disks have a template, their content, and no place besides."""
        assert self.template() == target
        places, ports, files = self.state()
        assert places == PLACES[target]
        assert ports == (2 if target == "drbd" else 0)
        folder = FOLDERS.get(target)
        # The directory of the instance, and two files.
        assert [len(text.split()) for text in files] == [3 if folder else 0, 0]
        assert folder is None or all(
            path.startswith(f"{folder}/") for path in files[0].split()
        )
        assert self.read() == self.digests
        assert errors_of_verify(self.machines) == []


def _put(path):
    return f"dd if=/run/random of={path} bs=1M conv=notrunc,fsync status=none"


def _modify(target):
    second = ("-n", "lab2") if target == "drbd" else ()
    return ("gnt-instance", "modify", "-t", target, *second)


@pytest.fixture(scope="module")
def disks(kept_machines):
    with mirroring_cluster(kept_machines, NODES) as machines:
        folders = " ".join(FOLDERS.values())
        listed = "tr ' ' '\\n' > /etc/ganeti/file-storage-paths"
        for node in NODES:
            shell(machines, f"mkdir -p {folders}; echo {folders} | {listed}", node)
        enabled = ",".join(TEMPLATES)
        machines.check(
            *("gnt-cluster", "modify", "--enabled-disk-templates", enabled),
            *("--ipolicy-disk-templates", enabled),
            *("--file-storage-dir", FOLDERS["file"]),
            *("--shared-file-storage-dir", FOLDERS["sharedfile"]),
        )
        made = Disks(machines)
        yield made
        machines.check("gnt-instance", "remove", "-f", "--shutdown-timeout=1", WEB1)
        assert made.state() == ([(0, 0, 0, 0)] * 2, 0, ["", ""])
        for node in NODES:
            shell(machines, f"rm -r {folders}", node)


def test_each_conversion_keeps_the_content_and_leaves_nothing(disks):
    disks.require("plain")
    done, source = set(), "plain"
    for target in ROUND:
        print(f"{source} -> {target}", flush=True)
        disks.convert(target)
        disks.require(target)
        done.add((source, target))
        source = target
    assert len(done) == len(TEMPLATES) * (len(TEMPLATES) - 1)


def back_to_plain(disks):
    """Whatever the test before has left, begin with plain disks."""
    if disks.template() != "plain":
        disks.convert("plain")


def test_a_conversion_that_a_full_group_refuses_leaves_nothing(disks):
    machines = disks.machines
    back_to_plain(disks)
    for node in NODES:
        fill(machines, node)
        before = disks.state()
        try:
            text = machines.refuse(*_modify("drbd"), WEB1)
            assert f"{node}.lab.test" in text
            assert disks.state() == before
        finally:
            empty(machines, node)
    disks.convert("file")
    fill(machines, "lab1")
    before = disks.state()
    try:
        for target in ("plain", "drbd"):
            assert "lab1.lab.test" in machines.refuse(*_modify(target), WEB1)
            assert disks.state() == before
    finally:
        empty(machines, "lab1")
    disks.require("file")


#: Source, target, where it is held, the template afterwards, and what the job says; a
#: conversion goes on, if it says nothing.
INTERRUPTED = [
    (
        *("plain", "drbd", ("lab2", "drbdmeta", "drbdmeta*create-md*")),
        *("plain", "the disks are plain, with all data; repeat the command"),
    ),
    ("drbd", "plain", ("lab2", "lvm", "lvremove*"), "plain", ""),
    (
        *("file", "drbd", ("lab2", "drbdmeta", "drbdmeta*create-md*")),
        *("plain", "the disks are plain, with all data; repeat the command"),
    ),
    ("file", "plain", ("lab1", "lvm", "lvcreate*"), "file", "master"),
    ("plain", "file", ("lab1", "lvm", "lvremove*"), "file", "master"),
]


@pytest.mark.parametrize(
    ("source", "target", "place", "after", "words"),
    INTERRUPTED,
    ids=[f"{source} to {target}" for source, target, *_more in INTERRUPTED],
)
def test_a_conversion_ends_as_documented_after_the_master_was_killed(
    disks, source, target, place, after, words
):
    machines = disks.machines
    if disks.template() != source:
        back_to_plain(disks)
        if source != "plain":
            disks.convert(source)
    held = Held(machines, *place)
    argv = (*_modify(target), "--submit", "--print-jobid", WEB1)
    job = machines.check(*argv).split()[-1]
    held.wait_until_reached()
    kill_master(machines)
    held.release()
    start_master(machines)
    ended = machines.run("gnt-job", "wait", job)
    text = ended.stdout + ended.stderr
    assert bool(ended.returncode) == bool(words), text
    assert words in text
    # The master removes by itself what it has noted.
    (count, *_), _second = PLACES[after]
    left = f"[ $(lvs --noheadings {GROUP} | wc -l) = {count} ]"
    shell(machines, f"until {left}; do sleep 0.5; done")
    disks.require(after)
    if after != target:
        disks.convert(target)
        disks.require(target)
