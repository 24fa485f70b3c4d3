"""A cluster with its store in etcd: three nodes, three real servers, takeovers.

Nothing asserts how long a takeover takes; the seconds are printed.
"""

import json
import time

import pytest

from fakes.patience import job_status, until
from ganeti.base import errors
from ganeti.base.filesystem import pidfile

pytestmark = pytest.mark.daemon

DELAY = {"OP_ID": "OP_TEST_DELAY", "duration": 0.001, "on_master": True}
NAMES = ("node1", "node2", "node3")


@pytest.fixture(scope="module")
def made(cluster_of):
    return cluster_of(3, "fake", "--store", "etcd")


@pytest.fixture
def cluster(made):
    """All three nodes and servers; some node is the master."""
    yield made
    for number in ("1", "2", "3"):
        made.command("etcd", "start", number)
    for name in NAMES:
        made.command("start", name)


def leads(cluster, name):
    """Return whether the master daemon of a node serves."""
    if not pidfile.is_locked(cluster.paths(name).pid_file("ganeti-masterd")):
        return False
    try:
        with cluster.luxi(name) as client:
            (master,) = client.call("QueryConfigValues", [["master_node"]])
    except errors.GenericError:
        return False
    return master == cluster.node(name).name


def master_of(cluster, among=NAMES):
    """Wait until one of some nodes is the master; return which."""
    return until(
        f"one of {among} is the master",
        lambda: next((name for name in among if leads(cluster, name)), None),
    )


def submit(cluster, name, count=1):
    """Submit jobs, and return the numbers that were acknowledged."""
    with cluster.luxi(name) as client:
        return [client.call("SubmitJob", [[DELAY]]) for _ in range(count)]


def add_tag(cluster, name, tag):
    cluster.check("gnt-cluster", "add-tags", tag, node=name)


def tags(cluster, name):
    return set(cluster.check("gnt-cluster", "list-tags", node=name).split())


@pytest.mark.sampled
def test_the_store_is_shown_and_followed_on_every_candidate(cluster):
    master = master_of(cluster)
    info = cluster.check("gnt-cluster", "info", node=master)
    assert "store: etcd://" in info
    cluster.wait_until_clean(master)
    add_tag(cluster, master, "followed")
    for name in NAMES:
        assert pidfile.is_locked(cluster.paths(name).pid_file("ganeti-standby"))
        mode = cluster.file("/var/lib/ganeti/store-engine", name).stat().st_mode
        assert mode & 0o777 == 0o600
        until(f"the file of {name} follows", lambda name=name: _has_tag(cluster, name))


def _has_tag(cluster, name):
    from ganeti import store

    follower = store.Follower(cluster.paths(name).store_db)
    try:
        return "followed" in follower.snapshot().cluster.tags
    finally:
        follower.close()


@pytest.mark.sampled
def test_another_candidate_takes_over_by_itself(cluster, record_property):
    old = master_of(cluster)
    acknowledged = submit(cluster, old, 10)
    others = [name for name in NAMES if name != old]
    killed = time.monotonic()
    cluster.command("kill", old)
    new = master_of(cluster, others)
    after = submit(cluster, new)
    seconds = time.monotonic() - killed
    record_property("figures", f"first job {seconds:.1f} s after the kill")
    with cluster.luxi(new) as client:
        for number in (*acknowledged, *after):
            # A job that ran at that moment is marked; none is lost.
            assert job_status(client, number) in ("success", "error")
    # The old master comes back and follows.
    cluster.command("start", old)
    assert not leads(cluster, old)
    assert pidfile.is_locked(cluster.paths(old).pid_file("ganeti-standby"))
    cluster.wait_until_clean(new)


@pytest.mark.sampled
def test_the_administrator_moves_the_role(cluster):
    old = master_of(cluster)
    new = next(name for name in NAMES if name != old)
    waiting = submit(cluster, old)
    cluster.check("gnt-cluster", "master-failover", node=new)
    assert leads(cluster, new)
    pid_file = cluster.paths(old).pid_file("ganeti-masterd")
    until("the old master ends", lambda: not pidfile.is_locked(pid_file))
    with cluster.luxi(new) as client:
        assert job_status(client, waiting[0]) in ("success", "error")
    refused = cluster.run("gnt-node", "list", node=old)
    assert refused.failed
    assert cluster.node(new).name in refused.stderr


def test_one_server_may_fail_and_two_may_not(cluster):
    master = master_of(cluster)
    cluster.command("etcd", "kill", "1")
    add_tag(cluster, master, "with-two")
    verified = cluster.run("gnt-cluster", "verify", node=master)
    assert verified.failed
    assert "of the store in etcd cannot be used (if one more fails" in verified.output
    cluster.command("etcd", "kill", "2")
    refused = cluster.run("gnt-cluster", "add-tags", "with-one", node=master)
    assert refused.failed
    pid_file = cluster.paths(master).pid_file("ganeti-masterd")
    until("the master ends", lambda: not pidfile.is_locked(pid_file))
    explained = cluster.run("gnt-cluster", "add-tags", "with-none", node=master)
    assert explained.failed
    assert "no master can begin" in explained.stderr
    assert "until a majority of its servers answers" in explained.stderr
    assert not any(leads(cluster, name) for name in NAMES)
    cluster.command("etcd", "start", "1")
    again = master_of(cluster)
    present = tags(cluster, again)
    assert "with-two" in present
    assert "with-none" not in present
    cluster.command("etcd", "start", "2")
    cluster.wait_until_clean(again)


@pytest.mark.long
def test_a_demoted_node_follows_no_more_and_a_promoted_one_does(cluster):
    master = master_of(cluster)
    other = next(name for name in NAMES if name != master)
    full = cluster.node(other).name
    paths = cluster.paths(other)
    modify = ("gnt-node", "modify", "--auto-promote")
    cluster.check(*modify, "-C", "no", "-f", full, node=master)
    assert not cluster.file("/var/lib/ganeti/store-engine", other).exists()
    assert not pidfile.is_locked(paths.pid_file("ganeti-standby"))
    cluster.check("gnt-node", "modify", "-C", "yes", full, node=master)
    assert cluster.file("/var/lib/ganeti/store-engine", other).exists()
    until("it follows", lambda: pidfile.is_locked(paths.pid_file("ganeti-standby")))
    cluster.wait_until_clean(master)


@pytest.mark.long
def test_a_used_prefix_is_refused(cluster, machines):
    other = machines(1)
    path = cluster.file("/var/lib/ganeti/store-engine", master_of(cluster))
    address = json.loads(path.read_text())["address"]
    refused = other.run("gnt-cluster", "init", "--store", address, "cluster.vc.test")
    assert refused.failed
    assert "wanted no store, found revision" in refused.stderr


def address_of(cluster, name):
    path = cluster.file("/var/lib/ganeti/store-engine", name)
    return json.loads(path.read_text())["address"]


def restore_undoes_a_tag(cluster, master, path):
    """Back up, change, restore; jobs of the present stay."""
    add_tag(cluster, master, "kept")
    cluster.check("gnt-cluster", "backup-store", str(path), node=master)
    add_tag(cluster, master, "undone")
    (later,) = submit(cluster, master)
    with cluster.luxi(master) as client:
        assert job_status(client, later) == "success"
    cluster.check("gnt-cluster", "restore-store", "-f", str(path), node=master)
    present = tags(cluster, master)
    assert "kept" in present
    assert "undone" not in present
    with cluster.luxi(master) as client:
        assert job_status(client, later) == "success"
        (job,) = submit(cluster, master)
        assert job > later
        assert job_status(client, job) == "success"
    cluster.wait_until_clean(master)
    cluster.check("gnt-cluster", "remove-tags", "kept", node=master)


@pytest.mark.sampled
def test_a_backup_is_restored(cluster, tmp_path):
    restore_undoes_a_tag(cluster, master_of(cluster), tmp_path / "backup")


@pytest.mark.sampled
def test_the_store_moves_to_files_and_back(cluster, tmp_path):
    master = master_of(cluster)
    address = address_of(cluster, master)
    acknowledged = submit(cluster, master, 3)
    add_tag(cluster, master, "moves")
    migrate = ("gnt-cluster", "migrate-store", "--to")
    cluster.check(*migrate, "file", node=master)
    assert "store: file" in cluster.check("gnt-cluster", "info", node=master)
    assert "moves" in tags(cluster, master)
    pid_files = [cluster.paths(name).pid_file("ganeti-standby") for name in NAMES]
    until("no standby", lambda: not any(map(pidfile.is_locked, pid_files)))
    cluster.wait_until_clean(master)
    with cluster.luxi(master) as client:
        assert {job_status(client, number) for number in acknowledged} == {"success"}
    # Over files the role moves, and backups are restored, as ever.
    restore_undoes_a_tag(cluster, master, tmp_path / "backup")
    other = next(name for name in NAMES if name != master)
    cluster.check("gnt-cluster", "master-failover", node=other)
    cluster.wait_until_clean(other)
    again = cluster.run(*migrate, "file", node=other)
    assert again.failed
    assert "the store is file" in again.stderr
    cluster.check(*migrate, address, node=other)
    assert f"store: {address}" in cluster.check("gnt-cluster", "info", node=other)
    assert "moves" in tags(cluster, other)
    until("all follow", lambda: all(map(pidfile.is_locked, pid_files)))
    cluster.wait_until_clean(other)
    with cluster.luxi(other) as client:
        assert {job_status(client, number) for number in acknowledged} == {"success"}


@pytest.mark.long
def test_candidates_go_on_over_files_when_etcd_is_lost_for_good(cluster):
    master = master_of(cluster)
    address = address_of(cluster, master)
    add_tag(cluster, master, "followed")
    for name in NAMES:
        until(f"the file of {name} follows", lambda name=name: _has_tag(cluster, name))
    for number in ("1", "2", "3"):
        cluster.command("etcd", "kill", number)
    pid_file = cluster.paths(master).pid_file("ganeti-masterd")
    until("the master ends", lambda: not pidfile.is_locked(pid_file))
    for name in NAMES:
        cluster.check("daemon-util", "stop", "ganeti-standby", node=name)
        cluster.file("/var/lib/ganeti/store-engine", name).unlink()
    cluster.check("daemon-util", "start-master", node=master)
    assert "followed" in tags(cluster, master)
    cluster.wait_until_clean(master)
    # Later, with servers again: what they still have is another history.
    for number in ("1", "2", "3"):
        cluster.command("etcd", "start", number)
    migrate = ("gnt-cluster", "migrate-store", "--to")
    refused = cluster.run(*migrate, address, node=master)
    assert refused.failed
    assert "wanted no store, found revision" in refused.stderr
    assert "followed" in tags(cluster, master)
    cluster.check(*migrate, f"{address}2", node=master)
    cluster.wait_until_clean(master)
