"""Measure the store: commits per second, CPU per commit, cost of one tag.

Run from the top of the tree: ``PYTHONPATH=build/py:test/py python
test/bench/store.py``.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time

from fakes import cluster
from fakes.vnode import VirtualNode
from ganeti import store
from ganeti.base.clock import SystemClock
from ganeti.master import config
from ganeti.master.config.address_pool import AddressPool
from ganeti.model import objects
from ganeti.protocols import rpc
from ganeti.store import features, wire


class Answer:
    fail_msg = None

    def __init__(self, payload):
        self.payload = payload


def in_process(replicas, sent):
    """Return a replicate function for copies in the same process."""

    def replicate(nodes, request):
        answers = {}
        for node in nodes:
            sent[0] += sum(len(arg) for arg in request.args if isinstance(arg, str))
            method = getattr(
                replicas[node], request.procedure.name.removeprefix("store_")
            )
            answers[node] = Answer(method(*request.args))
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
    late = rpc.LateRunner()
    db = store.open_master(first.paths.store_db, replicate=late, clock=SystemClock())
    runner = rpc.StaticRunner(targets, first.paths, db.term)
    late.set(runner)
    db.commit(cluster.big(count + 1, 3, candidates=count + 1))
    while not all(copy.is_current for copy in db.copies().values()):
        time.sleep(0.05)
    try:
        yield db
    finally:
        db.close()
        runner.close()
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


def bench_pool(folder, rounds=300):
    """Take and release one address of a half-full /16 network repeatedly."""
    sent = [0]
    dice = random.Random(1)
    half = "".join(dice.choice("01") for _ in range(1 << 16))
    network = objects.Network(
        name="lan",
        network="10.0.0.0/16",
        uuid="net",
        serial_no=1,
        reservations=half,
        ext_reservations="1" + "0" * 65534 + "1",
    )
    db = open_store(folder, 1, sent)
    db.commit(
        [*cluster.big(20, 10, candidates=2), objects.Update("networks", "net", network)]
    )
    db.commit(
        [
            objects.Update(
                "nodegroups", key, group.replace(networks={"net": {"mode": "routed"}})
            )
            for key, group in db.snapshot().nodegroups.items()
        ]
    )
    conf = config.Config(db, SystemClock())
    uuid = cluster.make_id("instance", 5)
    nics = db.snapshot().instances[uuid].nics
    times, cpu, before = [], 0.0, 0
    for number in range(2 * rounds):
        if number == 20:
            cpu, before = time.process_time(), sent[0]
        start = time.perf_counter()
        ip = conf.generate_ip("bench", "net") if number % 2 == 0 else None
        new = nics[0].replace(network="net" if ip else None, ip=ip)
        with conf.edit("bench") as edit:
            edit.update(edit.snapshot.instances[uuid].replace(nics=(new, *nics[1:])))
        conf.release("bench")
        times.append(time.perf_counter() - start)
    cpu, count = time.process_time() - cpu, 2 * rounds - 20
    sent_bytes = (sent[0] - before) / count
    kept = db._backend.changes_since(0, None)
    db.close()
    bench_change(network, count)
    print(
        f"one address of a /16: p50 {sorted(times[20:])[count // 2] * 1e6:6.0f} us,"
        f" CPU with one copy {cpu / count * 1e6:6.0f} us,"
        f" {sent_bytes:6.0f} bytes to the copy, log"
        f" {len(kept[-1].payload)} bytes"
    )


def bench_change(network, rounds):
    """Choose and mark one address, and encode the change-set."""
    snapshot = objects.Snapshot().apply([objects.Update("networks", "net", network)])
    cpu, size = time.process_time(), 0
    for _number in range(rounds):
        old = snapshot.networks["net"]
        pool = AddressPool(old)
        pool.use(pool.generate())
        update = objects.Update("networks", "net", pool.result())
        before = wire.Stored(snapshot, features.KNOWN)
        rows = wire.rows([update], features.KNOWN, before)
        snapshot = snapshot.apply([update])
        size += len(wire.encode_rows(rows))
    cpu = time.process_time() - cpu
    print(
        f"one address of a /16, to bytes: CPU {cpu / rounds * 1e6:6.0f} us,"
        f" {size / rounds:6.0f} bytes"
    )


def main():
    parser = argparse.ArgumentParser("test/bench/run store", description=__doc__)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--dir", default=None, help="directory of the databases")
    parser.add_argument("--pool", action="store_true", help="address pools alone")
    options = parser.parse_args()
    sys.setswitchinterval(0.0005)  # as the master daemon does
    top = tempfile.mkdtemp(prefix="store-bench-", dir=options.dir)
    document = b'{"id": 1, "ops": ["%s"]}' % (b"x" * 900)
    try:
        bench_pool(f"{top}/pool")
        if options.pool:
            return
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
