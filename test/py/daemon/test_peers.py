"""Debian's Ganeti 3.0 programs, unmodified, as clients of our daemons."""

import collections
import contextlib
import json
import pathlib
import re
import shlex
import subprocess

import pytest

from fakes import clusters, patience, peers
from fakes.master import Master
from fakes.rpc import SUCCESSFUL_ACTS

P = "ganeti:watcher:autorepair:"
ADD = ("gnt-instance", "add", "-s", "8M", "-H", "fake", "-B", "memory=256M")
ADD += ("-o", "tiny+default", "--no-nics", "-t", "sharedfile")
WEB1, WEB2 = "web1.vc.test", "web2.vc.test"
#: Release 3.0 checks the names of new instances unless an option disables it.
UNCHECKED = ("--no-name-check", "--no-ip-check")


@pytest.fixture(scope="module")
def cluster(cluster_of):
    peers.require()
    return cluster_of(3)


def peer(cluster, *argv):
    """Run a program of Ganeti 3.0 on the master; returns a RunResult."""
    return cluster.run(*peers.command(*argv))


def where(cluster):
    """Return the primary node by instance."""
    text = cluster.check("gnt-instance", "list", "--no-headers", "-o", "name,pnode")
    return dict(line.split() for line in text.splitlines())


@pytest.fixture
def piled(cluster):
    """Six instances on the first node; they are gone afterwards."""
    names = [f"pile{k}.vc.test" for k in range(6)]
    for name in names:
        cluster.check(*ADD, "-n", "node1", name)
    yield cluster
    for name in names:
        cluster.check("gnt-instance", "remove", "-f", name)


@pytest.mark.sampled
def test_hbal_moves_instances_to_the_score_that_it_computed(piled) -> None:
    done = peer(piled, "hbal", "-L", "-X")
    assert done.code == 0, done.output
    improved = re.search(r"improved from ([\d.]+) to ([\d.]+)", done.stdout)
    assert improved, done.output
    first, last = map(float, improved.groups())
    planned = re.findall(r"^ +\d+\. (\S+) +\S+ +=> (\S+)", done.stdout, re.MULTILINE)
    actual = where(piled)
    assert len(planned) >= 4
    assert {f"{name}.vc.test": f"{node}.vc.test" for name, node in planned} == {
        name: node for name, node in actual.items() if node != "node1.vc.test"
    }
    assert sorted(collections.Counter(actual.values()).values()) == [2, 2, 2]
    score = float(piled.check("hinfo", "-L").splitlines()[-1].split()[-1])
    # Free memory of this machine changes while the jobs run.
    assert abs(score - last) < 0.5 < first - last
    again = peer(piled, "hbal", "-L", "-X")
    assert (again.code, "Executing" in again.output, where(piled)) == (0, False, actual)
    piled.wait_until_clean()


@pytest.mark.sampled
def test_hsqueeze_empties_nodes_and_switches_them_off(cluster, command) -> None:
    cluster.check(*ADD, "-n", "node2", WEB1)
    done = peer(cluster, "hsqueeze", "-L", "-X")
    try:
        assert done.code == 0, done.output
        assert "'Nodes to offline'" in done.stdout
        assert flags(cluster) == {"node1": "N", "node2": "Y", "node3": "Y"}
        assert where(cluster) == {WEB1: "node1.vc.test"}
        powered = command(cluster.directory, "power", "status", "node3").stdout
        assert json.loads(powered) == {"powered": False}
    finally:
        # The program itself cannot: it would mark nodes online before they have power.
        for node in ("node2", "node3"):
            if flags(cluster)[node] == "Y":
                cluster.check("gnt-node", "power", "on", node)
                cluster.check("gnt-node", "add", "--readd", "--no-ssh-key-check", node)
                cluster.check("gnt-node", "remove-tags", node, "htools:standby:auto")
        cluster.check("gnt-instance", "remove", "-f", WEB1)
    cluster.wait_until_clean()


def flags(cluster):
    """Return "Y" or "N" by short name of a node: whether it is offline."""
    text = cluster.check("gnt-node", "list", "--no-headers", "-o", "name,offline")
    rows = (line.split() for line in text.splitlines())
    return {name.partition(".")[0]: flag for name, flag in rows}


def test_hail_places_for_our_master(cluster) -> None:
    master = cluster.paths(cluster.master.short)
    script = pathlib.Path(master.iallocator_search_path[0], "hail30")
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(f'#!/bin/sh\nexec {peers.HAIL} "$@"\n')
    script.chmod(0o755)
    for name in (WEB1, WEB2):
        reported = cluster.check(*ADD, "-I", "hail30", name)
        assert "Allocator hail30: Request successful" in reported
    actual = where(cluster)
    assert len(set(actual.values())) == 2
    cluster.check("gnt-node", "evacuate", "-f", "-p", "-I", "hail30", actual[WEB1])
    assert where(cluster)[WEB1] != actual[WEB1]
    before = where(cluster)[WEB2]
    cluster.check("gnt-instance", "failover", "-f", "-I", "hail30", WEB2)
    assert where(cluster)[WEB2] != before
    refused = cluster.run(*ADD, "-B", "memory=9999G", "-I", "hail30", "big.vc.test")
    assert refused.code == 1
    assert "FailMem" in refused.output
    for name in (WEB1, WEB2):
        cluster.check("gnt-instance", "remove", "-f", name)


SPACE = {"type": "lvm-vg", "name": "xenvg"}
SPACE |= {"storage_free": 50_000, "storage_size": 100_000}
REPORT = {"memory_total": 8192, "memory_free": 6000, "memory_dom0": 500}
REPORT |= {"cpu_total": 4, "cpu_nodes": 1, "cpu_sockets": 1, "cpu_dom0": 1}
MIRROR = {"dev_path": "/dev/drbd0", "major": 147, "minor": 0, "sync_percent": None}
MIRROR |= {"estimated_time": None, "is_degraded": True, "ldisk_status": 1}
#: Answers of nodes, which have no DRBD here.
NODES = {
    **SUCCESSFUL_ACTS,
    "node_info": ["boot", [SPACE], [REPORT]],
    "all_instances_info": {},
    "hooks_runner": [],
    "instance_info": {},
    "blockdev_assemble": ["/dev/drbd0", "/link", None],
    "blockdev_find": ["/dev/drbd0", 147, 0, 100.0, 0, False, 1],
    # Complete, without a connection to the node that is lost.
    "blockdev_getmirrorstatus_multi": [[True, MIRROR]],
}


@pytest.fixture
def repairable(tmp_path):
    """A master daemon with a mirrored instance whose primary node is lost."""
    peers.require()
    disk = clusters.drbd_disk("d0", 2, 3)
    # The program of release 3.0 ignores the second tag.
    allowed = (f"{P}failover", f"{P}reinstall-file")
    broken = clusters.instance(
        1, primary=2, hypervisor="fake", disks=(disk.uuid,), tags=allowed
    )
    made = clusters.snapshot(
        extra=[clusters.node(2, offline=True), disk, broken],
        enabled_disk_templates=["drbd", "plain"],
        volume_group_name="xenvg",
        drbd_usermode_helper="/bin/true",
        enabled_hypervisors=["fake"],
    )
    master = Master(tmp_path, made, NODES).start()
    yield master
    master.stop()


def repair(master):
    """Run harep; return what it prints."""
    argv = [peers.program("harep"), f"-L{master.paths.query_socket}", "--job-delay=0"]
    done = subprocess.run(
        argv, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_harep_repairs_what_a_tag_allows(repairable) -> None:
    assert "Pending repair: 1" in repair(repairable)
    (tag,) = records(repairable)
    assert tag[:2] == ["pending", "failover"]
    with repairable.client() as client:
        job = int(tag[-1])
        status = patience.job_status(client, job)
        ((ops, results),) = client.call("QueryJobs", [[job], ["ops", "opresult"]])
    assert status == "success", results
    assert [op["OP_ID"] for op in ops] == ["OP_INSTANCE_FAILOVER"]
    assert ops[0]["reason"][0][0] == "harep"
    assert 'from "Pending repair" to "Healthy"' in repair(repairable)
    snapshot = repairable.store.snapshot()
    (instance,) = snapshot.instances.values()
    assert instance.primary_node == clusters.node_uuid(3)
    # The lost node is the secondary one now, and its repair begins in the same run.
    assert [fields[:2] for fields in records(repairable)] == [
        ["pending", "fix-storage"]
    ]


def records(master):
    """Return the fields of the tags that record repairs."""
    (instance,) = master.store.snapshot().instances.values()
    actual = [tag.removeprefix(P).split(":") for tag in instance.tags]
    return [fields for fields in actual if fields[0] in ("pending", "result")]


#: Parameters that a NIC inherits, and a setting of the cluster that 3.0 has not.
ADDITION = ("from the cluster: ", "remote API requires authentication: ")
SCRIPTS = {
    "cluster": """
        gnt-cluster version
        gnt-cluster getmaster
        gnt-cluster info
        gnt-cluster show-ispecs-cmd
        gnt-cluster verify
        gnt-cluster verify-disks
        gnt-cluster queue info
        gnt-cluster watcher info
        gnt-cluster add-tags a b
        gnt-cluster list-tags
        gnt-cluster search-tags a
        gnt-cluster remove-tags a b
        gnt-cluster remove-tags a
        gnt-cluster modify -B memory=256M
        gnt-cluster modify -B memory=128M
        gnt-os list
        gnt-os info
        gnt-os modify --hidden yes --blacklisted yes tiny
        gnt-cluster info
        gnt-os modify --hidden no --blacklisted no tiny
        gnt-filter list
        gnt-filter add --priority=10 --action=ACCEPT
        gnt-filter list --no-headers -o priority,action,predicates
    """,
    "nodes and groups": """
        gnt-node list --no-headers -o name,pinst_cnt,sinst_cnt,role,group,pip,sip,tags
        gnt-node list -o name,bogus
        gnt-node list --separator=: -o name,offline,drained
        gnt-node list -o name,role node1
        gnt-node list nosuch
        gnt-node list-fields
        gnt-node info
        gnt-node info node2
        gnt-node info nosuch
        gnt-node add-tags node2 x
        gnt-node list-tags node2
        gnt-node remove-tags node2 x
        gnt-node modify -D yes node3
        gnt-node modify -D no node3
        gnt-node modify -C no node3
        gnt-node modify --auto-promote -C yes node3
        gnt-node volumes
        gnt-node list-storage -t lvm-vg
        gnt-node power status
        gnt-node failover -f node2
        gnt-node migrate -f node2
        gnt-group list
        gnt-group list-fields
        gnt-group info
        gnt-group add spare
        gnt-group rename spare other
        gnt-group modify --alloc-policy=last_resort other
        gnt-group list -o name,alloc_policy,node_cnt
        gnt-group add-tags other t1
        gnt-group list-tags other
        gnt-group remove other
        gnt-group remove other
    """,
    "networks": """
        gnt-network add lan
        gnt-network add --network=198.51.100.0/28 --gateway=198.51.100.1 lan
        gnt-network add --network=10.1.0.0/25 -m aa:00:07 --tags a,b dmz
        gnt-network list
        gnt-network list -o name,group_list,inst_list,tags,free_count,map
        gnt-network list nosuch
        gnt-network list-fields
        gnt-network info
        gnt-network connect -N mode=routed,link=100 lan
        gnt-network connect -N mode=bridged,link=br0 dmz default
        gnt-network disconnect dmz default
        gnt-network info lan
        gnt-network list --no-headers -o name,group_list
        gnt-network modify --add-reserved-ips=198.51.100.3,198.51.100.4 lan
        gnt-network modify --remove-reserved-ips=198.51.100.3 lan
        gnt-network modify --network6=2001:db8::/64 --gateway6=2001:db8::1 lan
        gnt-network modify lan
        gnt-network modify --gateway6=none lan
        gnt-network modify --network6=none lan
        gnt-network modify --gateway=none lan
        gnt-network modify --mac-prefix=aa:00:09 lan
        gnt-network info lan
        gnt-network modify --mac-prefix=none lan
        gnt-instance stop web1
        gnt-instance modify --net add:network=lan,ip=pool web1
        gnt-instance modify --net add:network=lan,ip=198.51.100.9 web1
        gnt-network info lan
        gnt-network list -o name,inst_cnt,inst_list,map
        gnt-instance list --no-headers -o name,nic.ips,nic.networks.names web1
        gnt-instance modify --net 1:remove web1
        gnt-network add-tags lan x
        gnt-network list-tags lan
        gnt-network remove-tags lan x
        gnt-instance remove -f web1
        gnt-network disconnect lan
        gnt-network remove lan
        gnt-network remove dmz
        gnt-network list
    """,
    "instances": """
        gnt-instance list
        gnt-instance list -o +snodes,tags,disk.sizes,admin_state,be/memory,hv/x
        gnt-instance list --no-headers -o name,pnode,status web1
        gnt-instance list nosuch
        gnt-instance list-fields
        gnt-instance info web1
        gnt-instance info -s web2
        gnt-instance info nosuch
        gnt-instance add-tags web1 red blue
        gnt-instance list-tags web1
        gnt-cluster search-tags red
        gnt-instance add-tags web1 bad+tag|
        gnt-instance remove-tags web1 blue
        gnt-instance remove-tags web1 blue
        gnt-instance modify -B memory=192M web1
        gnt-instance stop web1
        gnt-instance stop web1
        gnt-instance modify --net add web1
        gnt-instance modify --net add:mode=bridged,link=lo,name=n0 web1
        gnt-instance modify --disk add:size=8M web1
        gnt-instance modify --disk remove web1
        gnt-instance start web1
        gnt-instance start web1
        gnt-instance reboot web1
        gnt-instance info web1
        gnt-instance failover -f -n node2 web1
        gnt-instance failover -f -n node2 web1
        gnt-instance migrate -f -n node1 web1
        gnt-instance migrate -f web2
        gnt-instance move -f -n node3 web2
        gnt-instance console --show web1
        gnt-instance stop web2
        gnt-instance stop web9
        gnt-instance reinstall -f web2
        gnt-instance grow-disk web2 0 4M
        gnt-instance activate-disks web2
        gnt-instance deactivate-disks web2
        gnt-instance recreate-disks web2
        gnt-cluster verify
        gnt-node evacuate -f -p node1
        gnt-instance remove -f web2
        gnt-instance remove -f web1
        gnt-instance remove -f web1
        gnt-instance list
    """,
}


def without_additions(row):
    """Return what a command did, without lines that `info` has in addition to 3.0."""
    words, code, out, errors = row
    return words, code, [x for x in out if not x.strip().startswith(ADDITION)], errors


@pytest.mark.parametrize("name", SCRIPTS)
def test_clients_of_3_0_do_and_print_what_ours_do(cluster, name) -> None:
    # Not compared: gnt-node failover with errors, which has exit code 0 in 3.0.
    argvs = [line.split() for line in SCRIPTS[name].strip().splitlines()]
    both = []
    for wrap, options in ((tuple, ()), (lambda argv: peers.command(*argv), UNCHECKED)):
        create = []
        if name in ("instances", "networks"):
            create.append([*ADD, "-n", "node1", *options, WEB1])
        if name == "instances":
            on_file = ("-t", "file", "-n", "node3")
            create.append([*ADD, *on_file, *options, WEB2])
            create.append([*ADD, "-n", "nosuch", *options, "web3.vc.test"])
        both.append(peers.transcript(cluster, [*create, *argvs], wrap))
        uuids = cluster.check("gnt-filter", "list", "--no-headers", "-o", "uuid")
        for uuid in uuids.split():
            cluster.check("gnt-filter", "delete", uuid)
    (ours, our_jobs), (theirs, their_jobs) = both
    different = [
        (mine, other)
        for mine, other in zip(map(without_additions, ours), theirs, strict=True)
        if mine[1:] != other[1:]
    ]
    assert different == []
    assert our_jobs == their_jobs


WRONG_TYPES = (
    ("-H", "nonsense=3"),
    ("-B", "vcpus=two"),
    ("-B", "maxmem=1x"),
    ("-B", "auto_balance=yes"),
    ("-B", "always_failover=1"),
)


def test_wrong_parameters_are_refused_like_release_3_0(cluster) -> None:
    """Its texts name neither the object nor what is wanted; code and kind are its."""
    cluster.check(*ADD, "--no-start", "--no-install", "-n", "node1", WEB1)
    try:
        for option, value in WRONG_TYPES:
            argv = ("gnt-instance", "modify", option, value, WEB1)
            ours, known = cluster.run(*argv), peer(cluster, *argv)
            assert (ours.code, ours.stdout) == (known.code, known.stdout), value
            kinds = [done.stderr.partition(":")[0] for done in (ours, known)]
            assert kinds == ["Parameter Error"] * 2, ours.output + known.output
            name, _, text = value.partition("=")
            words = f" {name}: unknown;" if name == "nonsense" else f"found {text!r}"
            assert words in ours.stderr
    finally:
        cluster.check("gnt-instance", "remove", "-f", WEB1)


def test_clients_of_3_0_follow_jobs(cluster) -> None:
    delay = ("gnt-debug", "delay", "--submit")
    reported = [peer(cluster, *delay, *words).output for words in (("0.5",), ("600",))]
    first, second = (text.split()[-1] for text in reported)
    assert peer(cluster, "gnt-job", "watch", first).code == 0
    assert cluster.run("gnt-job", "wait", first).code == 0
    with contextlib.closing(cluster.luxi()) as client:
        patience.job_status(client, int(second), ("running",))
    assert peer(cluster, "gnt-job", "cancel", second).code == 1
    for words in (
        ("list", first, second),
        ("list", "-o", "id,status,summary,ops", second),
        ("info", first),
        ("watch", first),
        ("cancel", first),
        ("list", "999999"),
        ("info", "999999"),
        ("watch", "999999"),
        ("archive", "999999"),
    ):
        ours, theirs = cluster.run("gnt-job", *words), peer(cluster, "gnt-job", *words)
        assert (theirs.code, theirs.stdout, theirs.stderr) == (
            ours.code,
            ours.stdout,
            ours.stderr,
        ), words
    cluster.check("gnt-job", "cancel", "--kill", "--yes-do-it", second)


# Several hundred command lines, which print the same as those of Debian's Ganeti 3.0.
#
# Each line of ``test/data/known_commands.txt`` runs as our client and as Debian's,
# unmodified, on the same cluster. Exit codes, output and error output are compared byte by
# byte, but for times, UUIDs, MAC addresses and job numbers. Lines whose error texts are our
# own are not in the file.

FILE = pathlib.Path(__file__).parents[2] / "data" / "known_commands.txt"


def sections():
    """Return name of section -> its command lines."""
    parts = re.split(r"^# (\w+)\n", FILE.read_text(), flags=re.MULTILINE)[1:]
    return {
        name: text.strip().splitlines()
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    }


@pytest.mark.long
@pytest.mark.parametrize("name", sections())
def test_known_commands_do_and_print_the_same(cluster, name):
    lines = sections()[name]
    ours = [shlex.split(line.replace("UNCHECKED", "")) for line in lines]
    theirs = [
        shlex.split(line.replace("UNCHECKED", " ".join(UNCHECKED))) for line in lines
    ]
    mine, _jobs = peers.transcript(cluster, ours, tuple)
    known, _jobs = peers.transcript(cluster, theirs, lambda argv: peers.command(*argv))
    different = [
        (line, left[1:], right[1:])
        for line, left, right in zip(lines, mine, known, strict=True)
        if left[1:] != right[1:]
    ]
    assert different == []
