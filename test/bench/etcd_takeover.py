"""Kill masters of a store in etcd, and its servers; count losses and seconds.

Each master is a process of its own that prints each commit which was acknowledged.
While one is master, the next one waits. Every third master is killed together with one
of the three servers, or while one is frozen.
"""

import argparse
import subprocess
import sys
import tempfile
import threading
import time

from fakes.etcd_servers import EtcdServers
from ganeti.base.clock import SystemClock
from ganeti.store.etcd import Candidacy, open_etcd

MASTER = """
import sys, threading
from ganeti.base.clock import SystemClock
from ganeti.store import Document
from ganeti.store.etcd import Candidacy, open_etcd, parse
servers, node, clock = parse(sys.argv[1]), sys.argv[2], SystemClock()
print("waiting", flush=True)
db = Candidacy(servers, node, clock).take_over(
    lambda: open_etcd(servers, clock=clock, node=node), threading.Event()
)
number = 0
while True:
    number += 1
    db.commit([Document("jobs", f"{node}.{number}", b"{}")])
    print(f"{node}.{number}", flush=True)
"""
#: Seconds from the kill to the first acknowledged commit; 95 % must reach it.
GOAL_S = 10.0


class Masters:
    """The present master and the one that waits."""

    def __init__(self, servers):
        self._servers = servers
        self._count = 0
        self.acknowledged = set()
        self._next = self._spawn()
        self.present = None

    def _spawn(self):
        self._count += 1
        process = subprocess.Popen(
            [sys.executable, "-c", MASTER, str(self._servers), f"node{self._count}"],
            stdout=subprocess.PIPE,
            text=True,
        )
        process.stdout.readline()
        return process

    def replace(self):
        """Kill the present master; return when the next one has acknowledged."""
        start = time.monotonic()
        if self.present is not None:
            self.close()
        self.present = self._next
        self.acknowledged.add(self.present.stdout.readline().strip())
        elapsed = time.monotonic() - start
        self._next = self._spawn()
        return elapsed

    def close(self):
        """Kill the present master and note its commits."""
        self.present.kill()
        self.acknowledged.update(self.present.stdout.read().split())
        self.present.wait()

    def end(self):
        """Kill all."""
        self._next.kill()
        self._next.wait()
        self.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=60)
    parser.add_argument("--quick", action="store_true", help="six masters")
    args = parser.parse_args()
    times = []
    with tempfile.TemporaryDirectory(prefix="gv-") as folder:
        etcd = EtcdServers(folder, 3)
        try:
            etcd.start()
            place = etcd.servers()
            masters = Masters(place)
            masters.replace()
            for number in range(6 if args.quick else args.count):
                time.sleep(
                    0.2 + number % 7 * 0.1
                )  # somewhere between two prolongations
                victim = number % 3
                if number % 3 == 1:
                    etcd.kill(victim)
                elif number % 3 == 2:
                    etcd.pause(victim)
                times.append(masters.replace())
                if number % 3 == 1:
                    etcd.start(victim)
                elif number % 3 == 2:
                    etcd.resume(victim)
            masters.end()
            lost = masters.acknowledged - _stored(place)
        finally:
            etcd.close()
    times.sort()
    late = times[int(len(times) * 0.95)]
    print(
        f"{len(masters.acknowledged)} commits acknowledged, {len(lost)} lost;"
        f" {len(times)} takeovers: p50 {times[len(times) // 2]:.1f} s, p95 {late:.1f} s,"
        f" longest {times[-1]:.1f} s (p95 at most {GOAL_S:g} s)"
    )
    return int(bool(lost) or late > GOAL_S)


def _stored(place):
    clock = SystemClock()
    db = Candidacy(place, "reader", clock).take_over(
        lambda: open_etcd(place, clock=clock, node="reader"), threading.Event()
    )
    stored = {key for key, _data in db.scan("jobs")}
    db.close()
    return stored


if __name__ == "__main__":
    sys.exit(main())
