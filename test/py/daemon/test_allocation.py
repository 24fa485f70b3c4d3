"""Instances without named nodes: the master's own allocator, on real daemons."""

import collections
import contextlib
import json
import pathlib
import re
import sys

import pytest

from fakes.patience import has_ended, until

ADD = ("gnt-instance", "add", "-s", "8M", "-H", "fake", "--no-nics")
ADD += ("-o", "tiny+default", "--no-install", "--no-start")


@pytest.fixture(scope="module")
def cluster(cluster_of):
    return cluster_of(3)


def where(cluster):
    """Return the primary node by instance."""
    text = cluster.check("gnt-instance", "list", "--no-headers", "-o", "name,pnode")
    return dict(line.split() for line in text.splitlines())


def test_new_instances_spread_and_leave_an_evacuated_node(cluster) -> None:
    assert "hail" in cluster.check("gnt-cluster", "info")
    for name in ("one.vc.test", "two.vc.test", "three.vc.test"):
        cluster.check(*ADD, "-t", "sharedfile", name)
    before = where(cluster)
    assert len(set(before.values())) == 3, before
    cluster.check("gnt-node", "evacuate", "-f", "-p", "node2")
    after = where(cluster)
    assert "node2.vc.test" not in after.values()
    moved = [name for name in after if after[name] != before[name]]
    assert [before[name] for name in moved] == ["node2.vc.test"]


def test_reported_capacity_really_fits(cluster) -> None:
    words = ("capacity", "-t", "diskless", "--memory", "256", "--limit", "4")
    actual = json.loads(cluster.check("gnt-cluster", *words, "--json", "--explain"))
    assert actual["count"] == 4
    assert actual["stopped"]["why"] == "limit"
    places = [row["nodes"] for row in actual["instances"]]
    assert {name for (name,) in places} == {f"node{n}.vc.test" for n in (1, 2, 3)}
    text = cluster.check("gnt-cluster", *words)
    assert text.startswith("4 more instances fit, with disk template diskless:")
    add = (*ADD[:2], *ADD[4:], "-t", "diskless", "-B", "memory=256")
    cluster.check(*add, "fits.vc.test")
    # Which of three equal nodes depends on the free memory of this machine just then.
    assert [where(cluster)["fits.vc.test"]] in places
    cluster.check("gnt-instance", "remove", "-f", "fits.vc.test")
    refused = cluster.run("gnt-cluster", "capacity", "-t", "drbd")
    assert refused.code == 1
    assert "disk template drbd: wanted one of the enabled" in refused.output


def test_too_large_instances_are_refused_with_reasons(cluster) -> None:
    actual = cluster.run(*ADD, "-t", "sharedfile", "-B", "memory=9999G", "big.vc.test")
    assert actual.code == 1
    assert "FailMem: 3" in actual.output
    assert "largest memory of the policy: wanted at most 32768 MiB" in actual.output


def test_a_dry_run_explains_and_makes_nothing(cluster) -> None:
    words = (*ADD, "-t", "sharedfile", "--dry-run", "--explain", "--json")
    reported = json.loads(cluster.check(*words, "maybe.vc.test"))
    (allocator,) = reported["allocators"]
    (instance,) = allocator["instances"]
    assert reported["nodes"] == instance["nodes"]
    assert "maybe.vc.test" not in where(cluster)
    large = cluster.run(*words, "-B", "memory=9999G", "maybe.vc.test")
    assert large.code == 1
    assert "largest memory of the policy" in large.output


def test_every_command_with_an_allocator_explains_and_does_nothing(cluster) -> None:
    name, node = "told.vc.test", "node1.vc.test"
    cluster.check(*ADD, "-t", "sharedfile", "-n", "node1", name)
    before = where(cluster)
    for words in (
        ("gnt-instance", "failover", "-I", "hail", name),
        ("gnt-node", "evacuate", "-p", "node1"),
    ):
        program, command, *rest = words
        options = ("--dry-run", "--explain", "--json")
        reported = json.loads(cluster.check(program, command, *options, *rest))
        (allocator,) = reported["allocators"]
        (one,) = [row for row in allocator["instances"] if row["instance"] == name]
        assert one["nodes"] != [node]
        others = {row["node"] for row in (*one["reasons"], *one["choice"])}
        assert others | set(one["nodes"]) >= {"node2.vc.test", "node3.vc.test"}
    alone = cluster.run("gnt-instance", "change-group", "--dry-run", "--explain", name)
    assert alone.code == 1
    assert "there is no other group" in alone.output
    assert where(cluster) == before
    cluster.check("gnt-instance", "remove", "-f", name)


def test_default_allocators_are_a_list_tried_in_order(cluster) -> None:
    install(cluster, "refuses", "say(said([], success=False, info='not today'))")
    install(cluster, "crashes", "1 / 0")
    actual = cluster.run("gnt-cluster", "modify", "-I", "refuses,nowhere,hail")
    assert actual.code == 1
    assert "nowhere: no such program" in actual.output
    cluster.check("gnt-cluster", "modify", "-I", "refuses,crashes,hail")
    try:
        reported = cluster.check(*ADD, "-t", "sharedfile", "--dry-run", "maybe.vc.test")
        assert "WARNING: Allocator crashes failed" in reported
        assert "Allocator hail: Request successful" in reported
        cluster.check("gnt-cluster", "modify", "-I", "refuses,crashes")
        none = cluster.run(*ADD, "-t", "sharedfile", "--dry-run", "maybe.vc.test")
        assert none.code == 1
        assert "refuses: not today; crashes: " in none.output
        cluster.check("gnt-cluster", "modify", "-I", "allocate=crashes,hail:relocate=")
        reported = cluster.check(*ADD, "-t", "sharedfile", "--dry-run", "maybe.vc.test")
        assert "WARNING: Allocator crashes failed" in reported
        cluster.check("gnt-cluster", "modify", "-I", "relocate=hail")
        none = cluster.run(*ADD, "-t", "sharedfile", "--dry-run", "maybe.vc.test")
        assert "no default allocator for requests of type allocate" in none.output
    finally:
        cluster.check("gnt-cluster", "modify", "-I", "hail")


def test_several_at_once(cluster, tmp_path) -> None:
    names = [f"batch{k}.vc.test" for k in range(3)]
    text = json.dumps([BATCH | {"instance_name": name} for name in names])
    path = tmp_path / "batch.json"
    path.write_text(text)
    cluster.check("gnt-instance", "batch-create", str(path))
    actual = where(cluster)
    assert set(names) <= set(actual)
    counts = collections.Counter(actual.values())
    assert max(counts.values()) - min(counts.values()) <= 1, counts


def test_a_node_that_is_marked_offline_is_emptied(cluster) -> None:
    cluster.check(*ADD, "-t", "sharedfile", "-n", "node3", "lost.vc.test")
    cluster.check("gnt-node", "modify", "--offline", "yes", "node3")
    try:
        cluster.check("gnt-node", "evacuate", "-f", "-p", "node3")
        assert "node3.vc.test" not in where(cluster).values()
    finally:
        cluster.check("gnt-node", "modify", "-f", "--offline", "no", "node3")
    cluster.check("gnt-instance", "remove", "-f", "lost.vc.test")


#: Answers that are wrong in every mode: what a script does, and words of the error.
MISDEEDS = {
    "crash": ("print('no luck', file=sys.stderr); sys.exit(3)", "code 3: no luck"),
    "traceback": ("1 / 0", "ZeroDivisionError"),
    "killed": ("os.kill(os.getpid(), 9)", "was ended by signal 9"),
    "silent": ("pass", "not JSON"),
    "chatty": ("print('hello')", "not JSON"),
    "bytes": ("sys.stdout.buffer.write(b'\\xff\\xfe{}')", "not JSON"),
    "deep": ("print('[' * 200000)", "not JSON: nested too deeply"),
    "huge": ("print('a' * (80 << 20))", "printed too much (wanted at most"),
    "list": ("say([])", "wanted an object, found []"),
    "incomplete": ("say({'success': True, 'info': ''})", "wanted the key result"),
    "vague": ("say(said([], success='yes'))", "wanted true or false, found 'yes'"),
    "wordless": ("say(said([], info=7))", "wanted a text, found 7"),
    "mistyped": ("say(said({'no': 'list'}))", "found {'no': 'list'}"),
    "unknown": ("say(said(places('nowhere.vc.test')))", "known nodes, found 'nowhere"),
    "astray": ("say(said(places('node3.vc.test')))", "found 'node3.vc.test, which is "),
    "miscounted": ("say(said(places('node2.vc.test', wrong=True)))", "wanted "),
}
SCRIPT = """#!{python}
import json, os, sys
with open(sys.argv[1]) as stream:
    request = json.load(stream)["request"]

def say(answer):
    print(json.dumps(answer))

def said(result, success=True, info=""):
    return {{"success": success, "info": info, "result": result}}

def places(node, wrong=False):
    if request["type"] == "allocate":
        return [node, node] if wrong else [node]
    if request["type"] == "relocate":
        return [] if wrong else [node]
    if request["type"] == "multi-allocate":
        names = [item["name"] for item in request["instances"]]
        return [[[name, [node]] for name in names[int(wrong):]], []]
    group = "spare" if request["type"] == "change-group" else "default"
    names = ["other.vc.test"] if wrong else request["instances"]
    op = {{"OP_ID": "OP_INSTANCE_FAILOVER"}}
    jobs = [[op | {{"instance_name": name}}] for name in names]
    return [[[name, group, [node]] for name in names], [], jobs]

{deed}
"""
BATCH = {
    "mode": "create",
    "disk_template": "diskless",
    "disks": [],
    "nics": [],
    "os_type": "tiny+default",
    "hypervisor": "fake",
    "no_install": True,
    "start": False,
}


def install(cluster, name, deed):
    """Put an allocator on the master node."""
    master = cluster.paths(cluster.master.short)
    path = pathlib.Path(master.iallocator_search_path[0], name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SCRIPT.format(python=sys.executable, deed=deed))
    path.chmod(0o755)


@pytest.fixture(scope="module")
def batch_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("batch") / "two.json"
    names = ("two1.vc.test", "two2.vc.test")
    path.write_text(json.dumps([BATCH | {"instance_name": name} for name in names]))
    return str(path)


@pytest.fixture(scope="module")
def victim(cluster):
    """Return an instance to ask allocators about.

    It could change to another group, and one node takes no instances.
    """
    cluster.check("gnt-group", "add", "spare")
    cluster.check("gnt-node", "modify", "--drained", "yes", "node3")
    cluster.check(*ADD, "-t", "sharedfile", "-n", "node1", "victim.vc.test")
    return "victim.vc.test"


@pytest.fixture
def ask(cluster, batch_file, victim):
    """Run the command that asks an allocator in a mode."""
    words = {
        "allocate": (*ADD, "-t", "sharedfile", "never.vc.test"),
        "multi-allocate": ("gnt-instance", "batch-create", batch_file),
        "relocate": ("gnt-instance", "failover", "-f", victim),
        "node-evacuate": ("gnt-node", "evacuate", "-f", "-p", "node1"),
        "change-group": ("gnt-instance", "change-group", victim),
    }

    def run(mode, name):
        program, command, *rest = words[mode]
        return cluster.run(program, command, "-I", name, *rest)

    return run


#: Fields that change with the configuration, by kind of object.
FIELDS = {
    "instance": ["name", "uuid", "serial_no", "mtime", "pnode", "admin_state", "tags"],
    "node": ["name", "uuid", "serial_no", "mtime", "pinst_cnt", "offline", "drained"],
    "group": ["name", "uuid", "serial_no", "mtime", "node_list"],
}


def configuration(cluster):
    """Return the cluster and the serial numbers of all that it has."""
    with contextlib.closing(cluster.luxi()) as client:
        rows = {
            kind: client.call("Query", [kind, fields, None])["data"]
            for kind, fields in FIELDS.items()
        }
        return rows | {"cluster": client.call("QueryClusterInfo", [])}


MODES = ("allocate", "multi-allocate", "relocate", "node-evacuate", "change-group")


@pytest.mark.parametrize("mode", MODES)
def test_scripts_that_misbehave_change_nothing(cluster, ask, mode: str) -> None:
    for name, (deed, words) in MISDEEDS.items():
        install(cluster, f"bad-{name}", deed)
        before = configuration(cluster)
        actual = ask(mode, f"bad-{name}")
        assert actual.code == 1, (name, actual.output)
        assert words in actual.output, (name, actual.output)
        assert f"allocator bad-{name}" in actual.output, (name, actual.output)
        assert len(actual.output) < 3000, name
        assert configuration(cluster) == before, name


def test_what_an_allocator_leaves_running_ends_with_it(cluster, ask) -> None:
    deed = """
import subprocess
child = subprocess.Popen(["sleep", "600"])
say(said([], success=False, info=f"left {child.pid}"))
"""
    install(cluster, "bad-parent", deed)
    actual = ask("allocate", "bad-parent")
    assert actual.code == 1
    pid = re.search(r"bad-parent: left (\d+)", actual.output).group(1)
    until("the child ends", lambda: has_ended(pid))
