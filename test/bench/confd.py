"""Answers of ganeti-confd: rate and latency, CPU time beside Debian's, delay of changes."""

import argparse
import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

import simplejson

from fakes import cluster, confd_hostile
from fakes.confd import KEY
from ganeti import store
from ganeti.base.clock import SystemClock
from ganeti.base.pathutils import Paths
from ganeti.bootstrap import jobs
from ganeti.daemons.confd import server
from ganeti.devel.vcluster import layout as lay
from ganeti.model import objects, opcodes
from ganeti.model.objects import Update
from ganeti.protocols.confd import ConfdClient, wire

TOP = pathlib.Path(__file__).resolve().parents[2]
OURS = TOP / "build/bin/ganeti-confd"
PEER = TOP / "build/peers/usr/lib/ganeti/3.0/usr/sbin/ganeti-confd"
#: Version of config.data that Ganeti 3.0 reads.
PEER_VERSION = 3000000
NODES = 20
INSTANCES = 200
#: Requests on the way at a time, when the rate is measured.
WINDOW = 8
#: Most requests per second, below the number of replies that our daemon permits itself.
MOST = 0.9 * server.MAX_REPLIES_PER_S
#: The rate of the goal, in answers per second, and requests sent together at that rate.
RATE, BURST = 8000, 4
TICKS = os.sysconf("SC_CLK_TCK")


def updates():
    """Return a cluster whose instances have addresses."""
    rows = []
    number = 0
    for update in cluster.big(NODES, INSTANCES):
        record = update.record
        if update.table == "instances":
            nic = record.nics[0].replace(
                ip=f"10.0.{number >> 8}.{number & 255}",
                nicparams={"link": "br0", "mode": "bridged"},
            )
            record = record.replace(nics=(nic,))
            number += 1
        rows.append(update._replace(record=record))
    return rows


QUERIES = {
    "ping": (0, None),
    "role": (1, "node1.example.com"),
    "instance IP": (2, {"0": "br0", "1": "10.0.0.7"}),
    "master fields": (3, {"3": [0, 1, 2]}),
}


def make_node(top, address):
    """Make a virtual node with key, store and config.data; return its paths."""
    root = pathlib.Path(top) / "node0.example.com"
    paths = Paths(root=str(root), hostname=root.name)
    for path in (paths.data_dir, paths.run_dir, paths.log_dir, paths.socket_dir):
        os.makedirs(path)
    pathlib.Path(paths.hmac_key).write_bytes(KEY)
    for name, value in (
        ("primary_ip_family", "2"),
        ("master_node", root.name),
        ("cluster_name", "c.example.com"),
        ("master_candidates_ips", address),
    ):
        pathlib.Path(paths.data(f"ssconf_{name}")).write_text(f"{value}\n")
    return paths


def write_config(paths, snapshot):
    """Write the configuration in the form that the peer reads."""
    data = {"version": PEER_VERSION, "serial_no": snapshot.revision}
    data |= {"ctime": 1.0, "mtime": 1.0, "cluster": objects.to_dict(snapshot.cluster)}
    for table in objects.TABLES:
        if table != "cluster":
            data[table] = {
                key: objects.to_dict(record)
                for key, record in snapshot.table(table).items()
            }
    pathlib.Path(paths.data("config.data")).write_text(simplejson.dumps(data))


class Daemon:
    """A running daemon, ours or the peer."""

    def __init__(self, program, paths, address, port):
        env = {"PATH": os.environ["PATH"], "GANETI_ROOTDIR": paths.root}
        env["GANETI_HOSTNAME"] = paths.hostname
        self.address, self.port = address, port
        self.log = open(f"{paths.root}/{port}.log", "wb")  # noqa: SIM115
        words = ["-f", "--no-user-checks", "-b", address, "-p", str(port)]
        self.process = subprocess.Popen(
            [str(program), *words],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
        )
        self.client = ConfdClient(KEY, [address], port=port)
        end = time.monotonic() + 30
        while not self.client.ask(3, timeout_s=0.2).is_ok:
            if self.process.poll() is not None or time.monotonic() > end:
                text = pathlib.Path(self.log.name).read_text()[-2000:]
                self.stop()
                raise RuntimeError(f"{program} does not answer: {text}")

    def cpu_s(self):
        """Return the CPU time of the process until now."""
        text = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text()
        fields = text.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def stop(self):
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.process.kill()
        self.process.wait()
        self.log.close()


def prepared(query, count=64):
    """Return signed requests, so that the client costs little."""
    signers = wire.Signers(KEY)
    return [
        wire.seal_query(
            wire.Query(1, query[0], f"{number:032x}", query[1]),
            time.time(),
            signers,
            wire.MAGIC_SHA1,
        )
        for number in range(count)
    ]


def measure(daemon, query, seconds, window):
    """Return answers per second, CPU microseconds per answer, and sorted latencies."""
    requests = prepared(query)
    where = (daemon.address, daemon.port)
    latencies, sent = [], []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(2)
        begin, cpu = time.perf_counter(), daemon.cpu_s()
        for number in range(window):
            sock.sendto(requests[number % 64], where)
            sent.append(time.perf_counter())
        done, due = 0, begin
        while time.perf_counter() - begin < seconds:
            sock.recv(65536)
            now = time.perf_counter()
            latencies.append(now - sent[done])
            done += 1
            # Waiting in the kernel takes longer than the few microseconds left.
            due = max(due + 1 / MOST, now)
            while (now := time.perf_counter()) < due:
                pass
            sock.sendto(requests[(done + window) % 64], where)
            sent.append(now)
        for _ in range(window):
            sock.recv(65536)
        took, used = time.perf_counter() - begin, daemon.cpu_s() - cpu
    answers = done + window
    return answers / took, used / answers * 1e6, sorted(latencies)


def paced(daemon, query, seconds):
    """Return the sorted latencies of requests that arrive at `RATE`."""
    requests = prepared(query)
    where = (daemon.address, daemon.port)
    latencies = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(2)
        begin = due = time.perf_counter()
        while due - begin < seconds:
            while time.perf_counter() < due:
                pass
            for number in range(BURST):
                sock.sendto(requests[number], where)
            for _ in range(BURST):
                sock.recv(65536)
                latencies.append(time.perf_counter() - due)
            due += BURST / RATE
    return sorted(latencies)


def show(title, daemon, seconds):
    """Measure all kinds of queries, print, and return CPU time per kind."""
    costs = {}
    for name, query in QUERIES.items():
        rate, cost, latencies = measure(daemon, query, seconds, WINDOW)
        p99 = latencies[int(len(latencies) * 0.99)] * 1000
        steady = paced(daemon, query, seconds)
        steady_p99 = steady[int(len(steady) * 0.99)] * 1000
        costs[name] = cost
        print(
            f"{title:8} {name:14} {rate:8,.0f} answers/s  p99 {p99:6.2f} ms"
            f"  {cost:5.1f} us CPU per answer"
            f"  at {RATE:,}/s: p99 {steady_p99:6.2f} ms",
            flush=True,
        )
    return costs


def delays(daemon, master, count):
    """Return the seconds from each commit to an answer of its revision, sorted.

    The daemon follows the file of the writer; that a candidate's copy is written before
    a commit is acknowledged is a matter of the commit policy.
    """
    key, node = next(iter(master.snapshot().nodes.items()))
    taken = []
    for number in range(count):
        update = Update("nodes", key, node.replace(powered=bool(number % 2)))
        master.commit([update])
        wanted = master.snapshot().revision
        begin = time.perf_counter()
        while daemon.client.ask(3).reply.serial < wanted:
            pass
        taken.append(time.perf_counter() - begin)
    return sorted(taken)


def delays_elsewhere(count):
    """Return the seconds from a commit to its answer on another candidate, sorted.

    Three real nodes; the commits are jobs that tag the cluster. The time begins when the
    master has acknowledged the end of the job, so it may be next to nothing.
    """
    taken = []
    with tempfile.TemporaryDirectory(prefix="gv-") as directory:
        vcluster = [str(TOP / "build/bin/vcluster"), "-C", directory]
        try:
            up = [*vcluster, "up", "-n", "3", "--hypervisors", "fake"]
            subprocess.run(up, check=True, stdout=subprocess.DEVNULL)
            layout = lay.Layout.load(directory)
            master, other = layout.nodes[:2]
            paths = layout.paths(master)
            key = pathlib.Path(paths.hmac_key).read_bytes()
            asked = ConfdClient(key, [other.address], port=lay.PORTS["ganeti-confd"])
            for number in range(count):
                before = asked.ask(3).reply.serial
                op = opcodes.TagsSet(kind="cluster", name="", tags=[f"tag{number}"])
                jobs.run(paths, [op], lambda _line: None)
                begin = time.perf_counter()
                while asked.ask(3).reply.serial <= before:
                    pass
                taken.append(time.perf_counter() - begin)
        finally:
            subprocess.run([*vcluster, "down"], check=False, stdout=subprocess.DEVNULL)
    return sorted(taken)


def attack(daemon, count, seed):
    """Send mutated packets and print how many got a reply."""
    print(f"seed {seed}", flush=True)
    sent, replies, growth = confd_hostile.run(
        KEY, daemon.address, daemon.port, daemon.process.pid, seed=seed, count=count
    )
    print(f"{sent:,} packets, {replies:,} replies, memory {growth:+.1%}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="per kind of query")
    parser.add_argument("--commits", type=int, default=500)
    parser.add_argument("--quick", action="store_true", help="1 second per kind")
    parser.add_argument(
        "--hostile", type=int, metavar="COUNT", help="only send mutated packets"
    )
    parser.add_argument(
        "--elsewhere",
        type=int,
        metavar="COUNT",
        help="only measure when another candidate answers with a commit",
    )
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9)
    args = parser.parse_args()
    seconds = 1.0 if args.quick else args.seconds
    if args.elsewhere:
        taken = delays_elsewhere(args.elsewhere)
        p99 = taken[int(len(taken) * 0.99)] * 1000
        print(
            f"{len(taken)} commits to their answers on another candidate: median"
            f" {taken[len(taken) // 2] * 1000:.1f} ms, p99 {p99:.1f} ms (at most 50 ms)"
        )
        return 0
    address = "127.0.0.1"
    with tempfile.TemporaryDirectory() as top, contextlib.ExitStack() as stack:
        paths = make_node(top, address)
        master = store.open_master(paths.store_db, replicate=None, clock=SystemClock())
        stack.callback(master.close)
        master.commit(updates())
        write_config(paths, master.snapshot())
        ours = Daemon(OURS, paths, address, 41814)
        stack.callback(ours.stop)
        if args.hostile:
            attack(ours, args.hostile, args.seed)
            return 0
        costs = show("ours", ours, seconds)
        taken = delays(ours, master, 50 if args.quick else args.commits)
        p99 = taken[int(len(taken) * 0.99)] * 1000
        median = taken[len(taken) // 2] * 1000
        print(f"commit to answer: median {median:.1f} ms, p99 {p99:.1f} ms")
        if not PEER.exists():
            print("Debian's ganeti-confd is not here: autotools/setup-env --test")
            return 0
        peer = Daemon(PEER, paths, address, 41815)
        stack.callback(peer.stop)
        for name, cost in show("Debian", peer, seconds).items():
            print(f"{name}: {cost / costs[name]:.2f}x answers per CPU second")
    return 0


if __name__ == "__main__":
    sys.exit(main())
