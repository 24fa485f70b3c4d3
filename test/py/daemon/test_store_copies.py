"""Copies of the store kept by real node daemons, and a process killed while it commits."""

import random
import signal
import subprocess
import sys
import threading

import pytest

from fakes import cluster
from fakes.patience import until
from fakes.vnode import VirtualNode, own_address
from ganeti import store
from ganeti.base import errors
from ganeti.base.clock import SystemClock
from ganeti.decisions.quorum import Term
from ganeti.protocols import rpc
from ganeti.protocols.rpc import calls
from ganeti.store import Document

pytestmark = pytest.mark.daemon

NUMBERS = (1, 2)


@pytest.fixture
def nodes(tmp_path):
    made = {
        cluster.make_id("node", number): VirtualNode(
            tmp_path,
            f"n{number}.tst",
            own_address(f"127.{8 + number}"),
        )
        for number in (0, *NUMBERS)
    }
    first, *others = made.values()
    first.make_cluster()
    for node in others:
        node.join(first)
        node.start_noded()
    yield made
    for node in made.values():
        node.stop(signal.SIGKILL)


@pytest.fixture
def opener(nodes):
    targets = [
        rpc.Target(uuid, node.name, node.address, 1811) for uuid, node in nodes.items()
    ]
    first = next(iter(nodes.values()))
    opened, runners = [], []

    def open_master(**options):
        made = []

        def replicate(uuids, request):
            if not made:
                raise errors.RpcError("no runner yet")
            return made[0].call_nodes(uuids, request)

        db = store.open_master(
            first.paths.store_db, replicate=replicate, clock=SystemClock(), **options
        )
        made.append(rpc.StaticRunner(targets, first.paths, db.term))
        opened.append(db)
        runners.extend(made)
        return db

    yield open_master
    for db in opened:
        db.close()
    for runner in runners:
        runner.close()


@pytest.fixture
def db(opener):
    actual = opener()
    actual.commit(cluster.big(3, 5))
    return actual


def is_current(db):
    return all(
        copy.is_current and copy.revision == db.snapshot().revision
        for copy in db.copies().values()
    )


def jobs(node):
    follower = store.Follower(node.paths.store_db)
    try:
        return follower.snapshot(), dict(
            follower._db.tables.scan_some("jobs", None, "")
        )
    finally:
        follower.close()


def test_daemons_keep_copies_and_catch_up_after_a_crash(db, nodes):
    _, second, third = nodes.values()
    until("copies", lambda: is_current(db))
    third.stop(signal.SIGKILL)
    for number in range(20):
        db.commit([Document("jobs", str(number), b"{}")])
    third.start_noded()
    until("the crashed one", lambda: is_current(db))
    for node in (second, third):
        snapshot, actual = jobs(node)
        assert snapshot.instances == db.snapshot().instances
        assert actual == dict(db.scan("jobs"))


def test_many_writers_share_calls(db, nodes):
    until("copies", lambda: is_current(db))

    def work(name):
        for number in range(20):
            db.commit([Document("jobs", f"{name}.{number}", b"x" * 800)])

    threads = [threading.Thread(target=work, args=(name,)) for name in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(db.scan("jobs"))) == 200
    until("copies", lambda: is_current(db))
    assert jobs(list(nodes.values())[1])[1] == dict(db.scan("jobs"))


def promise(nodes, term, numbers):
    """Have some node daemons promise a term to another master."""
    for number in numbers:
        node = list(nodes.values())[number]
        runner = rpc.StaticRunner(
            [rpc.Target("n", node.name, node.address, 1811)], node.paths
        )
        answer = runner.call_node("n", calls.store_promise(term))
        runner.close()
        assert not answer.failed, answer.fail_msg


def test_a_majority_of_daemons_deposes_a_master(db, nodes):
    until("copies", lambda: is_current(db))
    # The file stays the old master's own, so that only the nodes know better.
    promise(nodes, Term(db.term.number + 5, "other"), (1, 2))

    def is_deposed():
        try:
            db.commit([Document("jobs", "1", b"{}")])
        except errors.TermError as err:
            return "is over" in str(err)
        return False

    until("deposed", is_deposed)


def test_one_daemon_deposes_no_master(db, nodes):
    until("copies", lambda: is_current(db))
    promise(nodes, Term(db.term.number + 5, "other"), (1,))
    for number in range(10):
        db.commit([Document("jobs", str(number), b"{}")])
    until("refusal", lambda: any("is over" in c.trouble for c in db.copies().values()))
    db.commit([Document("jobs", "11", b"{}")])
    assert db.exposure() == ""


# A process that is killed while it commits: nothing acknowledged is lost or torn.

#: Commits pairs of documents and one record from several threads and writes down
#: the acknowledged part.
WRITER = """
import sys, threading
from ganeti.model import objects; from ganeti import store
from ganeti.base.clock import SystemClock

db = store.open_master(sys.argv[1], replicate=None, clock=SystemClock())
lock = threading.Lock()
print("ready", flush=True)

def work(name, start):
    number = start
    while True:
        number += 1
        data = (f"{number} " * 500).encode()
        db.commit([store.Document("jobs", name, data), store.Document("meta", name, data)])
        with db.writing() as batch:
            old = batch.snapshot.cluster
            batch.put(
                objects.Update(
                    "cluster",
                    "",
                    old.replace(
                        serial_no=old.serial_no + 1, max_running_jobs=old.serial_no + 1
                    ),
                )
            )
            serial = old.serial_no + 1
        with lock:
            print(name, number, serial, flush=True)

for name in "abcd":
    known = db.read("jobs", name)
    start = int(known.split()[0]) if known else 0
    threading.Thread(target=work, args=(name, start)).start()
"""


def run_and_kill(path, lines):
    """Run the writer until it has printed so many lines; return them."""
    child = subprocess.Popen(
        [sys.executable, "-c", WRITER, path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    reported = []
    try:
        assert child.stdout.readline() == "ready\n", child.stderr.read()
        reported += [child.stdout.readline() for _ in range(lines)]
    finally:
        child.send_signal(signal.SIGKILL)
        rest, _ = child.communicate()
    reported += [line for line in rest.splitlines(keepends=True) if line.endswith("\n")]
    return [line.split() for line in reported]


def test_a_killed_master_keeps_all_that_it_acknowledged(tmp_path):
    path = str(tmp_path / "store.db")
    db = store.open_master(path, replicate=None, clock=SystemClock())
    db.commit(cluster.updates(cluster.example_data()))
    db.close()
    chance = random.Random(4711)
    for _run in range(4):
        reported = run_and_kill(path, chance.randrange(1, 120))
        db = store.open_master(path, replicate=None, clock=SystemClock())
        for name, number, serial in reported:
            assert int(db.read("jobs", name).split()[0]) >= int(number)
            assert db.snapshot().cluster.serial_no >= int(serial)
        for name in "abcd":
            assert db.read("jobs", name) == db.read("meta", name)
        now = db.snapshot().cluster
        assert now.max_running_jobs in {20, now.serial_no}
        db.close()
