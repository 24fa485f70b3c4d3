"""Failures of masters and of servers of etcd under load, and the losses they cause.

No operator makes another candidate the master. ``etcd`` in the arguments is a function of
an action (start, kill, pause, resume) and the number of a server.
"""

import dataclasses
import functools
import random
import time

from fakes.failovers import JOB, Load, Losses, is_running, missing
from fakes.patience import until
from ganeti.base import errors
from ganeti.protocols import luxi

#: Faults of the master: its machine dies, its daemon dies, its machine freezes.
FAULTS = ("machine killed", "daemon killed", "machine frozen")
#: Faults of one of three servers at the same moment.
SERVERS = ("", "kill", "pause")
#: Seconds between two jobs of one client.
_PAUSE_S = 0.2
_UNDO = {"kill": "start", "pause": "resume"}


@dataclasses.dataclass
class Figures(Losses):
    """Results of some takeovers; each lasts until the first job that is accepted after it.

    Attributes:
        faults: each fault in order, as text.
        checked: ids that a later master was asked for.
    """

    faults: list = dataclasses.field(default_factory=list)
    checked: set = dataclasses.field(default_factory=set)

    def __str__(self):
        times = sorted(self.seconds)
        return (
            f"{len(times)} takeovers, {len(self.jobs)} jobs acknowledged:"
            f" {len(self.lost)} lost, {len(self.twice)} ids given twice,"
            f" {self.two_masters} times two masters; seconds to the first job: median"
            f" {times[len(times) // 2]:.1f}, p95 {times[int(len(times) * 0.95)]:.1f},"
            f" longest {times[-1]:.1f}"
        )


class PacedLoad(Load):
    """Clients with a pause after each job: rounds last a minute, and jobs are kept."""

    def _note(self, job_id):
        super()._note(job_id)
        self.stopping.wait(_PAUSE_S)


def leader(cluster, names):
    """Return the node whose master daemon answers; None if none does."""
    for name in names:
        client = luxi.Client.of_node(
            cluster.paths(name), retries=0, connect_timeout_s=0.05, timeout_s=20
        )
        try:
            with client:
                client.call("QueryConfigValues", [["master_node"]])
        except errors.GenericError:
            continue
        return name
    return None


def _accepted(cluster, names):
    """Return the node that accepts a job now, and its id; None if none does."""
    for name in names:
        client = luxi.Client.of_node(
            cluster.paths(name), retries=0, connect_timeout_s=0.05, timeout_s=20
        )
        try:
            with client:
                return name, int(client.call("SubmitJob", [JOB]))
        except errors.GenericError:
            continue
    return None


def run(cluster, names, count, seed, *, etcd, show=lambda _text: None):
    """Let masters fail; return the figures.

    Raises:
        AssertionError: no candidate has taken over.
    """
    figures, chance = Figures(), random.Random(seed)
    with PacedLoad(cluster, names, figures) as load:
        for _number in range(count):
            load.wait_for(20)
            old = until("somebody leads", lambda: leader(cluster, names))
            others = [name for name in names if name != old]
            fault, server = chance.choice(FAULTS), chance.choice(SERVERS)
            member = chance.randint(1, 3)
            figures.faults.append(
                f"{old}: {fault}; server {member}: {server or 'fine'}"
            )
            began = time.monotonic()
            _break(cluster, old, fault)
            if server:
                etcd(server, member)
            among = names if fault == "daemon killed" else others
            accepted = functools.partial(_accepted, cluster, among)
            _name, job = until("a job is accepted", accepted)
            figures.seconds.append(time.monotonic() - began)
            load._note(job)
            _mend(cluster, old, fault)
            if server:
                etcd(_UNDO[server], member)
            _check(cluster, names, load, figures)
            show(f"{figures.faults[-1]}: {figures.seconds[-1]:.1f} s. {figures}")
    name = until("somebody leads", lambda: leader(cluster, names))
    figures.lost |= missing(cluster, name, figures.jobs)
    return figures


def _break(cluster, name, fault):
    node = cluster.layout.node(name)
    if fault == "machine frozen":
        cluster.control.pause(node)
    else:
        daemon = "ganeti-masterd" if fault == "daemon killed" else None
        cluster.control.kill(node, daemon)


def _mend(cluster, name, fault):
    node = cluster.layout.node(name)
    if fault == "machine frozen":
        cluster.control.resume(node)
    elif fault == "machine killed":
        cluster.control.power_on(node)


def _check(cluster, names, load, figures):
    """Wait until one master is left; compare what it knows with what was promised."""
    try:
        until("one master", lambda: _masters(cluster, names) == 1)
    except AssertionError:
        figures.two_masters += 1
    with load._lock:
        known = figures.jobs - figures.checked
    name = until("somebody leads", lambda: leader(cluster, names))
    figures.lost |= missing(cluster, name, known)
    figures.checked |= known


def _masters(cluster, names):
    return sum(is_running(cluster, name) for name in names)
