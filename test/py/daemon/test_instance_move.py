"""Moves, exports and imports with real transfers between node daemons."""

import hashlib

import pytest

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
