"""Instances with mirrored disks move between two clusters, with ``move-instance``.

The first two machines are the one cluster, the other two are the other one.
"""

import pytest

from lab.mirroring import (
    COMPLETE,
    mirroring_cluster,
    ports_in_use,
    shell,
    taken,
    wait_until,
)

# All take many minutes together.
pytestmark = pytest.mark.long
WEB1 = "web1.lab.test"
ADD = (
    *("gnt-instance", "add", "-t", "drbd", "--no-install", "--no-nics"),
    *("--ignore-ipolicy", "-B", "memory=64m,vcpus=1", "-n", "lab1:lab2"),
    *("--disk", "0:size=64m", "--disk", "1:size=64m", WEB1),
)
#: Limits of the policy that disks and guests of this size keep.
SMALL = (
    "min:cpu-count=1,disk-count=1,disk-size=64,memory-size=32,nic-count=0,spindle-use=1"
    "/max:cpu-count=8,disk-count=16,disk-size=1024,memory-size=256,nic-count=8,"
    "spindle-use=12"
)
NONE, PLAIN, MIRRORED = (0, 0, 0, 0), (2, 2, 0, 0), (4, 4, 2, 2)
#: Name and address of the other cluster.
OTHER, OTHER_ADDRESS = "other.lab.test", "10.77.0.201"
KEYS = "find /run/ganeti/crypto /run/ganeti/import-export -mindepth 1"


class Cluster:
    """The machines of one cluster; its master is the default machine for commands."""

    def __init__(self, machines, name, nodes):
        self._machines = machines
        self.lab = machines.lab
        self.name = name
        self.nodes = nodes
        self.master = nodes[0]

    def run(self, *argv, node=None, **more):
        """Run a command on a machine; return the finished process."""
        return self._machines.run(*argv, node=node or self.master, **more)

    def check(self, *argv, node=None, **more):
        """Run a command that must succeed; return its output."""
        return self._machines.check(*argv, node=node or self.master, **more)

    def prepare(self):
        """Give the other cluster's user the right to move instances."""
        user = "echo 'mover secret write' > /var/lib/ganeti/rapi/users"
        self.check("sh", "-c", f"{user}; chmod 640 /var/lib/ganeti/rapi/users")

    def read(self):
        """Return the checksums of both disks of the instance."""
        lines = self.check("gnt-instance", "activate-disks", WEB1)
        paths = [line.split(":")[-1] for line in lines.split()]
        assert len(paths) == 2, lines
        primary = self.primary()
        sums = [f"head -c 64M {path} | md5sum" for path in paths]
        return [self.check("sh", "-c", text, node=primary) for text in sums]

    def primary(self):
        row = ("gnt-instance", "list", "--no-headers", "-o", "pnode", WEB1)
        return self.check(*row).split(".")[0]

    def require(self, *wanted, ports=0):
        """The nodes have so much of disks, and no keys or files of a move."""
        assert [taken(self, node) for node in self.nodes] == list(wanted)
        assert ports_in_use(self) == ports
        for node in self.nodes:
            assert self.run("sh", "-c", KEYS, node=node).stdout == ""

    def statuses(self):
        return self.check(
            *("gnt-instance", "list", "--no-headers", "-o", "name,status")
        ).split()


@pytest.fixture(scope="module")
def clusters(kept_machines):
    """Two clusters that share a domain secret; the first one has the instance."""
    machines = kept_machines
    machines.lab.start([machines.lab.machine("lab4")])
    here = Cluster(machines, "cluster.lab.test", ["lab1", "lab2"])
    there = Cluster(machines, OTHER, ["lab3", "lab4"])
    for node in (*here.nodes, *there.nodes):
        known = f"grep -q {OTHER} /etc/hosts || echo {OTHER_ADDRESS} {OTHER}"
        shell(machines, f"{known} >> /etc/hosts", node)
    with (
        mirroring_cluster(here, here.nodes),
        mirroring_cluster(there, there.nodes, name=OTHER),
    ):
        secret = here.check("cat", "/var/lib/ganeti/cluster-domain-secret")
        place = "/run/secret"
        there.check("sh", "-c", f"umask 077; cat > {place}", stdin=secret)
        renew = ("gnt-cluster", "renew-crypto", "--force")
        there.check(*renew, f"--cluster-domain-secret={place}")
        for each in (here, there):
            each.prepare()
        here.check(*ADD)
        here.check("gnt-instance", "start", WEB1)
        for disk in (0, 1):
            write = f"head -c 64M /dev/urandom > /dev/drbd{disk}; sync /dev/drbd{disk}"
            here.check("sh", "-c", write)
        yield here, there
    machines.lab.power("lab4", "off")


def move(source, destination, *options):
    """Move the instance; return the finished process."""
    argv = ["/usr/lib/ganeti/tools/move-instance", "--src-username=mover"]
    for prefix, cluster in (("src", source), ("dest", destination)):
        pem = cluster.check("openssl", "x509", "-in", "/var/lib/ganeti/rapi.pem")
        path = f"/run/{prefix}.pem"
        source.check("sh", "-c", f"cat > {path}", stdin=pem)
        argv.append(f"--{prefix}-ca-file={path}")
    source.check("sh", "-c", "umask 077; echo secret > /run/password")
    argv += ["--src-password-file=/run/password", *options]
    return source.run(*argv, source.name, destination.name, WEB1)


def moved(source, destination, *options):
    """Move the instance, which must succeed; its content is the same there."""
    before = source.read()
    done = move(source, destination, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == f"{WEB1}: Success"
    assert source.statuses() == []
    source.require(NONE, NONE)
    assert destination.statuses() == [WEB1, "running"]
    assert destination.read() == before


def refused(source, destination, words, *options):
    """A move is refused; the instance runs as before, and nothing is anywhere."""
    jobs = source.check("gnt-job", "list", "--no-headers", "-o", "id").split()
    done = move(source, destination, *options)
    text = done.stdout + done.stderr
    assert done.returncode == 1, text
    assert words in text
    assert "Traceback" not in text
    assert source.statuses() == [WEB1, "running"]
    source.require(MIRRORED, MIRRORED, ports=2)
    destination.require(NONE, NONE)
    assert destination.statuses() == []
    now = source.check("gnt-job", "list", "--no-headers", "-o", "id,summary")
    return [line for line in now.splitlines() if line.split()[0] not in jobs]


def test_refused_moves_leave_nothing(clusters):
    here, there = clusters
    only_one = "--dest-primary-node=lab3"
    new_jobs = refused(here, there, "secondary", only_one)
    # No key was prepared.
    assert not any("PREPARE" in line for line in new_jobs), new_jobs
    both = (only_one, "--dest-secondary-node=lab4")
    refused(here, there, "polic", *both)


def test_instances_move_with_their_content(clusters):
    here, there = clusters
    for each in clusters:
        each.check("gnt-cluster", "modify", "--ipolicy-bounds-specs", SMALL)
    plain = ("--dest-disk-template=plain", "--dest-primary-node=lab3")
    moved(here, there, *plain)
    there.require(PLAIN, NONE)
    drbd = "--dest-disk-template=drbd"
    moved(there, here, drbd, "--dest-primary-node=lab1", "--dest-secondary-node=lab2")
    here.require(MIRRORED, MIRRORED, ports=2)
    moved(here, there, "--dest-primary-node=lab4", "--dest-secondary-node=lab3")
    there.require(MIRRORED, MIRRORED, ports=2)
    for node in there.nodes:
        wait_until(there, COMPLETE, node)
    there.check("gnt-instance", "remove", "-f", "--shutdown-timeout=1", WEB1)
    there.require(NONE, NONE)
