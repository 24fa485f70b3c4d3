"""Ends daemons at durable acts of a workload and checks what is left.

A virtual cluster of three nodes, all of them master candidates. The daemons are the real
ones, forked by `crash_daemons` with the library `crash_shim.c` loaded before libc: it
counts the durable acts of a process (changes of files, fsync, what is sent) and kills the
process in place of the n-th. After a power cut, all daemons are dead at once, and
`power_cut` leaves on the disks no more than what was synced.
"""

import collections
import concurrent.futures
import contextlib
import dataclasses
import json
import mmap
import os
import pathlib
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

from fakes import power_cut
from fakes.patience import FINAL, until
from ganeti.base import errors
from ganeti.base.process import SystemRunner
from ganeti.devel.vcluster import layout as lay
from ganeti.devel.vcluster.nodes import NodeControl
from ganeti.protocols import luxi
from ganeti.store.database import Database

TOP = pathlib.Path(__file__).resolve().parents[3]
SHIM = pathlib.Path(__file__).with_name("crash_shim.c")
#: Of the shared file: the count of acts, and the point at which the process ends.
_STATE, _POINT = struct.Struct("=qq"), struct.Struct("=q")
_STATE_SIZE = _STATE.size + 4096
NODES = ("node1", "node2", "node3")
MASTERD, NODED = "ganeti-masterd", "ganeti-noded"
#: Daemons that are ended, and how often of a hundred. The node of an instance is node2.
VICTIMS = {(MASTERD, "node1"): 60, (NODED, "node2"): 25, (NODED, "node1"): 15}
CREATE = {
    "OP_ID": "OP_INSTANCE_CREATE",
    "mode": "create",
    "disk_template": "file",
    "disks": [{"size": 1}],
    "nics": [],
    "hypervisor": "fake",
    "no_install": True,
    "start": True,
    "ignore_ipolicy": True,
    "ip_check": False,
    "name_check": False,
    "wait_for_sync": False,
}
#: Says which instances were created, on the nodes where hooks run.
HOOK = '#!/bin/sh\necho "$GANETI_INSTANCE_NAME" >> {root}/created\n'
#: Seconds until a daemon serves, or a job ends.
LIMIT_S = 60.0
#: Seconds for acts that follow the end of the last job.
MORE_S = 0.2
#: Acts of a master daemon from its start until it serves, roughly.
START_ACTS = 90
#: Points that each cluster plays, however slow it is.
LEAST = 2
#: Share of the points at which the power of all nodes is cut.
POWER_CUTS = 0.2
#: Directories of a node that are empty when the cluster has no instances.
EMPTY = (
    "srv/ganeti/file-storage",
    "var/run/ganeti/fake-hypervisor",
    "var/run/ganeti/instance-disks",
)


def build_shim(directory):
    """Compile the library; return its path."""
    target = f"{directory}/crash_shim.so"
    command = ["cc", "-O2", "-shared", "-fPIC", "-o", target, str(SHIM), "-ldl"]
    subprocess.run([*command, "-lpthread"], check=True)
    return target


class Starter:
    """The process whose forks are the daemons."""

    def __init__(self, directory):
        shim = build_shim(directory)
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            # daemon-util finds the name of a daemon that it stops in its arguments.
            [sys.executable, "-m", "fakes.crash_daemons", shim, "ganeti-standby"],
            env={
                "PATH": os.environ["PATH"],
                "LD_PRELOAD": shim,
                "PYTHONPATH": f"{TOP}/build/py:{TOP}/test/py",
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, **request):
        """Send a request and return the answer."""
        with self._lock:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())

    def close(self):
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


class Daemon:
    """One daemon of one node, with a settable point at which it ends."""

    def __init__(self, cluster, name, node, *, record=False):
        self._starter = cluster.starter
        work = pathlib.Path(cluster.work)
        shared = work / f"{name}-{node}.state"
        shared.write_bytes(bytes(_STATE_SIZE))
        with shared.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _STATE_SIZE)
        member = cluster.layout.node(node)
        options = ["-b", member.address, "--no-mlock"] if name == NODED else []
        self.pid = self._starter.ask(
            op="start",
            name=name,
            argv=["-f", *options],
            env=cluster.layout.environment(member),
            root=f"{member.root}/",
            shared=str(shared),
            record=str(work / f"{node}.record") if record else "",
            log=str(work / f"{name}-{node}.log"),
        )
        self.name, self.node = name, node

    @property
    def count(self):
        """Acts so far."""
        return _STATE.unpack_from(self._map)[0]

    def end_after(self, acts):
        """End the daemon in place of an act from now on."""
        _POINT.pack_into(self._map, _POINT.size, self.count + acts)

    def what(self):
        """Return the act at which the daemon ended, or ends; empty before."""
        text = self._map[_STATE.size :]
        return bytes(text[: text.index(b"\0")]).decode()

    def has_ended(self, timeout_s=0.0):
        """Return whether the daemon has ended; waits for a time."""
        if self.pid:
            code = self._starter.ask(op="wait", pid=self.pid, timeout_s=timeout_s)
            if code is not None:
                self.pid = 0
        return not self.pid

    def kill(self):
        """Kill the daemon unless it has ended; its locks are free afterwards."""
        if self.pid and not self.has_ended():
            os.kill(self.pid, signal.SIGKILL)
            assert self.has_ended(60)
        self._map.close()


@dataclasses.dataclass(frozen=True)
class Point:
    """Where to end what.

    Attributes:
        name, node: the daemon.
        acts: durable acts of the workload before the end.
        start_acts: durable acts of the next start before that is ended, too; 0: none.
        is_power_cut: all daemons of all nodes die with it, and unsynced data is lost.
        is_takeover: another candidate takes over before it starts again.
    """

    name: str
    node: str
    acts: int
    start_acts: int
    is_power_cut: bool
    is_takeover: bool = False


class Workload:
    """The work of a client until it is cut short; records acknowledgements.

    Attributes:
        jobs: id -> (status, end) as last seen; ids that were acknowledged.
        tags: job id -> tag that it sets.
        made, removed: job id -> instance.
        going: instances whose removal was asked for, acknowledged or not.
    """

    def __init__(self, cluster, number):
        self._cluster = cluster
        self.name = f"n{number}"
        self.jobs, self.tags, self.made, self.removed = {}, {}, {}, {}
        self.going = set()

    def run(self):
        """Do everything once, or what is possible before a daemon ends."""
        with contextlib.suppress(errors.GenericError), self._cluster.client() as client:
            self._run(client)

    def _run(self, client):
        def submit(**op):
            job = int(client.call("SubmitJob", [[{"reason": [], **op}]]))
            self.jobs[job] = None
            return job

        def wait(job):
            self.jobs[job] = wait_for_job(client, job)

        delays = [
            submit(OP_ID="OP_TEST_DELAY", duration=0.001, on_master=True)
            for _ in range(2)
        ]
        tag = f"crash-{self.name}"
        tags = submit(OP_ID="OP_TAGS_SET", kind="cluster", name="", tags=[tag])
        self.tags[tags] = tag
        instance = f"{self.name}.vc.test"
        node2, node3 = (self._cluster.layout.node(n).name for n in NODES[1:])
        made = submit(**CREATE, instance_name=instance, pnode=node2)
        self.made[made] = instance
        for job in (*delays, tags, made):
            wait(job)
        self.going.add(instance)
        gone = submit(OP_ID="OP_INSTANCE_REMOVE", instance_name=instance)
        self.removed[gone] = instance
        for wanted in (False, True):
            role = {"node_name": node3, "master_candidate": wanted}
            wait(submit(OP_ID="OP_NODE_SET_PARAMS", auto_promote=False, **role))
        wait(gone)


def wait_for_job(client, job):
    """Return status and end of a job that has ended."""
    status, end = None, time.monotonic() + LIMIT_S
    while status is None or status[0] not in FINAL:
        assert time.monotonic() < end, f"job {job} is {status}"
        answer = client.call("WaitForJobChange", [job, ["status"], status, None, 20])
        if answer != "nochange":
            status = answer[0]
    return tuple(client.call("QueryJobs", [[job], ["status", "end_ts"]])[0])


class CrashCluster:
    """Three nodes whose daemons are ended at points."""

    HYPERVISORS = "fake"
    STORE = "file"
    VICTIMS = VICTIMS
    #: Share of the ends of master daemons after which another candidate takes over.
    TAKEOVERS = 0.0

    def __init__(self, directory):
        self.directory = directory
        self.work = tempfile.mkdtemp(prefix="gcp-", dir="/tmp")
        self._command(
            *("up", "-n", "3", "--hypervisors", self.HYPERVISORS, "--no-ssh-setup"),
            *("--store", self.STORE),
        )
        self.layout = lay.Layout.load(directory)
        self.control = NodeControl(self.layout, SystemRunner())
        for node in self.layout.nodes:
            hooks = pathlib.Path(node.root, "etc/ganeti/hooks/instance-add-post.d")
            hooks.mkdir(parents=True, exist_ok=True)
            (hooks / "created").write_text(HOOK.format(root=node.root))
            (hooks / "created").chmod(0o755)
        self._end_usual()
        self.starter = Starter(self.work)
        self.daemons = {}
        self._numbers = iter(range(10**9))
        self.start_all()

    def _end_usual(self):
        """Kill the daemons that are started differently from now on."""
        for node in self.layout.nodes:
            self.control.kill(node, NODED)
        self.control.kill(self.layout.node("node1"), MASTERD)

    def _command(self, *words):
        command = [TOP / "build/bin/vcluster", "-C", self.directory, *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def close(self):
        """End all processes, remove everything."""
        self.kill_all()
        self.starter.close()
        self._command("down")
        shutil.rmtree(self.work)

    def paths(self, name):
        return self.layout.paths(self.layout.node(name))

    def client(self):
        """Return a client of the master daemon that gives up when it is gone."""
        return luxi.Client.of_node(
            self.paths("node1"), retries=0, connect_timeout_s=1, timeout_s=LIMIT_S
        )

    # Daemons
    def start(self, name, node, *, record=False):
        self.daemons[name, node] = Daemon(self, name, node, record=record)
        return self.daemons[name, node]

    def start_all(self, *, record=False):
        for node in NODES:
            self.start(NODED, node, record=record)
        for node in NODES:
            self.wait_for_noded(node)
        self.start(MASTERD, "node1", record=record)
        self.wait_for_master()

    def kill_all(self):
        for daemon in self.daemons.values():
            daemon.kill()
        self.daemons.clear()

    def wait_for_noded(self, node):
        address = (self.layout.node(node).address, 1811)
        until(f"noded of {node}", lambda: _answers(address))

    def wait_for_master(self):
        """Wait until the master daemon answers."""

        def serves():
            daemon = self.daemons[MASTERD, "node1"]
            assert not daemon.has_ended(), f"masterd ended\n{self.log(daemon)}"
            try:
                with self.client() as client:
                    return client.call("QueryConfigValues", [["cluster_name"]])
            except errors.GenericError:
                return None

        until("masterd", serves)

    def log(self, daemon):
        """Return the end of what a daemon wrote."""
        path = pathlib.Path(self.work, f"{daemon.name}-{daemon.node}.log")
        return path.read_text()[-3000:]

    # Points
    def acts_of_workload(self):
        """Return how many acts a whole workload takes, by daemon."""
        before = {key: self.daemons[key].count for key in self.VICTIMS}
        workload = Workload(self, f"dry{next(self._numbers)}")
        workload.run()
        self.check(workload)
        return {key: self.daemons[key].count - before[key] for key in self.VICTIMS}

    def play(self, point, chance):
        """Run a workload into a point, start again, and check everything."""
        before = self._prepare_power_cut() if point.is_power_cut else None
        victim = self.daemons[point.name, point.node]
        workload = Workload(self, next(self._numbers))
        victim.end_after(point.acts)
        workload.run()
        victim.has_ended(MORE_S)
        ended = victim.what()
        if point.is_power_cut:
            self.kill_all()
            self._cut_power(before, chance)
            self.start_all()
        else:
            self._restart(victim, point)
        self.check(workload)
        return ended

    def _restart(self, victim, point):
        victim.kill()
        if point.is_takeover:
            self.await_takeover()
        if point.name == MASTERD and point.start_acts:
            second = self.start(point.name, point.node)
            second.end_after(point.start_acts)
            second.has_ended(1.0)
            second.kill()
        self.start(point.name, point.node)
        if point.name == MASTERD:
            self.wait_for_master()
        elif point.name == NODED:
            self.wait_for_noded(point.node)

    def await_takeover(self):
        """Wait until another candidate is the master."""
        raise NotImplementedError

    def _data_dirs(self):
        return [
            (node, f"{self.layout.node(node).root}/var/lib/ganeti") for node in NODES
        ]

    def _prepare_power_cut(self):
        self.kill_all()
        for node in NODES:
            pathlib.Path(self.work, f"{node}.record").unlink(missing_ok=True)
        before = {
            node: power_cut.contents(folder) for node, folder in self._data_dirs()
        }
        self.start_all(record=True)
        return before

    def _cut_power(self, before, chance):
        for node, folder in self._data_dirs():
            disk = power_cut.Disk(folder, before[node])
            disk.replay(pathlib.Path(self.work, f"{node}.record").read_bytes())
            power_cut.write(disk.cut(chance))

    # Checks
    def check(self, workload):
        """Check all that was acknowledged, and that nothing else is left."""
        with self.client() as client:
            self._check_jobs(client, workload)
            snapshot = self._names(client)
            for job, tag in workload.tags.items():
                if _is_success(workload.jobs[job]):
                    assert tag in snapshot["tags"], f"job {job}: tag {tag} is lost"
            removed = {name: job for job, name in workload.removed.items()}
            for job, name in workload.made.items():
                is_there = name in snapshot["instances"]
                if name not in workload.going:
                    is_lost = _is_success(workload.jobs[job]) and not is_there
                    assert not is_lost, f"job {job}: instance {name} is lost"
                elif name in removed and _is_success(workload.jobs[removed[name]]):
                    assert not is_there, f"job {removed[name]}: {name} is back"
            self._tidy(client, snapshot["instances"])
        self._check_created()
        self._check_copies()
        self._check_leaks()

    def _check_jobs(self, client, workload):
        """No job is lost, and one that had ended is as it was."""
        wanted = sorted(workload.jobs)
        fields = ["id", "status", "end_ts"]
        rows = client.call("QueryJobs", [wanted, fields]) if wanted else []
        for job, row in zip(wanted, rows, strict=True):
            assert row is not None, f"job {job} is lost"
            known = workload.jobs[job]
            if known is not None:
                assert tuple(row[1:]) == known, f"job {job}: {known}, now {row[1:]}"
        everything = client.call("QueryJobs", [None, ["id", "status"]])
        for job, status in everything:
            if status not in FINAL:
                wait_for_job(client, job)
        for job in wanted:
            workload.jobs[job] = wait_for_job(client, job)

    def _names(self, client):
        rows = client.call("QueryInstances", [[], ["name"], False])
        return {
            "instances": {row[0] for row in rows},
            "tags": set(client.call("QueryTags", ["cluster", ""])),
        }

    def _tidy(self, client, instances):
        """Remove what a workload left behind, as an operator would."""
        node3 = self.layout.node("node3").name
        ops = [{"OP_ID": "OP_INSTANCE_REMOVE", "instance_name": n} for n in instances]
        role = {"node_name": node3, "master_candidate": True, "auto_promote": False}
        rows = client.call("QueryNodes", [[node3], ["master_candidate"], False])
        if not rows[0][0]:
            ops.append({"OP_ID": "OP_NODE_SET_PARAMS", **role})
        for op in ops:
            job = int(client.call("SubmitJob", [[{"reason": [], **op}]]))
            status, _end = wait_for_job(client, job)
            result = client.call("QueryJobs", [[job], ["opresult"]])
            assert status == "success", f"{op}: {result}"

    def _check_created(self):
        for node in self.layout.nodes:
            path = pathlib.Path(node.root, "created")
            if path.exists():
                counted = collections.Counter(path.read_text().split())
                again = [name for name, count in counted.items() if count > 1]
                assert not again, f"{node.name}: created twice: {again}"

    def _check_copies(self):
        """Wait until all candidates have the same history."""
        until("copies converge", lambda: len(set(self.positions().values())) == 1)

    def positions(self):
        """Return revision and digest by node, None for a copy that is not there yet."""
        collected = {}
        for node in NODES:
            try:
                db = Database(self.paths(node).store_db, create=False)
            except errors.ConfigurationError:
                collected[node] = None
                continue
            try:
                position = db.position()
                collected[node] = position.revision, position.digest, position.written
            finally:
                db.close()
        return collected

    def _check_leaks(self):
        """Wait until nothing is left on nodes.

        The record of an instance is committed after its disks were created; what a
        daemon that ends in between leaves is removed after the next start.
        """
        try:
            until("nothing to be left on nodes", lambda: not self._left())
        except AssertionError as err:
            raise AssertionError(f"{err}: {self._left()}") from None

    def _left(self):
        folders = [
            pathlib.Path(node.root, folder)
            for node in self.layout.nodes
            for folder in EMPTY
        ]
        return [left for path in folders if path.exists() for left in path.iterdir()]


def _answers(address):
    try:
        socket.create_connection(address, 1.0).close()
    except OSError:
        return False
    return True


def _is_success(seen):
    return seen is not None and seen[0] == "success"


def points(
    chance, acts, count, power_cuts=POWER_CUTS, *, victims=VICTIMS, takeovers=0.0
):
    """Return points of a workload, a share of them power cuts, another one takeovers."""
    names = list(victims)
    collected = []
    for name, node in chance.choices(names, list(victims.values()), k=count):
        is_power_cut = chance.random() < power_cuts
        start_acts = chance.randint(1, START_ACTS) if chance.random() < 0.2 else 0
        number = chance.randint(1, acts[name, node])
        moves = bool(takeovers) and chance.random() < takeovers
        is_takeover = moves and name == MASTERD and not is_power_cut
        collected.append(
            Point(name, node, number, start_acts, is_power_cut, is_takeover)
        )
    return collected


def run(
    count,
    seed,
    show=lambda _text: None,
    *,
    make=CrashCluster,
    clusters=2,
    minutes=None,
    power_cuts=POWER_CUTS,
):
    """Play points for some minutes; count the acts at which daemons ended.

    Args:
        count: how many points.
        seed: of their choice.
        show: called with lines of progress.
        make: class of the clusters.
        clusters: how many play at the same time, each one its share of the points.
        minutes: begin no point after this, but the first `LEAST` of a cluster.
        power_cuts: share of the points at which the power is cut, too.

    Raises:
        AssertionError: something was lost or left; names point and seed.
    """
    end = time.monotonic() + (minutes or 1e9) * 60

    def play(number):
        share = count // clusters + (number < count % clusters)
        chance = random.Random(seed + number)
        # Unix sockets have short paths.
        directory = tempfile.mkdtemp(prefix="gv-", dir="/tmp")
        cluster = make(directory)
        try:
            return _play_share(cluster, share, chance, show, end, power_cuts)
        except Exception as err:
            raise AssertionError(f"seed {seed + number}: {err}") from err
        finally:
            if os.environ.get("KEEP_VCLUSTER"):
                show(f"kept: {cluster.directory} {cluster.work}")
            else:
                cluster.close()
                shutil.rmtree(directory, ignore_errors=True)

    with concurrent.futures.ThreadPoolExecutor(clusters) as pool:
        return sum(pool.map(play, range(clusters)), start=collections.Counter())


def _play_share(cluster, count, chance, show, end, power_cuts):
    """Play points on one cluster."""
    reached = collections.Counter()
    acts = cluster.acts_of_workload()
    show(f"acts of a workload: {acts}")
    victims, takeovers = cluster.VICTIMS, cluster.TAKEOVERS
    chosen = points(
        chance, acts, count, power_cuts, victims=victims, takeovers=takeovers
    )
    for number, point in enumerate(chosen):
        began = time.monotonic()
        if number >= LEAST and began > end:
            break
        try:
            what = cluster.play(point, chance)
        except Exception as err:
            raise AssertionError(f"point {number}: {point}: {err}") from err
        reached[what.split(" ")[0]] += 1
        show(f"{number} {point} {what} {time.monotonic() - began:.2f} s")
    return reached
