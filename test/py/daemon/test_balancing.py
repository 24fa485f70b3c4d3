"""A cluster that gets better: placement programs and gnt-cluster balance, for real."""

import collections
import concurrent.futures
import contextlib
import json
import re

import pytest

from fakes import patience

ADD = ("gnt-instance", "add", "-t", "sharedfile", "-s", "8M", "-H", "fake")
ADD += ("-B", "memory=256M", "-o", "tiny+default", "--no-nics", "-n", "node1")
APPLY = ("gnt-cluster", "balance", "--apply", "--yes")
#: A line of a plan: instance, target, score.
PLANNED = re.compile(r"^ +\d+\. (\S+) +\S+ +=> (\S+) +([0-9.]+)", re.MULTILINE)
NAMES = [f"pile{k}.vc.test" for k in range(6)]


@pytest.fixture(scope="module")
def cluster(cluster_of):
    made = cluster_of(3)
    for name in NAMES:
        made.check(*ADD, name)
    return made


@pytest.fixture
def piled(cluster):
    """A cluster with all instances on its first node."""
    for name, node in where(cluster).items():
        if node != "node1.vc.test":
            cluster.check("gnt-instance", "migrate", "-f", "-n", "node1", name)
    return cluster


def where(cluster):
    """Return the primary node by instance."""
    text = cluster.check("gnt-instance", "list", "--no-headers", "-o", "name,pnode")
    return dict(line.split() for line in text.splitlines())


def score(cluster):
    """Return the score that hinfo prints."""
    last = cluster.check("hinfo", "-L").splitlines()[-1]
    assert last.startswith("Cluster score: "), last
    return float(last.rpartition(" ")[2])


def moves(text):
    """Return instances and targets of a plan's lines."""
    return [line.split()[1:5] for line in text.splitlines() if "a=" in line]


def test_hbal_carries_out_its_plan(piled) -> None:
    before = score(piled)
    reported = piled.check("hbal", "-L", "-X", "--reason=tidy", "--priority=low")
    assert "Executing jobset for instances" in reported
    counts = collections.Counter(where(piled).values())
    assert sorted(counts.values()) == [2, 2, 2]
    assert score(piled) < before / 3
    assert not moves(piled.check("hbal", "-L", "-X"))
    jobs = piled.check("gnt-job", "list", "--no-headers", "-o", "status,summary")
    assert jobs.count("success INSTANCE_MIGRATE") >= 4


def test_hbal_outlives_a_master_daemon_that_is_killed(piled, tmp_path) -> None:
    # Nothing moves before the kill, which ends this too.
    held = {"on_nodes": ["node2.vc.test", "node3.vc.test"], "no_locks": False}
    delay = {"OP_ID": "OP_TEST_DELAY", "duration": 600, **held}
    with contextlib.closing(piled.luxi()) as client:
        patience.job_status(client, client.call("SubmitJob", [[delay]]), ("running",))
    reported = tmp_path / "told"
    reported.touch()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        words = ("sh", "-c", f"exec hbal -L -X > {reported} 2>&1")
        ended = pool.submit(piled.run, *words)
        try:
            waits = lambda: ended.done() or "Got job IDs" in reported.read_text()  # noqa: E731
            patience.until("hbal waits for a job", waits)
        finally:
            piled.command("kill", "node1", "ganeti-masterd")
            piled.command("start", "node1", "ganeti-masterd")
        actual = ended.result()
    assert actual.code == 0, reported.read_text()
    assert sorted(collections.Counter(where(piled).values()).values()) == [2, 2, 2]


def test_the_scanned_cluster_has_the_same_plan(piled, tmp_path) -> None:
    line = piled.check("hscan", "--no-headers", "-d", str(tmp_path)).split()
    assert line[:3] == ["LOCAL", "3", "6"]
    saved = piled.check("hbal", "-t", str(tmp_path / "LOCAL.data"))
    # Free memory of this machine changes in between, and with it the order of equal moves.
    assert len(moves(saved)) == len(moves(piled.check("hbal", "-L"))) == 4


def test_the_cluster_balances_itself(piled) -> None:
    (group,) = json.loads(piled.check("gnt-cluster", "balance", "--json"))["groups"]
    before = score(piled)
    assert abs(group["score_before"] - before) < 0.1
    reported = piled.check("gnt-cluster", "balance", "--apply", "--yes")
    assert "All instances moved successfully." in reported
    assert sorted(collections.Counter(where(piled).values()).values()) == [2, 2, 2]
    after = score(piled)
    assert after < before / 3
    assert abs(group["score_after"] - after) < 0.5
    again = piled.check("gnt-cluster", "balance", "--explain")
    assert "nothing to do" in again
    assert "No more: " in again


@pytest.mark.parametrize("words", [("hbal", "-L", "-X"), APPLY], ids=["hbal", "gnt"])
def test_a_search_ends_where_its_plan_says(piled, words) -> None:
    expected = where(piled)
    reported = piled.check(*words, "--search")
    lines = PLANNED.findall(reported)
    assert lines
    for name, target, _score in lines:
        short = name.partition(".")[0]
        expected[f"{short}.vc.test"] = f"{target.partition('.')[0]}.vc.test"
    assert where(piled) == expected
    # Free memory of this machine changes in between.
    assert abs(score(piled) - float(lines[-1][2])) < 0.5
    again = piled.check("gnt-cluster", "balance", "--search", "--explain")
    assert "nothing to do" in again


def test_a_bounded_number_of_moves(piled) -> None:
    before = where(piled)
    piled.check("gnt-cluster", "balance", "--apply", "--yes", "--max-moves=1")
    after = where(piled)
    assert sum(after[name] != before[name] for name in NAMES) == 1


def test_a_drained_node_is_emptied(piled) -> None:
    piled.check("gnt-node", "modify", "-D", "yes", "node2")
    try:
        piled.check("gnt-instance", "migrate", "-f", "-n", "node3", NAMES[0])
        piled.check("gnt-cluster", "balance", "--apply", "--yes")
        assert "node2.vc.test" not in where(piled).values()
        health = piled.run("hcheck", "-L", "--machine-readable")
        assert health.code == 1  # a node that is drained counts as offline
        assert "HCHECK_FINAL_CLUSTER_OFFLINE_PRI=0" in health.output
    finally:
        piled.check("gnt-node", "modify", "-D", "no", "node2")


def test_a_failing_job_fails_the_program(piled) -> None:
    piled.check("gnt-cluster", "queue", "drain")
    try:
        actual = piled.run("hbal", "-L", "-X")
        assert actual.code == 1
        assert "Error: " in actual.output
        assert "Traceback" not in actual.output
        again = piled.run("gnt-cluster", "balance", "--apply", "--yes")
        assert again.code == 1
    finally:
        piled.check("gnt-cluster", "queue", "undrain")
    assert set(where(piled).values()) == {"node1.vc.test"}


def test_an_allocator_may_plan_instead(piled) -> None:
    words = ("gnt-cluster", "balance", "-I", "hail", "--max-moves=2")
    (group,) = json.loads(piled.check(*words, "--json"))["groups"]
    assert [move["from"] for move in group["moves"]] == [["node1.vc.test"]] * 2
    piled.check(*words, "--apply", "--yes")
    # Which of the equal ones depends on the free memory of this machine at the moment.
    assert sum(node != "node1.vc.test" for node in where(piled).values()) == 2
    actual = piled.run("gnt-cluster", "balance", "-I", "nobody")
    assert actual.code == 1
    assert "nobody" in actual.output
