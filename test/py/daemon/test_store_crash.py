"""A process that is killed while it commits: nothing acknowledged is lost or torn."""

import random
import signal
import subprocess
import sys

import pytest

from fakes import cluster
from ganeti import store
from ganeti.base.clock import SystemClock

pytestmark = pytest.mark.daemon

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
