"""A real cluster at the sizes of the page about bounds: times, memory, no bound crossed.

    test/bench/run sizes [--quick]

Three real nodes and more records of nodes, which make 1,250; 50,000 instances; names of
200 letters; 10,000 jobs, submitted in one call, each of which sets a tag of an instance.
Five more node daemons answer for the other nodes, whose connections the kernel forwards to
them; that needs root and nft.
The jobs wait while the master daemon is restarted and its role moves, twice, then all run
and are archived. Each line has the elapsed time and the largest memory of the master
daemon until then. Ends with 1 if a command fails or an acknowledged job is missing.
"""

import argparse
import collections
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import cluster as bench
from cluster import TOP, Cluster
from cryptography import x509 as library
from cryptography.hazmat.primitives import hashes

from fakes.vnode import VirtualNode
from ganeti import store
from ganeti.base.clock import SystemClock
from ganeti.base.filesystem import files
from ganeti.base.tls import x509
from ganeti.master import config
from ganeti.master.config import topology

LETTERS = 200
#: Nodes that one daemon answers for, and the third octet of the first one's addresses.
SHARE, FIRST = 250, 16


def long_name(kind, number):
    """Return a name of the most letters that a cluster is known to hold."""
    name = f"{kind}{number:06}." + ".".join(("x" * 48, *["x" * 47] * 3))
    assert len(name) == LETTERS
    return name


def uuid_of(number):
    return f"00000000-0000-4000-9000-{number:012x}"


def more_node(example, number, network):
    """Return the record of a node that another one's daemon answers for."""
    address = f"{network}.{FIRST + number // SHARE}.{number % SHARE + 1}"
    return example.replace(
        name=long_name("n", number),
        uuid=uuid_of(number),
        primary_ip=address,
        secondary_ip=address,
        master_candidate=False,
        ssh_host_keys=(),
    )


class Answering(VirtualNode):
    """A node daemon that answers for many nodes."""

    def __init__(self, cluster, index, count):
        self.index, self._network = index, cluster.network
        address = f"{cluster.network}.{FIRST - 1}.{index + 1}"
        super().__init__(f"{cluster.directory}/answering", f"a{index}", address)
        data = pathlib.Path(cluster.root, "var/lib/ganeti")
        for path in (data / "server.pem", *data.glob("ssconf_*")):
            shutil.copy(path, self.paths.data_dir)
        first = index * SHARE
        self._certify(data, range(first, min(first + SHARE, count)))
        self.start_noded("--max-clients", "100")
        # A full pipe would stop the daemon.
        threading.Thread(
            target=collections.deque, args=(self.process.stderr, 0), daemon=True
        ).start()

    def _certify(self, data, numbers):
        """Write a certificate as that of the master, with the names of these nodes."""
        pair = x509.load(f"{data}/client.pem")
        signing = x509.parse_key((data / "server-key.pem").read_bytes(), "key")
        issuer = pair.certificate.issuer
        made = x509.builder(
            x509.subject_of(self.name), issuer, pair.key.public_key(), 1, 10**7
        )
        for extension in pair.certificate.extensions:
            value = extension.value
            if isinstance(value, library.SubjectAlternativeName):
                names = [library.DNSName(uuid_of(number)) for number in numbers]
                value = library.SubjectAlternativeName(names)
            made = made.add_extension(value, extension.critical)
        pair = x509.Pair(pair.key, made.sign(signing, hashes.SHA256()))
        files.write_file(self.paths.client_pem, pair.pem, mode=0o440)

    @property
    def rule(self):
        """Rule of the kernel that forwards the connections."""
        range_ = f"{self._network}.{FIRST + self.index}.0/24"
        return f"ip daddr {range_} tcp dport 1811 dnat to {self.address}:1811"


@contextlib.contextmanager
def answering(cluster, count):
    """Run daemons that answer for some nodes."""
    table = f"sizes{os.getpid()}"
    nodes = []
    try:
        nodes.extend(
            Answering(cluster, index, count) for index in range(-(-count // SHARE))
        )
        lines = ["type nat hook output priority -100", *(node.rule for node in nodes)]
        chain = "\n".join(lines)
        rules = f"table ip {table} {{\nchain out {{\n{chain}\n}}\n}}"
        subprocess.run(["nft", "-f", "-"], input=rules, text=True, check=True)
        try:
            yield
        finally:
            subprocess.run(["nft", "delete", "table", "ip", table], check=True)
    finally:
        for node in nodes:
            node.stop()


class Sized(Cluster):
    """A virtual cluster whose master can be another node than the first."""

    def __init__(self, directory):
        super().__init__(directory, 3)
        self.master_index = 0
        self.peak_mib = 0.0

    @property
    def root(self):
        return self.nodes[self.master_index]["root"]

    def environment(self):
        name = self.nodes[self.master_index]["name"]
        return os.environ | {"GANETI_ROOTDIR": self.root, "GANETI_HOSTNAME": name}

    def highest_mib(self):
        """Return the largest memory that the present master daemon ever had."""
        status = pathlib.Path(f"/proc/{self.pid()}/status").read_text()
        line = next(row for row in status.splitlines() if row.startswith("VmHWM"))
        return int(line.split()[1]) / 1024

    def measure(self, what, act):
        """Run something; print its time and the memory of the master daemon."""
        began = time.monotonic()
        result = act()
        spent = time.monotonic() - began
        memory = self.highest_mib()
        self.peak_mib = max(self.peak_mib, memory)
        print(f"{what:<52} {spent:>8.1f} s {memory:>8.0f} MiB", flush=True)
        return result

    def execute(self, *argv):
        """Run a command on the master."""
        return subprocess.run(
            [TOP / "build" / "bin" / argv[0], *argv[1:]],
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
        )

    def run(self, *argv):
        """Run a command; return its output, or end with its errors."""
        done = self.execute(*argv)
        if done.returncode:
            text = f"{done.stdout}{done.stderr}"[-2000:]
            sys.exit(f"{' '.join(argv)}: {done.returncode}\n{text}")
        return done.stdout

    def verify(self):
        """Run gnt-cluster verify; fail if it says that something is too long or large.

        Other errors are expected, since many nodes are one machine.
        """

        def run():
            done = self.execute("gnt-cluster", "verify")
            assert done.returncode in (0, 1), done
            return done.stdout

        lines = self.measure("gnt-cluster verify", run).splitlines()
        wrong = [line for line in lines if "too l" in line or "at most" in line]
        assert not wrong, wrong[0]
        assert any("Hooks Results" in line for line in lines), lines[-1]

    def timed(self, *argv):
        return self.measure(" ".join(argv), lambda: self.run(*argv))

    def failover(self):
        """Move the master role to the next node."""
        self.master_index = (self.master_index + 1) % len(self.nodes)
        self.master = self.nodes[self.master_index]["name"]
        self.timed("gnt-cluster", "master-failover")

    @property
    def network(self):
        """The first two octets of all addresses."""
        return self.nodes[0]["address"].rsplit(".", 2)[0]

    def fill_records(self, nodes, instances):
        """Add nodes and instances of long names, without creating them."""

        def change():
            opened = store.open_master(
                f"{self.root}/var/lib/ganeti/store.db",
                replicate=None,
                clock=SystemClock(),
            )
            try:
                cfg = config.Config(opened, SystemClock())
                add_nodes(cfg, nodes, self.network)
                add_instances(cfg, instances)
            finally:
                opened.close()

        self.restart_master(change)


def add_nodes(cfg, count, network):
    snapshot = cfg.snapshot()
    example = snapshot.nodes[snapshot.cluster.master_node]
    with cfg.edit("bench") as edit:
        edit.update_cluster(
            candidate_pool_size=len(snapshot.nodes),
            ndparams={**snapshot.cluster.ndparams, "oob_program": ""},
        )
        for number in range(count - len(snapshot.nodes)):
            topology.add_node(edit, more_node(example, number, network))


def add_instances(cfg, count):
    places = sorted(cfg.snapshot().nodes)
    for start in range(0, count, 1000):
        with cfg.edit("bench") as edit:
            for number in range(start, min(start + 1000, count)):
                record = bench.instance(places[number % len(places)], number, nics=1)
                edit.add_instance(record.replace(name=long_name("i", number)))


def tagging(number):
    return [
        {
            "OP_ID": "OP_TAGS_SET",
            "kind": "instance",
            "name": long_name("i", number),
            "tags": [f"t{number}"],
            "reason": [],
        }
    ]


def submit(cluster, count):
    """Submit jobs by one call; return their ids."""
    with cluster.client() as client:
        answers = client.call("SubmitManyJobs", [[tagging(n) for n in range(count)]])
    assert all(ok for ok, _job in answers), answers[0]
    return [int(job) for _ok, job in answers]


def statuses(cluster, jobs):
    with cluster.client() as client:
        return {row[0] for row in client.call("QueryJobs", [jobs, ["status"]]) if row}


def wait_all(cluster, jobs):
    """Wait for the ends of all jobs."""
    with cluster.client() as client:
        client.call("WaitForJobChanges", [[[job] for job in jobs], ["status"], 60])
        for job in reversed(jobs):
            bench.wait_final(client, job)


def main():
    parser = argparse.ArgumentParser("test/bench/run sizes", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fiftieth of it")
    parser.add_argument("--instances", type=int, default=50_000)
    parser.add_argument("--nodes", type=int, default=1_250)
    parser.add_argument("--jobs", type=int, default=10_000)
    args = parser.parse_args()
    share = 50 if args.quick else 1
    counts = [n // share for n in (args.nodes, args.instances, args.jobs)]
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        cluster = Sized(os.path.join(directory, "c"))
        try:
            with answering(cluster, counts[0] - len(cluster.nodes)):
                play(cluster, *counts)
        finally:
            cluster.down()
    print(f"largest memory of a master daemon: {cluster.peak_mib:.0f} MiB")


def listings(cluster, instances):
    for words in (
        ("gnt-node", "list"),
        ("gnt-instance", "list", "--no-headers", "-o", "name"),
        ("gnt-instance", "list", "--no-headers"),
        ("gnt-cluster", "info"),
    ):
        lines = cluster.timed(*words).splitlines()
        if "--no-headers" in words:
            assert len(lines) == instances, len(lines)
    cluster.verify()


def play(cluster, nodes, instances, jobs):
    print(
        f"{nodes} nodes, {instances} instances, {jobs} jobs, names of {LETTERS} letters"
    )
    cluster.fill_records(nodes, instances)
    cluster.measure(
        "the master daemon answers", lambda: cluster.run("gnt-node", "list")
    )
    listings(cluster, instances)
    cluster.timed("gnt-cluster", "modify", "--candidate-pool-size", "3")
    cluster.timed("gnt-filter", "add", "--action", "PAUSE", "--priority", "1")
    ids = cluster.measure(f"{jobs} jobs by one call", lambda: submit(cluster, jobs))
    waits(cluster, ids)
    cluster.measure("restart of the master daemon", cluster.restart_master)
    waits(cluster, ids)
    for _turn in range(2):
        cluster.failover()
        waits(cluster, ids)
    (uuid,) = cluster.run("gnt-filter", "list", "--no-headers", "-o", "uuid").split()
    cluster.run("gnt-filter", "delete", uuid)
    cluster.measure(f"{jobs} jobs ended", lambda: wait_all(cluster, ids))
    assert statuses(cluster, ids) == {"success"}, statuses(cluster, ids)
    cluster.timed("gnt-job", "list", "--no-headers")
    cluster.timed("gnt-job", "autoarchive", "all")
    assert not cluster.run("gnt-job", "list", "--no-headers").strip()
    cluster.measure("restart of the master daemon", cluster.restart_master)
    cluster.failover()
    with cluster.client() as client:
        tags = client.call("Query", ["instance", ["tags"], None])["data"]
    assert sum(bool(row[0][1]) for row in tags) == jobs
    cluster.verify()


def waits(cluster, ids):
    """All jobs are listed, and none was lost or began."""
    listed = cluster.timed("gnt-job", "list", "--no-headers", "-o", "id,status")
    rows = dict(line.split() for line in listed.splitlines())
    assert {rows.get(str(job)) for job in ids} <= {"queued", "waiting"}


if __name__ == "__main__":
    main()
