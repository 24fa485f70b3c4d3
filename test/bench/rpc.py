"""Measure node calls: latency and rate to one node, fan-out to many.

Run from the top of the tree: ``PYTHONPATH=build/py:test/py python test/bench/rpc.py``.
Nodes are loopback addresses; a few real node daemons with real TLS answer for all.
"""

import argparse
import statistics
import tempfile
import threading
import time

from fakes.vnode import VirtualNode
from ganeti.protocols import rpc
from ganeti.protocols.rpc import calls


def start_daemons(folder, count):
    """Start node daemons of one cluster, each on its own port of all addresses."""
    daemons = []
    for number in range(count):
        node = VirtualNode(folder, f"n{number}.tst", "0.0.0.0")
        if daemons:
            node.join(daemons[0])
        else:
            node.make_cluster()
        node.start_noded("-p", str(18110 + number))
        daemons.append(node)
    return daemons


def targets_of(daemons, count):
    return [
        rpc.Target(
            f"u{number}",
            f"n{number}",
            f"127.1.0.{number + 1}",
            18110 + number % len(daemons),
        )
        for number in range(count)
    ]


def timed(call, times):
    """Return the seconds that each of some calls took."""
    actual = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        actual.append(time.perf_counter() - start)
    return actual


def show(what, seconds):
    seconds = sorted(seconds)
    p99 = seconds[min(len(seconds) - 1, len(seconds) * 99 // 100)]
    median = statistics.median(seconds)
    print(f"{what}: p50 {median * 1000:.2f} ms, p99 {p99 * 1000:.2f} ms")


def check(results):
    for result in results.values():
        assert not result.failed, result.fail_msg


def bench_rate(runner, threads, seconds):
    """Print how many calls to one node many threads make."""
    counts = [0] * threads
    until = time.monotonic() + seconds

    def work(number):
        while time.monotonic() < until:
            runner.call_node("u0", calls.version())
            counts[number] += 1

    workers = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(f"one node, {threads} threads: {sum(counts) / seconds:.0f} calls/s")


def main():
    parser = argparse.ArgumentParser("test/bench/run rpc", description=__doc__)
    parser.add_argument("--nodes", type=int, default=20)
    parser.add_argument("--daemons", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        daemons = start_daemons(folder, options.daemons)
        runner = rpc.StaticRunner(
            targets_of(daemons, options.nodes), daemons[0].paths, 1
        )
        try:
            everybody = [f"u{number}" for number in range(options.nodes)]
            first = timed(lambda: check(runner.call("version", everybody)), 1)
            print(f"{options.nodes} nodes, new connections: {first[0] * 1000:.1f} ms")
            show(
                f"{options.nodes} nodes, kept connections",
                timed(lambda: check(runner.call("version", everybody)), 50),
            )
            show(
                "one node", timed(lambda: runner.call_node("u0", calls.version()), 500)
            )
            show(
                "one node, node_info",
                timed(
                    lambda: runner.call_node("u0", calls.node_info([], [["fake", {}]])),
                    100,
                ),
            )
            for threads in (1, 4, 16):
                bench_rate(runner, threads, options.seconds)
        finally:
            runner.close()
            for node in daemons:
                node.stop()


if __name__ == "__main__":
    main()
