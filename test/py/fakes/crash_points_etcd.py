"""Crash points of a cluster with its store in three real servers of etcd.

As `crash_points`, with ganeti-standby on each node. Its file of the store is written by
it, and a power cut hits that file. After some ends of the master daemon nobody starts it
again before another candidate has taken over; then the role moves back to the first node.
"""

import contextlib

from fakes.crash_points import MASTERD, NODED, NODES, CrashCluster
from fakes.patience import until
from fakes.takeovers import leader
from ganeti.base import errors
from ganeti.base.filesystem import pidfile
from ganeti.devel.vcluster import processes

STANDBY, RAPI = "ganeti-standby", "ganeti-rapi"
_HOME = NODES[0]


class EtcdCrashCluster(CrashCluster):
    """Three nodes and three servers of etcd."""

    STORE = "etcd"
    VICTIMS = {
        (MASTERD, _HOME): 55,
        (NODED, "node2"): 15,
        (NODED, _HOME): 10,
        (STANDBY, "node2"): 20,
    }
    TAKEOVERS = 0.25

    def _end_usual(self):
        # First those that would take over.
        for daemon in (STANDBY, MASTERD, NODED):
            self._kill_usual(daemon)

    def _kill_usual(self, *daemons, among=NODES):
        """Kill daemons that were not started by a test, where they run."""
        for name in among:
            running = self.control.processes_on(self.layout.node(name))
            processes.kill([each for each in running if each.name in daemons])

    def start_all(self, *, record=False):
        super().start_all(record=record)
        for node in NODES:
            self.start(STANDBY, node, record=record)
        self._wait_for_standbys()

    def _wait_for_standbys(self):
        """Wait for those of steady candidates; the workload demotes the third node."""
        files = [self.paths(node).pid_file(STANDBY) for node in NODES[:2]]
        until("ganeti-standby", lambda: all(map(pidfile.is_locked, files)))

    def kill_all(self):
        self._kill_usual(STANDBY, MASTERD)
        super().kill_all()
        # One may have started the other at the last moment.
        self._kill_usual(STANDBY, MASTERD)

    def await_takeover(self):
        # Otherwise the standby of the first node may be faster.
        self.daemons[STANDBY, _HOME].kill()
        others = NODES[1:]
        until("another candidate takes over", lambda: leader(self, others))
        self._call_home()
        self.start(STANDBY, _HOME)
        self._wait_for_standbys()

    def wait_for_master(self):
        """Wait until the first node is the master again, and its daemon answers."""

        def serves():
            if self.daemons[MASTERD, _HOME].has_ended():
                # Another candidate was faster than this start.
                self._call_home()
                self.daemons[MASTERD, _HOME].kill()
                self.start(MASTERD, _HOME)
            with contextlib.suppress(errors.GenericError), self.client() as client:
                return client.call("QueryConfigValues", [["cluster_name"]])

        until("masterd", serves)

    def _call_home(self):
        """Move the role to the first node, and end the daemon that the command starts.

        Its lease lasts for some seconds, in which only this node can begin again.
        """
        node = self.layout.node(_HOME)
        self.control.run(node, ["gnt-cluster", "master-failover"])
        self._kill_usual(MASTERD, among=[_HOME])
