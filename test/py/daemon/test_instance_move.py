"""Moves, also to other groups, exports and imports with real transfers between nodes."""

import hashlib
import pathlib

import pytest

pytestmark = pytest.mark.daemon
NAME = "moving.vc.test"
ADD = ("gnt-instance", "add", "-t", "file", "-s", "8M", "-H", "fake", "--no-nics")
ADD += ("-o", "tiny+default", "--no-install", "--no-start", "-n", "node1", NAME)


@pytest.fixture(scope="module")
def cluster(cluster_of):
    made = cluster_of(2)
    made.check(
        "gnt-cluster", "modify", "--enabled-disk-templates=file,sharedfile,diskless"
    )
    made.check(*ADD)
    (disk,) = contents(made, "node1")
    path = made.file("/srv/ganeti/file-storage", "node1") / NAME / disk
    path.write_bytes(bytes(range(256)) * 32768)
    made.check("gnt-instance", "start", NAME)
    return made


def contents(cluster, node):
    """Return digest by file name of the instance's disks on a node."""
    directory = cluster.file("/srv/ganeti/file-storage", node) / NAME
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.glob("*")
    }


def state(cluster):
    line = cluster.check(
        "gnt-instance", "list", "--no-headers", "-o", "pnode,status", NAME
    )
    return line.split()


def leftovers(cluster):
    return [
        path
        for node in ("node1", "node2")
        for directory in ("import-export", "crypto")
        for path in cluster.file(f"/var/run/ganeti/{directory}", node).glob("*")
    ]


@pytest.mark.timeout(600)
def test_failed_move_leaves_everything_as_it_was(cluster):
    before = contents(cluster, "node1")
    cluster.check("gnt-cluster", "modify", "--compression-tools=no-such-tool,gzip")
    moved = cluster.run(
        "gnt-instance", "move", "-f", "-n", "node2", "--compress=no-such-tool", NAME
    )
    assert moved.code == 1
    assert "no-such-tool: not found on node node" in moved.output
    assert "shutting down" not in moved.output
    assert state(cluster) == ["node1.vc.test", "running"]
    assert contents(cluster, "node1") == before
    assert contents(cluster, "node2") == {}
    assert leftovers(cluster) == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("tool", ["none", "gzip"])
def test_disks_arrive_and_the_instance_runs_there(cluster, tool):
    source = state(cluster)[0].split(".")[0]
    target = {"node1": "node2", "node2": "node1"}[source]
    before = contents(cluster, source)
    cluster.check("gnt-instance", "move", "-f", "-n", target, "--compress", tool, NAME)
    assert state(cluster) == [f"{target}.vc.test", "running"]
    assert contents(cluster, target) == before
    assert contents(cluster, source) == {}
    assert leftovers(cluster) == []


@pytest.mark.timeout(600)
def test_an_exported_instance_comes_back_with_its_content(cluster):
    before = list(contents(cluster, "node1").values()) or list(
        contents(cluster, "node2").values()
    )
    refused = cluster.run("gnt-backup", "export", "-n", "node2", NAME)
    assert "--long-sleep" in refused.output
    export = ("gnt-backup", "export", "--remove-instance", "-n", "node2", NAME)
    cluster.check(*export)
    rows = cluster.check("gnt-backup", "list", "--no-headers", "--separator=:")
    assert rows.split() == [f"node2.vc.test:{NAME}"]
    dump = cluster.file("/srv/ganeti/export", "node2") / NAME / "disk0.dump"
    whole = dump.read_bytes()
    back = ("gnt-backup", "import", "-n", "node1", NAME)
    dump.write_bytes(whole[:-1])
    assert "found 8388607" in cluster.run(*back).output
    dump.write_bytes(whole)
    cluster.check(*back)
    assert state(cluster) == ["node1.vc.test", "ADMIN_down"]
    assert list(contents(cluster, "node1").values()) == before
    cluster.check("gnt-backup", "remove", NAME)
    assert cluster.check("gnt-backup", "list", "--no-headers") == ""
    assert leftovers(cluster) == []


# Instances go to other groups.

ADD_TO_GROUP = ("gnt-instance", "add", "-s", "16M", "-B", "memory=96M", "--no-nics")
ADD_TO_GROUP += ("-o", "tiny+default")
GUEST, STOPPED, FILED = "guest.vc.test", "stopped.vc.test", "filed.vc.test"


@pytest.fixture(scope="module")
def groups(cluster_of):
    """Two groups of nodes; a running guest, a stopped one, one with a file."""
    made = cluster_of(5, hypervisors="kvm,fake")
    made.check("gnt-group", "add", "far")
    made.check("gnt-group", "assign-nodes", "far", "node4", "node5")
    made.check(
        *ADD_TO_GROUP,
        "-t",
        "sharedfile",
        "-H",
        "kvm",
        "-s",
        "64M",
        "-n",
        "node1",
        GUEST,
    )
    fake = ("-H", "fake", "--no-install", "-n", "node2")
    made.check(*ADD_TO_GROUP, *fake, "-t", "sharedfile", STOPPED)
    made.check(*ADD_TO_GROUP, *fake, "-t", "file", FILED)
    return made


def where(groups, name):
    """Return node, group and status of an instance."""
    line = groups.check(
        *("gnt-instance", "list", "--no-headers", "--separator=|"),
        *("-o", "pnode,pnode.group,status", name),
    )
    node, group, status = line.strip().split("|")
    return node.removesuffix(".vc.test"), group, status


def bring(groups, name, group):
    """Take an instance to a group by ``change-group``."""
    if where(groups, name)[1] == group:
        return
    text = groups.check("gnt-instance", "change-group", "--to", group, name)
    assert f"Instance '{name}' changed group successfully." in text


def test_a_running_guest_changes_its_group_and_keeps_running(groups):
    old = where(groups, GUEST)[1]
    new = "far" if old == "default" else "default"
    bring(groups, GUEST, new)
    assert where(groups, GUEST)[1:] == (new, "running")


def test_a_group_is_emptied(groups):
    bring(groups, STOPPED, "far")
    text = groups.check("gnt-group", "evacuate", "-I", "hail", "far")
    assert "evacuated successfully" in text
    assert where(groups, STOPPED)[1:] == ("default", "ADMIN_down")
    assert where(groups, GUEST)[1:] == ("default", "running")


def test_a_node_is_emptied_within_its_group(groups):
    # Where the file cannot be in the way.
    bring(groups, GUEST, "far")
    node, group, _status = where(groups, GUEST)
    text = groups.check("gnt-node", "evacuate", "-f", "-p", "-I", "hail", node)
    assert "evacuated successfully" in text
    other, same_group, status = where(groups, GUEST)
    assert (same_group, status) == (group, "running")
    assert other != node


def test_what_cannot_move_is_named_and_nothing_is_done(groups):
    actual = groups.run("gnt-instance", "change-group", "--to", "far", FILED)
    assert actual.code == 1
    assert f"{FILED}: Instances of type file cannot be relocated" in actual.output
    assert where(groups, FILED)[1] == "default"


def test_an_allocator_chooses_where_lost_disks_are_made_again(groups):
    (old, _group, _status) = where(groups, FILED)
    groups.check("gnt-node", "modify", "--drained", "yes", old)
    text = groups.check("gnt-instance", "recreate-disks", "-I", "hail", FILED)
    groups.check("gnt-node", "modify", "--drained", "no", old)
    assert "not removed" in text
    new, group, status = where(groups, FILED)
    assert new != old
    assert (group, status) == ("default", "ADMIN_down")
    again = groups.run("gnt-instance", "recreate-disks", FILED)
    assert (again.code, "only lost disks are recreated" in again.output) == (1, True)
    text = groups.check("gnt-instance", "activate-disks", FILED)
    path = pathlib.Path(text.strip().split(":")[-1])
    assert path.stat().st_size == 16 << 20
    groups.check("gnt-instance", "deactivate-disks", FILED)
