"""Speed of a whole cluster: jobs, latency, listings, tags, memory, start-up.

    test/bench/run cluster [--quick]
    test/bench/run cluster --creations 600 --nodes 60

The second form measures instance creations alone: processor time of the master daemon
per creation, with a named node and with the default allocator, and the elapsed time.

Starts its own virtual clusters in a scratch directory and ends them. Prints one line
per figure: name, measured value, goal. Figures of "Ganeti 3.0.2" were measured with
Debian's package on a machine with 2 cores.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

from ganeti import store
from ganeti.base.clock import SystemClock
from ganeti.master import config
from ganeti.model import objects
from ganeti.protocols import luxi

TOP = pathlib.Path(__file__).resolve().parents[2]
FINAL = {"success", "error", "canceled"}
NOOP = {"OP_ID": "OP_TEST_DELAY", "duration": 1e-6, "reason": []}


def show(what, value, unit, goal, peer=""):
    """Print a figure, its goal such as ``<= 5`` and how much of the goal it takes."""
    beside = f"  (Ganeti 3.0.2: {peer})" if peer else ""
    share = ""
    if goal != "-":
        sense, limit = goal.split()
        ratio = value / float(limit)
        if sense == ">=":
            ratio = 1 / ratio
        share = f"  {ratio:.2f}{' MISSED' if ratio > 1 else ''}"
    print(f"{what:<58} {value:>9.3f} {unit:<7} goal {goal}{share}{beside}", flush=True)


def _children_cpu_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Cluster:
    """A running virtual cluster."""

    def __init__(self, directory, nodes):
        self.directory = directory
        began = time.monotonic()
        self._vcluster("up", "-n", str(nodes), "--hypervisors", "fake")
        self.up_s = time.monotonic() - began
        self.nodes = json.loads(self._vcluster("status", "--json"))["nodes"]
        self.master = self.nodes[0]["name"]

    def _vcluster(self, *args):
        argv = [TOP / "tools" / "vcluster", "-C", self.directory, *args]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"vcluster {' '.join(args)}: {done.stdout}{done.stderr}")
        return done.stdout

    def down(self):
        self._vcluster("down")

    @property
    def root(self):
        return self.nodes[0]["root"]

    def client(self):
        return luxi.Client(f"{self.root}/var/run/ganeti/socket/ganeti-query")

    def environment(self):
        return os.environ | {
            "GANETI_ROOTDIR": self.root,
            "GANETI_HOSTNAME": self.master,
        }

    def pid(self):
        path = f"{self.root}/var/run/ganeti/ganeti-masterd.pid"
        return int(pathlib.Path(path).read_text())

    def cpu_s(self):
        fields = pathlib.Path(f"/proc/{self.pid()}/stat").read_text().split()
        return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")

    def settled_cpu_s(self):
        """Return `cpu_s` once files that jobs have left to write are on all nodes."""
        while True:
            before = self.cpu_s()
            time.sleep(1)
            if self.cpu_s() - before < 0.05:
                return before

    def rss_mib(self):
        status = pathlib.Path(f"/proc/{self.pid()}/status").read_text()
        line = next(row for row in status.splitlines() if row.startswith("VmRSS"))
        return int(line.split()[1]) / 1024

    def command_s(self, *argv, runs=10):
        """Return the median wall time of a command."""
        return self.command(*argv, runs=runs)[0]

    def command(self, *argv, runs=10):
        """Return the median wall time of a command, and its CPU with the master's."""
        times, cpu = [], self.cpu_s() + _children_cpu_s()
        for _run in range(runs):
            began = time.monotonic()
            subprocess.run(
                [TOP / "build" / "bin" / argv[0], *argv[1:]],
                env=self.environment(),
                check=True,
                stdout=subprocess.DEVNULL,
            )
            times.append(time.monotonic() - began)
        cpu = self.cpu_s() + _children_cpu_s() - cpu
        return statistics.median(times), cpu / runs

    def start_s(self):
        """Kill the master daemon; return the seconds from its start to an answer."""
        self._vcluster("kill", self.master, "ganeti-masterd")
        began = time.monotonic()
        self._vcluster("start", self.master, "ganeti-masterd")
        with self.client() as client:
            client.call("QueryClusterInfo")
        return time.monotonic() - began

    def restart_master(self, change=lambda: None):
        """Stop the master daemon, change its files, start it."""
        self._vcluster("kill", self.master, "ganeti-masterd")
        change()
        self._vcluster("start", self.master, "ganeti-masterd")

    def fill(self, count, nics=0):
        """Add records of many instances, each with some NICs, without creating them."""

        def change():
            opened = store.open_master(
                f"{self.root}/var/lib/ganeti/store.db",
                replicate=None,
                clock=SystemClock(),
            )
            try:
                add_instances(config.Config(opened, SystemClock()), count, nics)
            finally:
                opened.close()

        self.restart_master(change)


def add_instances(cfg, count, nics=0):
    node = next(iter(cfg.snapshot().nodes))
    known = len(cfg.snapshot().instances)
    for start in range(known, count, 1000):
        with cfg.edit("bench") as edit:
            for number in range(start, min(start + 1000, count)):
                edit.add_instance(instance(node, number, nics))


def instance(node, number, nics=0):
    return objects.Instance(
        uuid=f"00000000-0000-4000-8000-{number:012x}",
        name=f"i{number}.example.com",
        primary_node=node,
        os="tiny",
        hypervisor="fake",
        admin_state="down",
        admin_state_source="admin",
        disks_active=False,
        serial_no=1,
        nics=tuple(nic(number, index) for index in range(nics)),
    )


def nic(number, index):
    return objects.Nic(
        uuid=f"00000000-0000-4000-8{index:03x}-{number:012x}",
        mac=f"aa:00:{index:02x}:{number >> 16:02x}:{number >> 8 & 255:02x}"
        f":{number & 255:02x}",
        nicparams={},
    )


def wait_final(client, job):
    values, serial = None, None
    while True:
        args = [job, ["status"], values, serial, 60]
        values, entries = client.call("WaitForJobChange", args)
        serial = max([entry[0] for entry in entries], default=serial)
        if values[0] in FINAL:
            return values[0]


def throughput(cluster, count):
    """Return (jobs per second, CPU milliseconds of the master daemon per job)."""
    client, chunk = cluster.client(), 250
    cpu, began = cluster.cpu_s(), time.monotonic()
    jobs = []
    for _start in range(0, count, chunk):
        jobs += client.call("SubmitManyJobs", [[[NOOP]] * chunk])
    assert all(ok for ok, _job in jobs), jobs[0]
    for _ok, job in reversed(jobs):
        assert wait_final(client, job) == "success"
    spent = time.monotonic() - began
    return count / spent, 1000 * (cluster.cpu_s() - cpu) / count


def latency_s(cluster, count):
    client, times = cluster.client(), []
    for _run in range(count):
        began = time.monotonic()
        wait_final(client, client.call("SubmitJob", [[NOOP]]))
        times.append(time.monotonic() - began)
    return statistics.median(times)


def tag_s(cluster, count):
    """Return the median time of one tag on one instance, and of its removal."""
    client, times = cluster.client(), []
    for number in range(count):
        tag = {
            "kind": "instance",
            "name": "i1.example.com",
            "tags": [f"t{number}"],
            "reason": [],
        }
        for name in ("OP_TAGS_SET", "OP_TAGS_DEL"):
            began = time.monotonic()
            job = client.call("SubmitJob", [[{"OP_ID": name} | tag]])
            status = wait_final(client, job)
            times.append(time.monotonic() - began)
            assert status == "success", status
    return statistics.median(times)


def bare_python_s():
    times = []
    for _run in range(10):
        began = time.monotonic()
        subprocess.run(["/usr/bin/python3", "-I", "-c", "pass"], check=True)
        times.append(time.monotonic() - began)
    return statistics.median(times)


@contextlib.contextmanager
def running(nodes):
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        cluster = Cluster(os.path.join(directory, "c"), nodes)
        try:
            yield cluster
        finally:
            cluster.down()


def jobs_and_commands(cluster, count):
    throughput(cluster, count // 4)
    rate, cpu_ms = throughput(cluster, count)
    show("no-op jobs, 1 node", rate, "jobs/s", ">= 500", "2.1")
    show("CPU of the master daemon per no-op job", cpu_ms, "ms", "-", "540")
    waited = 1000 * latency_s(cluster, 200)
    show("submit to success, median", waited, "ms", "<= 15", "670")
    show("python3 -I -c pass", 1000 * bare_python_s(), "ms", "-")
    spent = 1000 * cluster.command_s("gnt-cluster", "getmaster")
    show("gnt-cluster getmaster", spent, "ms", "<= 70", "280")


def best_tag_s(cluster):
    """Return the best of several medians, since other processes may use the disk."""
    return min(tag_s(cluster, 50) for _run in range(4))


def large_configurations(cluster, large, huge):
    cluster.fill(10)
    small = best_tag_s(cluster)
    show("one tag, 10 instances", 1000 * small, "ms", "-", "640 with 3")
    cluster.fill(large)
    spent = cluster.command_s("gnt-instance", "list", runs=5)
    show(f"gnt-instance list, {large} instances", spent, "s", "<= 0.5", "6.2")
    memory = cluster.rss_mib()
    show(f"memory of the master daemon, {large} instances", memory, "MiB", "<= 150")
    cluster.fill(huge)
    many = best_tag_s(cluster)
    show(f"one tag, {huge} instances", 1000 * many, "ms", "-", "18000 with 5000")
    show("  ratio to 10 instances", many / small, "", "<= 1.2")
    spent = cluster.start_s()
    show(f"start of the master daemon, {huge} instances", spent, "s", "<= 3")
    show("  its CPU until it answers", cluster.cpu_s(), "s", "-")


def candidates(cluster, count):
    throughput(cluster, count // 4)
    rate, cpu_ms = throughput(cluster, count)
    show("no-op jobs, 3 master candidates", rate, "jobs/s", ">= 300", "2.1")
    show("CPU of the master daemon per no-op job", cpu_ms, "ms", "-")


def fake_instance(number, node):
    name = {"instance_name": f"f{number}.example.com", "reason": []}
    create = {
        "OP_ID": "OP_INSTANCE_CREATE",
        "mode": "create",
        "disk_template": "diskless",
        "disks": [],
        "nics": [],
        "hypervisor": "fake",
        "pnode": node,
        "no_install": True,
        "start": False,
        "ignore_ipolicy": True,
    }
    return [create | name, {"OP_ID": "OP_INSTANCE_STARTUP"} | name]


def creation(prefix, number, node=None):
    """Return a job that creates and starts an instance, by default where hail says."""
    ops = fake_instance(number, node)
    if node is None:
        del ops[0]["pnode"]
        ops[0]["iallocator"] = "hail"
    name = {"instance_name": f"{prefix}{number}.example.com"}
    return [op | name for op in ops]


def create_each(cluster, jobs):
    """Create one after another; return what `create_all` returns."""
    client = cluster.client()
    cpu, began = cluster.cpu_s(), time.monotonic()
    for job in jobs:
        ended = wait_final(client, client.call("SubmitJob", [job]))
        assert ended == "success", ended
    spent = time.monotonic() - began
    cpu = cluster.settled_cpu_s() - cpu
    return spent, 1000 * cpu / len(jobs)


def create_all(cluster, jobs):
    """Return (elapsed seconds, CPU milliseconds of the master daemon per job)."""
    client = cluster.client()
    cpu, began = cluster.cpu_s(), time.monotonic()
    answers = client.call("SubmitManyJobs", [jobs])
    ended = collections.Counter(wait_final(client, job) for _ok, job in answers)
    spent = time.monotonic() - began
    assert set(ended) == {"success"}, ended
    cpu = cluster.settled_cpu_s() - cpu
    return spent, 1000 * cpu / len(jobs)


def creations(count, nodes):
    with running(nodes) as cluster:
        names = [node["name"] for node in cluster.nodes]
        few = range(max(1, count // 6))
        for what, create, jobs, goals in (
            (
                "named node",
                create_all,
                [creation("n", i, names[i % nodes]) for i in range(count)],
                ("<= 25", "<= 25"),
            ),
            (
                "named node, one by one",
                create_each,
                [creation("e", i, names[i % nodes]) for i in few],
                ("-", "-"),
            ),
            (
                "default allocator",
                create_all,
                [creation("a", i) for i in range(count)],
                ("<= 50", "-"),
            ),
            (
                "default allocator, one by one",
                create_each,
                [creation("f", i) for i in few],
                ("-", "-"),
            ),
        ):
            spent, cpu_ms = create(cluster, jobs)
            show(f"{what}: CPU of masterd per creation", cpu_ms, "ms", goals[0])
            show(f"  {len(jobs)} creations, {nodes} nodes", spent, "s", goals[1])


def twenty_nodes():
    began = time.monotonic()
    with running(20) as cluster:
        client = cluster.client()
        jobs = [
            fake_instance(number, cluster.nodes[number % 20]["name"])
            for number in range(100)
        ]
        answers = client.call("SubmitManyJobs", [jobs])
        ended = {wait_final(client, job) for _ok, job in answers}
        assert ended == {"success"}, ended
        spent = time.monotonic() - began
        show("20 nodes with 100 fake instances up", spent, "s", "<= 20")
        show("  of which the cluster alone", cluster.up_s, "s", "-")


def main():
    parser = argparse.ArgumentParser(
        "test/bench/run cluster", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--quick", action="store_true", help="smaller numbers")
    parser.add_argument(
        "--large", action="store_true", help="only starts with large configurations"
    )
    parser.add_argument("--creations", type=int, help="measure only this many")
    parser.add_argument("--nodes", type=int, default=60, help="nodes for --creations")
    args = parser.parse_args()
    if args.creations:
        creations(args.creations, args.nodes)
        return
    quick = args.quick
    if args.large:
        with running(1) as cluster:
            large_configurations(cluster, 5000, 20000)
        return
    with running(1) as cluster:
        jobs_and_commands(cluster, 500 if quick else 4000)
        large_configurations(cluster, *((500, 1000) if quick else (5000, 20000)))
    with running(3) as cluster:
        candidates(cluster, 500 if quick else 3000)
    twenty_nodes()


if __name__ == "__main__":
    main()
