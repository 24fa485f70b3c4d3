"""Cost of a job in the queue: no-op jobs over the real store, without candidates.

Prints one figure per line: name, value, unit.
"""

import argparse
import os
import resource
import tempfile
import threading
import time

from ganeti import store
from ganeti.base import clock
from ganeti.master import jqueue
from ganeti.model import opcodes

OP = opcodes.TestDelay(duration=1e-6)


class NoOp:
    """An executor that does nothing; it records the start time."""

    def __init__(self, durable):
        self.durable = durable
        self.started = {}

    def execute(self, op, callbacks, *, timeout_s, priority):
        callbacks.started(durable=self.durable)
        self.started[int(callbacks.owner.split("/")[0])] = time.monotonic()


def show(name, value, unit):
    print(f"{name:48} {value:10.3f} {unit}")


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def rss_mib():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


class Bench:
    def __init__(self, directory, name, *, durable=False, **settings):
        self.store = store.open_master(
            f"{directory}/{name}.db", replicate=None, clock=clock.SystemClock()
        )
        self.executor = NoOp(durable)
        self.queue = jqueue.JobQueue(
            self.store,
            self.executor,
            clock.SystemClock(),
            jqueue.Settings(workers=20, hard_limit=100_000, **settings),
        )
        self.queue.recover()

    def wait_all(self, ids):
        """Wait for the ends as clients do, without one thread per job."""
        left = threading.Semaphore(0)
        for job_id in ids:
            self._watch(job_id, None, left)
        for _ in ids:
            left.acquire()

    def _watch(self, job_id, previous, left):
        def on_change(future):
            values = future.result()[0]
            if jqueue.Status(values[0]).is_final:
                left.release()
            else:
                self._watch(job_id, [str(values[0])], left)

        self.queue.wait_for_change(
            job_id, lambda job: [job.status], previous=previous, timeout_s=80
        ).add_done_callback(on_change)

    def close(self):
        self.queue.stop()
        self.store.close()


def throughput(directory, count, *, durable, clients):
    bench = Bench(directory, f"rate{durable}{clients}", durable=durable)
    bench.queue.start()
    before, cpu = time.monotonic(), time.process_time()

    def client(share):
        for _ in range(share):
            bench.wait_all([bench.queue.submit([OP])])

    threads = [
        threading.Thread(target=client, args=(count // clients,))
        for _ in range(clients)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took, cpu = time.monotonic() - before, time.process_time() - cpu
    done = count // clients * clients
    how = "running durable first" if durable else "running lazily stored"
    show(f"{clients} clients, {how}: jobs/s", done / took, "1/s")
    show(f"{clients} clients, {how}: CPU per job", cpu / done * 1e3, "ms")
    bench.close()


def burst(directory, count):
    """Measure jobs that an event loop submits all at once."""
    bench = Bench(directory, "burst")
    bench.queue.start()
    before, cpu = time.monotonic(), time.process_time()
    futures = [bench.queue.submit_later([OP]) for _ in range(count)]
    ids = [future.result() for future in futures]
    accepted = time.monotonic() - before
    bench.wait_all(ids)
    took, cpu = time.monotonic() - before, time.process_time() - cpu
    show("burst: accepted durably", count / accepted, "1/s")
    show("burst: ended durably", count / took, "1/s")
    show("burst: CPU per job", cpu / count * 1e3, "ms")
    bench.close()


def latency(directory, queued, rounds=200):
    """Measure the time from submission, including the commit, to the start of a job."""
    bench = Bench(directory, f"latency{queued}")
    held = [("gnt:user", "rate-limit:1:held", 0)]
    before = rss_mib()
    bench.queue.submit_many_later(
        [[OP.replace(reason=held)] for _ in range(queued)]
    ).result()
    grown = rss_mib() - before
    gate = threading.Event()
    run = bench.executor.execute

    def execute(op, callbacks, **rest):
        if op.reason[0] == held[0]:
            callbacks.started(durable=False)
            gate.wait()
        return run(op, callbacks, **rest)

    bench.executor.execute = execute
    bench.queue.start()
    waits = []
    for _ in range(rounds):
        asked = time.monotonic()
        job_id = bench.queue.submit([OP])
        bench.wait_all([job_id])
        waits.append(bench.executor.started[job_id] - asked)
    show(f"{queued} queued: submit->running p50", percentile(waits, 0.5) * 1e3, "ms")
    show(f"{queued} queued: submit->running p99", percentile(waits, 0.99) * 1e3, "ms")
    if queued:
        show(f"{queued} queued: memory per job", grown * 1024 / queued, "KiB")
        show(f"{queued} queued: threads", threading.active_count(), "")
    # The held jobs need not end.
    for job in bench.queue.jobs(with_logs=False):
        if job.status == "queued":
            bench.queue.cancel_later(job.id)
    gate.set()
    bench.close()


def blocked(directory, count, rounds=100):
    """Measure the time to the start while many jobs wait for a lock."""
    bench = Bench(directory, "blocked")
    held = [("gnt:user", "held", 0)]
    run, over = bench.executor.execute, threading.Event()

    def execute(op, callbacks, *, timeout_s, priority):
        if op.reason[0] == held[0] and not over.is_set():
            ended = threading.Event()
            callbacks.on_interrupt(ended.set)
            ended.wait(timeout_s)
            raise jqueue.LockTimeout
        return run(op, callbacks, timeout_s=timeout_s, priority=priority)

    bench.executor.execute = execute
    bench.queue.start()
    bench.queue.submit_many_later(
        [[OP.replace(reason=held)] for _ in range(count)]
    ).result()
    waits = []
    for _ in range(rounds):
        asked = time.monotonic()
        job_id = bench.queue.submit([OP.replace(priority=-10)])
        bench.wait_all([job_id])
        waits.append(bench.executor.started[job_id] - asked)
    name = f"{count} waiting for a lock: submit->running"
    show(f"{name} p50", percentile(waits, 0.5) * 1e3, "ms")
    show(f"{name} p99", percentile(waits, 0.99) * 1e3, "ms")
    show(f"{count} waiting for a lock: threads", threading.active_count(), "")
    over.set()
    for job in bench.queue.jobs(with_logs=False):
        if not job.is_final:
            bench.queue.cancel_later(job.id)
    bench.close()


def main():
    parser = argparse.ArgumentParser("test/bench/run jqueue", description=__doc__)
    parser.add_argument("jobs", nargs="?", type=int, default=2000)
    count = parser.parse_args().jobs
    with tempfile.TemporaryDirectory() as directory:
        throughput(directory, count // 4, durable=False, clients=1)
        throughput(directory, count, durable=False, clients=20)
        throughput(directory, count, durable=True, clients=20)
        burst(directory, count)
        latency(directory, 0)
        latency(directory, 10_000)
        blocked(directory, 5_000)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    show("peak memory", peak, "MiB")


if __name__ == "__main__":
    main()
