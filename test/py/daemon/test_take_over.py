"""A live cluster of Debian's Ganeti 3.0.2 comes here and goes back; guests never stop."""

import json
import os
import re

import pytest

from fakes import debian, old_cluster, peers

pytestmark = [
    pytest.mark.daemon,
    pytest.mark.root,
    pytest.mark.skipif(os.getuid() != 0, reason="namespaces need root"),
]
WEB1, WEB2 = "web1.vc.test", "web2.vc.test"
RUNNING = {WEB1: "running", WEB2: "running"}


@pytest.fixture
def old(machines):
    """A cluster of two nodes with a guest on each: one on a file, one without disk."""
    peers.require()
    cluster = debian.DebianCluster(machines(2, "--isolated"))
    cluster.install()
    cluster.create()
    cluster.add(WEB1, "-t", "file", "-s", "8M", "--net=0:link=br0", "-n", "node2")
    cluster.add(WEB2, "-t", "diskless", "--no-install", "--no-nics", "-n", "node1")
    cluster.check("gnt-instance", "start", WEB2)
    assert sorted(cluster.guests()) == [WEB1, WEB2]
    return cluster


def test_a_live_cluster_comes_here_and_goes_back(old) -> None:
    new, guests = old.machines, old.guests()
    check_refusals(old)
    planned = new.check("take-over", "--plan")
    assert old.daemons() == set(debian.DAEMONS)
    assert not new.file("/var/lib/ganeti/take-over").exists()
    done = new.check("take-over", "-f", timeout_s=300)
    assert re.findall(r"^  \d\. (.*)", planned, re.MULTILINE)[:3] == [
        line
        for line in done.splitlines()
        if line.startswith(("stop", "keep", "import"))
    ]
    assert old.guests() == guests
    check_new(old)
    now = old.guests()
    new.check("take-over", "--undo", "-f", timeout_s=300)
    assert old.guests() == now
    check_old(old)


def check_refusals(old):
    """Obstacles of a take-over are listed, and nothing is changed."""
    data = old.config()
    broken = old_cluster.broken(data, old_cluster.references(data)[0])
    path = old.machines.file("/var/lib/ganeti/config.data")
    whole = path.read_bytes()
    path.write_text(json.dumps(broken))
    done = old.machines.run("take-over", "-f")
    path.write_bytes(whole)
    assert (done.code, old_cluster.UNKNOWN in done.stderr) == (1, True), done.output
    assert old.daemons() == set(debian.DAEMONS)


def check_new(old):
    """The daemons are ours, and manage the guests."""
    new = old.machines
    assert old.daemons() == old.daemons("node2") == set()
    assert new.run("test", "-e", debian.CRON).failed
    listed = new.check("gnt-instance", "list", "--no-headers", "-o", "name,status")
    assert dict(line.split() for line in listed.splitlines()) == RUNNING
    archived = new.check("gnt-job", "list", "--archived", "--no-headers")
    assert "INSTANCE_CREATE(web1.vc.test)" in archived
    assert "login: " in debian.console(new, "node2", WEB1)
    modify = ("gnt-instance", "modify")
    for words in (
        ("--net", "add:link=br0"),
        ("--disk", "add:size=8M"),
        ("--disk", "remove"),
        ("--net", "0:remove"),
    ):
        assert "hotplug:done" in new.check(*modify, *words, WEB1)
    new.check("gnt-instance", "migrate", "-f", WEB2)
    assert "login: " in debian.console(new, "node2", WEB2)
    new.check("gnt-instance", "shutdown", WEB1)
    new.check("gnt-instance", "start", WEB1)


def check_old(old):
    """Debian's daemons manage the guests again, with what was changed in between."""
    assert old.daemons() == set(debian.DAEMONS)
    old.check("test", "-e", debian.CRON)
    old.wait_until_listed(RUNNING)
    listed = old.check("gnt-job", "list", "--archived", "--no-headers")
    assert "INSTANCE_MIGRATE(web2.vc.test)" in listed
    assert "login: " in debian.console(old.machines, "node2", WEB2)
