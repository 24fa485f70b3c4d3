"""Instances go to other groups and nodes, on real daemons, running and stopped."""

import pathlib

import pytest

pytestmark = pytest.mark.daemon
ADD = ("gnt-instance", "add", "-s", "16M", "-B", "memory=96M", "--no-nics")
ADD += ("-o", "tiny+default")
GUEST, STOPPED, FILED = "guest.vc.test", "stopped.vc.test", "filed.vc.test"


@pytest.fixture(scope="module")
def cluster(cluster_of):
    """Two groups of nodes; a running guest, a stopped one, one with a file."""
    made = cluster_of(5, hypervisors="kvm,fake")
    made.check("gnt-group", "add", "far")
    made.check("gnt-group", "assign-nodes", "far", "node4", "node5")
    made.check(*ADD, "-t", "sharedfile", "-H", "kvm", "-s", "64M", "-n", "node1", GUEST)
    fake = ("-H", "fake", "--no-install", "-n", "node2")
    made.check(*ADD, *fake, "-t", "sharedfile", STOPPED)
    made.check(*ADD, *fake, "-t", "file", FILED)
    return made


def where(cluster, name):
    """Return node, group and status of an instance."""
    line = cluster.check(
        *("gnt-instance", "list", "--no-headers", "--separator=|"),
        *("-o", "pnode,pnode.group,status", name),
    )
    node, group, status = line.strip().split("|")
    return node.removesuffix(".vc.test"), group, status


def bring(cluster, name, group):
    """Take an instance to a group by ``change-group``."""
    if where(cluster, name)[1] == group:
        return
    text = cluster.check("gnt-instance", "change-group", "--to", group, name)
    assert f"Instance '{name}' changed group successfully." in text


def test_a_running_guest_changes_its_group_and_keeps_running(cluster):
    old = where(cluster, GUEST)[1]
    new = "far" if old == "default" else "default"
    bring(cluster, GUEST, new)
    assert where(cluster, GUEST)[1:] == (new, "running")


def test_a_group_is_emptied(cluster):
    bring(cluster, STOPPED, "far")
    text = cluster.check("gnt-group", "evacuate", "-I", "hail", "far")
    assert "evacuated successfully" in text
    assert where(cluster, STOPPED)[1:] == ("default", "ADMIN_down")
    assert where(cluster, GUEST)[1:] == ("default", "running")


def test_a_node_is_emptied_within_its_group(cluster):
    # Where the file cannot be in the way.
    bring(cluster, GUEST, "far")
    node, group, _status = where(cluster, GUEST)
    text = cluster.check("gnt-node", "evacuate", "-f", "-p", "-I", "hail", node)
    assert "evacuated successfully" in text
    other, same_group, status = where(cluster, GUEST)
    assert (same_group, status) == (group, "running")
    assert other != node


def test_what_cannot_move_is_named_and_nothing_is_done(cluster):
    actual = cluster.run("gnt-instance", "change-group", "--to", "far", FILED)
    assert actual.code == 1
    assert f"{FILED}: Instances of type file cannot be relocated" in actual.output
    assert where(cluster, FILED)[1] == "default"


def test_an_allocator_chooses_where_lost_disks_are_made_again(cluster):
    (old, _group, _status) = where(cluster, FILED)
    cluster.check("gnt-node", "modify", "--drained", "yes", old)
    text = cluster.check("gnt-instance", "recreate-disks", "-I", "hail", FILED)
    cluster.check("gnt-node", "modify", "--drained", "no", old)
    assert "not removed" in text
    new, group, status = where(cluster, FILED)
    assert new != old
    assert (group, status) == ("default", "ADMIN_down")
    again = cluster.run("gnt-instance", "recreate-disks", FILED)
    assert (again.code, "only lost disks are recreated" in again.output) == (1, True)
    text = cluster.check("gnt-instance", "activate-disks", FILED)
    path = pathlib.Path(text.strip().split(":")[-1])
    assert path.stat().st_size == 16 << 20
    cluster.check("gnt-instance", "deactivate-disks", FILED)
