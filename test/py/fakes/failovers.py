"""Failovers one after another while clients submit jobs; counts what goes wrong."""

import dataclasses
import threading
import time

from fakes.patience import Background
from ganeti.base import errors
from ganeti.base.filesystem import pidfile
from ganeti.protocols import luxi

#: Clients that submit at the same time.
CLIENTS = 4
#: Seconds until a new master serves, and an old one has ended.
LIMIT_S = 60.0
JOB = [{"OP_ID": "OP_TEST_DELAY", "duration": 0.001, "on_master": True}]


@dataclasses.dataclass
class Losses:
    """Losses of jobs when the master changes.

    Attributes:
        jobs: ids that were acknowledged.
        lost: acknowledged ids that a later master did not know.
        twice: ids that were given to two clients.
        two_masters: how often two master daemons remained.
        seconds: how long each failover or takeover took.
    """

    jobs: set = dataclasses.field(default_factory=set)
    lost: set = dataclasses.field(default_factory=set)
    twice: set = dataclasses.field(default_factory=set)
    two_masters: int = 0
    seconds: list = dataclasses.field(default_factory=list)

    @property
    def is_good(self):
        return not (self.lost or self.twice or self.two_masters)


@dataclasses.dataclass
class Figures(Losses):
    """Results of some failovers.

    Attributes:
        failovers: how many.
        refused: outputs of those that ended with another code than 0.
    """

    failovers: int = 0
    refused: list = dataclasses.field(default_factory=list)

    @property
    def is_good(self):
        return super().is_good and not self.refused

    def __str__(self):
        times = sorted(self.seconds)
        return (
            f"{self.failovers} failovers, {len(self.jobs)} jobs acknowledged:"
            f" {len(self.refused)} refused, {len(self.lost)} jobs lost,"
            f" {len(self.twice)} ids given twice, {self.two_masters} times two masters;"
            f" median {times[len(times) // 2]:.1f} s, longest {times[-1]:.1f} s"
        )


class Load(Background):
    """Clients that submit jobs to whoever serves, until they are stopped."""

    def __init__(self, cluster, names, figures):
        super().__init__([self._run] * CLIENTS)
        self._cluster = cluster
        self._names = names
        self._figures = figures
        self._lock = threading.Lock()

    def count(self):
        with self._lock:
            return len(self._figures.jobs)

    def wait_for(self, more):
        """Wait until so many more jobs were acknowledged."""
        goal, end = self.count() + more, time.monotonic() + LIMIT_S
        while self.count() < goal:
            assert time.monotonic() < end, "no master acknowledges jobs"
            time.sleep(0.01)

    def _run(self):
        while not self.stopping.is_set():
            for name in self._names:
                self._submit_to(name)

    def _submit_to(self, name):
        client = luxi.Client.of_node(
            self._cluster.paths(name), retries=0, connect_timeout_s=0.05, timeout_s=20
        )
        try:
            with client:
                while not self.stopping.is_set():
                    self._note(int(client.call("SubmitJob", [JOB])))
        except errors.GenericError:
            # Another node is master, or becomes it. What was not answered may be done.
            self.stopping.wait(0.01)

    def _note(self, job_id):
        with self._lock:
            if job_id in self._figures.jobs:
                self._figures.twice.add(job_id)
            self._figures.jobs.add(job_id)


def is_running(cluster, name):
    return pidfile.is_locked(cluster.paths(name).pid_file("ganeti-masterd"))


def missing(cluster, name, jobs):
    """Return the ids that the master on a node does not know."""
    with luxi.Client.of_node(cluster.paths(name)) as client:
        wanted = sorted(jobs)
        rows = client.call("QueryJobs", [wanted, ["id"]])
    return {job for job, row in zip(wanted, rows, strict=True) if row is None}


def run(cluster, names, count, *, jobs_between=50, show=lambda _text: None):
    """Move the master role from node to node under load; return the figures."""
    figures = Figures()
    with Load(cluster, names, figures) as load:
        for number in range(count):
            load.wait_for(jobs_between)
            old, new = names[number % len(names)], names[(number + 1) % len(names)]
            began = time.monotonic()
            done = cluster.run("gnt-cluster", "master-failover", node=new)
            figures.seconds.append(time.monotonic() - began)
            figures.failovers += 1
            if done.failed:
                figures.refused.append(done.output)
                break
            figures.two_masters += is_running(cluster, old)
            with load._lock:
                known = set(figures.jobs)
            figures.lost |= missing(cluster, new, known)
            show(str(figures))
    if not figures.refused:
        figures.lost |= missing(cluster, new, figures.jobs)
    return figures
