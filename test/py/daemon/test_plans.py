"""Plans of a real cluster: nothing happens, and the run then does what was planned."""

import contextlib
import hashlib
import json
import os

import pytest

pytestmark = pytest.mark.daemon
NAME = "plan1.vc.test"
ADD = (
    *("gnt-instance", "add", "-t", "sharedfile", "-s", "64M", "-B", "memory=64M"),
    *("-H", "fake", "-o", "tiny+default", "--no-nics", "-n", "node1"),
    *("--no-install", "--no-start"),
)
#: Files that daemons write late or for reading; the configuration has a revision.
_RESTLESS = ("/log/", "store.db", "ssconf_", ".pid", ".sock", "/dev/", "/proc/")
# The audit log follows the jobs that came before.
_RESTLESS += ("audit-head",)


@pytest.fixture
def instance(vcluster):
    vcluster.check(*ADD, NAME)
    yield NAME
    vcluster.run("gnt-instance", "remove", "-f", "--ignore-failures", NAME)


def state(vcluster):
    """Return revision, jobs, locks in use and the nodes' files."""
    with contextlib.closing(vcluster.luxi()) as client:
        jobs = client.call("Query", ["job", ["id"], None])["data"]
        locks = client.call("Query", ["lock", ["name", "mode"], None])["data"]
        revision = client.call("PlanJob", [[]])["revision"]
    return {"revision": revision, "jobs": jobs, "locks": locks} | files(vcluster)


def files(vcluster):
    actual = {}
    for name in ("node1", "node2", "node3"):
        for folder, _, names in os.walk(vcluster.file("/", name)):
            for path in (os.path.join(folder, item) for item in names):
                if any(part in path for part in _RESTLESS) or not os.path.isfile(path):
                    continue
                with open(path, "rb") as stream:
                    actual[path] = hashlib.sha256(stream.read()).hexdigest()
    return actual


def plan(vcluster, *argv):
    """Return the plans of a command's jobs; check that nothing else happened."""
    before = state(vcluster)
    program, command, *rest = argv
    text = vcluster.check(program, command, "--plan", "--json", *rest)
    after = state(vcluster)
    different = {k for k in before | after if before.get(k) != after.get(k)}
    assert different == set()
    return [op for job in json.loads(text)["jobs"] for op in job["opcodes"]]


def changed(vcluster, run):
    """Return how the configuration differs after a run: {table/key: record}."""
    before = configuration(vcluster)
    run()
    after = configuration(vcluster)
    return {key for key in before | after if before.get(key) != after.get(key)}


def configuration(vcluster):
    from ganeti import store
    from ganeti.model import objects

    follower = store.Follower(vcluster.paths().store_db)
    try:
        snapshot = follower.snapshot()
    finally:
        follower.close()
    return {
        (table, key): objects.to_dict(record)
        for table in objects.TABLES
        for key, record in snapshot.table(table).items()
    }


def fields_after(vcluster, change):
    record = configuration(vcluster)[change["table"], change["uuid"]]
    return {row["name"]: inside(record, row["name"]) for row in change["fields"]}


def inside(record, name):
    for key in name.split("."):
        record = record.get(key) if record else None
    return record


@pytest.fixture
def undrained(vcluster):
    yield
    vcluster.run("gnt-node", "modify", "--drained", "no", "node2")
    vcluster.run("gnt-node", "modify", "--master-candidate", "yes", "node2")


CHANGES = [
    ("gnt-instance", "startup", NAME),
    ("gnt-instance", "migrate", "-f", "-n", "node2", NAME),
    ("gnt-instance", "shutdown", NAME),
    ("gnt-instance", "failover", "-f", "-n", "node3", NAME),
    ("gnt-instance", "add-tags", NAME, "planned"),
    ("gnt-node", "modify", "--drained", "yes", "node2"),
    ("gnt-node", "modify", "--drained", "no", "node2"),
]


def test_runs_do_what_was_planned(vcluster, instance, undrained):
    del undrained
    for words in CHANGES:
        (reported,) = plan(vcluster, *words)
        assert reported["error"] is None, words
        did = changed(vcluster, lambda words=words: vcluster.check(*words))
        assert did == {(row["table"], row["uuid"]) for row in reported["changes"]}, (
            words
        )
        for change in reported["changes"]:
            wanted = {field["name"]: field["after"] for field in change["fields"]}
            assert fields_after(vcluster, change) == wanted, words


def test_creating_and_removing_can_be_planned(vcluster):
    (reported,) = plan(vcluster, *ADD[:2], *ADD[2:], NAME)
    assert [row["action"] for row in reported["changes"]] == ["add", "add"]
    missing = vcluster.run("gnt-instance", "info", NAME)
    assert missing.code == 1
    vcluster.check(*ADD, NAME)
    (reported,) = plan(vcluster, "gnt-instance", "remove", NAME)
    assert [row["action"] for row in reported["changes"]] == ["remove", "remove"]
    assert "blockdev_remove" in {step.get("procedure") for step in reported["steps"]}
    vcluster.check("gnt-instance", "info", NAME)
    vcluster.check("gnt-instance", "remove", "-f", NAME)


def test_a_guest_keeps_running_while_its_end_is_planned(vcluster, instance):
    vcluster.check("gnt-instance", "startup", NAME)
    for words in (("shutdown",), ("reboot",), ("failover", "-f", "-n", "node2")):
        plan(vcluster, "gnt-instance", *words, NAME)
        shown = vcluster.check(
            "gnt-instance", "list", "--no-headers", "-o", "status,pnode", NAME
        )
        assert shown.split() == ["running", "node1.vc.test"]


def test_errors_are_those_of_a_run(vcluster, instance):
    words = ("gnt-instance", "migrate", "-f", "-n", "node2", NAME)
    run = vcluster.run(*words)
    planned = vcluster.run("gnt-instance", "migrate", "--plan", *words[2:])
    assert (run.code, planned.code) == (1, 1)
    assert "is not running" in run.output
    assert "The operation would fail: " in planned.stdout
    assert "is not running" in planned.stdout


def test_a_malformed_opcode_is_refused(vcluster):
    from ganeti.base import errors

    with (
        contextlib.closing(vcluster.luxi()) as client,
        pytest.raises(errors.GenericError, match="nothing"),
    ):
        client.call("PlanJob", [[{"OP_ID": "OP_GROUP_ADD", "nothing": 1}]])
