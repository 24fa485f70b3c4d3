"""Measure the store: commits per second, CPU per commit, cost of one tag.

Run from the top of the tree: ``PYTHONPATH=build/py:test/py python
test/bench/store.py``.
"""

import argparse
import contextlib
import os
import shutil
import signal
import sys
import tempfile
import threading
import time

from fakes import cluster
from fakes.vnode import VirtualNode
from ganeti import config, errors, rpc, store
from ganeti.clock import SystemClock


class Answer:
    fail_msg = None

    def __init__(self, payload):
        self.payload = payload


def in_process(replicas, sent):
    """Return a replicate function for copies in the same process."""

    def replicate(nodes, procedure, args):
        answers = {}
        for node in nodes:
            sent[0] += sum(len(arg) for arg in args if isinstance(arg, str))
            method = getattr(replicas[node], procedure.removeprefix("store_"))
            answers[node] = Answer(method(*args))
        return answers

    return replicate


@contextlib.contextmanager
def daemons(folder, count):
    """Yield a store whose copies are kept by node daemons over TLS."""
    nodes = {
        cluster.make_id("node", number): VirtualNode(
            folder, f"n{number}.tst", f"127.77.3.{number + 1}"
        )
        for number in range(count + 1)
    }
    first, *others = nodes.values()
    first.make_cluster()
    for node in others:
        node.join(first)
        node.start_noded()
    targets = [
        rpc.Target(uuid, node.name, node.address, 1811) for uuid, node in nodes.items()
    ]
    runners = []

    def replicate(uuids, procedure, args):
        if not runners:
            raise errors.RpcError("not ready")
        return runners[0].call(procedure, uuids, args)

    db = store.open_master(
        first.paths.store_db, replicate=replicate, clock=SystemClock()
    )
    runners.append(rpc.StaticRunner(targets, first.paths, db.term))
    db.commit(cluster.big(count + 1, 3, candidates=count + 1))
    while not all(copy.is_current for copy in db.copies().values()):
        time.sleep(0.05)
    try:
        yield db
    finally:
        db.close()
        runners[0].close()
        for node in others:
            node.stop(signal.SIGKILL)


def open_store(folder, copies, sent):
    os.makedirs(folder)
    replicas = {
        cluster.make_id("node", number): store.Replica(f"{folder}/copy{number}.db")
        for number in range(1, copies + 1)
    }
    replicate = in_process(replicas, sent) if copies else None
    return store.open_master(
        f"{folder}/store.db", replicate=replicate, clock=SystemClock()
    )


def bench_jobs(db, what, workers, seconds, document):
    """Commit job documents from many threads, four commits per job."""
    counts = [0] * workers
    latencies = []
    until = time.monotonic() + seconds

    def work(worker):
        while time.monotonic() < until:
            key = f"{worker}.{counts[worker]}"
            for _step in range(4):
                start = time.monotonic()
                db.commit([store.Document("jobs", key, document)])
                latencies.append(time.monotonic() - start)
            counts[worker] += 1

    began, cpu = time.monotonic(), time.process_time()
    threads = [threading.Thread(target=work, args=(n,)) for n in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed, cpu = time.monotonic() - began, time.process_time() - cpu
    jobs = sum(counts)
    latencies.sort()
    print(
        f"{what}, {workers:3} threads: {jobs / elapsed:7.0f} jobs/s,"
        f" {4 * jobs / elapsed:7.0f} commits/s,"
        f" CPU {cpu / (4 * jobs) * 1e6:5.0f} us/commit,"
        f" p50 {latencies[len(latencies) // 2] * 1e3:.2f} ms,"
        f" p99 {latencies[len(latencies) * 99 // 100] * 1e3:.2f} ms"
    )


def bench_tag(folder, instances, rounds=200):
    """Tag one instance repeatedly."""
    sent = [0]
    db = open_store(folder, 1, sent)
    db.commit(cluster.big(20, instances, candidates=2))
    conf = config.Config(db, SystemClock())
    uuid = cluster.make_id("instance", 5)
    times = []
    before = None
    for number in range(rounds + 20):
        if number == 20:
            before = sent[0]
        start = time.perf_counter()
        with conf.edit("bench") as edit:
            edit.update(edit.snapshot.instances[uuid].replace(tags=(f"t{number}",)))
        times.append(time.perf_counter() - start)
    db.close()
    times = sorted(times[20:])
    print(
        f"one tag, {instances:6} instances: p50 {times[rounds // 2] * 1e6:6.0f} us,"
        f" {(sent[0] - before) / rounds:6.0f} bytes to the copy"
    )


def main():
    parser = argparse.ArgumentParser("test/bench/run store", description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--dir", default=None, help="directory of the databases")
    options = parser.parse_args()
    sys.setswitchinterval(0.0005)  # as the master daemon does
    top = tempfile.mkdtemp(prefix="store-bench-", dir=options.dir)
    document = b'{"id": 1, "ops": ["%s"]}' % (b"x" * 900)
    try:
        for copies in (0, 2):
            for workers in (1, 25, 100):
                db = open_store(f"{top}/jobs-{copies}-{workers}", copies, [0])
                db.commit(cluster.big(copies + 1, 3))
                what = f"{copies} copies in this process"
                bench_jobs(db, what, workers, options.seconds, document)
                db.close()
        with daemons(top, 2) as db:
            for workers in (1, 25, 100):
                what = "2 copies by node daemons"
                bench_jobs(db, what, workers, options.seconds, document)
        for instances in (10, 20000):
            bench_tag(f"{top}/tag-{instances}", instances)
    finally:
        shutil.rmtree(top)


if __name__ == "__main__":
    main()
