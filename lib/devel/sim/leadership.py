"""Who is master while machines fail: the lease of a store in etcd, and its standbys.

With the store in etcd a lease says who is master. It ends when the master daemon or its
machine stops, or does not reach the majority of the servers any more; then a candidate
takes over, as ``ganeti-standby`` does. The rules are those of `ganeti.decisions.quorum`
and `ganeti.automation.new_master`; the servers are simulated as machines
that answer, one on each master candidate. With the store in files only a person makes
another node the master.
"""

from collections.abc import Callable, Sequence
from typing import Final, cast

from ganeti.automation import new_master
from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.decisions import quorum
from ganeti.decisions.quorum import Copy, Election, Voters
from ganeti.devel.sim.hardware import Hardware
from ganeti.devel.sim.master import Master
from ganeti.devel.sim.scheduler import Scheduler
from ganeti.devel.sim.store import Data, SimulatedStore
from ganeti.master import config
from ganeti.model.objects import Node
from ganeti.store import Store
from ganeti.store.etcd.lease import TTL_S

#: Seconds in which the master daemons of a new master start.
START_S: Final = 2.0
#: Seconds until the candidates try again to take over.
RETRY_S: Final = 10.0
_TERM: Final = 1


class Leadership:
    """Watches the master daemon, and replaces a lost one.

    Attributes:
        is_taken: a node is about to become the master.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        hardware: Hardware,
        data: Data,
        *,
        servers: Sequence[str],
        master: Callable[[], Master | None],
        start: Callable[[], None],
        report: Callable[[str, str], None],
    ) -> None:
        """Prepare.

        Args:
            scheduler: the time.
            hardware: the machines.
            data: the stored state.
            servers: machines with a server of etcd; none if the store is in files.
            master: returns the present master daemon, also one that was killed.
            start: starts a master daemon on the machine that the configuration names.
            report: called with a node and what became of its role.
        """
        self._scheduler = scheduler
        self._hardware = hardware
        self._data = data
        self._servers = servers
        self._master = master
        self._start = start
        self._report = report
        data.may_write = self._may_write
        self.is_taken = False
        self._is_vacant = False
        self._is_check_due = False
        #: The last report about a cluster without master.
        self._last_report = ""

    @property
    def is_automatic(self) -> bool:
        """Whether a candidate takes over by itself."""
        return bool(self._servers)

    def look(self) -> None:
        """Note that a machine, the network or the master daemon may have changed."""
        master = self._master()
        if not self.is_automatic:
            self._look_at_files(master)
        elif not (self.is_taken or self._is_check_due or self._is_held(master)):
            self._is_check_due = True
            # A lease goes on for its whole time after its owner has stopped to prolong
            # it.
            self._scheduler.at(TTL_S, self._expire)

    def may_start(self, machine: str) -> bool:
        """Return whether the master daemon of the recorded master may start again."""
        if not self.is_automatic:
            return True
        return not self.is_taken and not self._obstacle(machine)

    # Store in files
    def _look_at_files(self, master: Master | None) -> None:
        if master is None or not master.is_dead:
            self._last_report = ""
            return
        name = master.machine()
        if not self._hardware.machines[name].is_awake:
            self._say(
                name,
                "was the master; with the store in files no other node takes over by"
                " itself: a person uses 'gnt-cluster master-failover' on a master"
                " candidate, or starts this node again",
            )

    def _say(self, name: str, text: str) -> None:
        if text != self._last_report:
            self._last_report = text
            self._report(name, text)

    # Store in etcd
    def _is_held(self, master: Master | None) -> bool:
        """Return whether the master prolongs its lease."""
        return (
            master is not None
            and not master.is_dead
            and not self._unreached(master.machine())
        )

    def _unreached(self, name: str) -> str:
        """Return why a machine cannot use the store; "" if it can."""
        count = len(self._servers)
        reached = sum(self._hardware.reaches(name, each) for each in self._servers)
        if reached >= quorum.majority(count):
            return ""
        return f"it reaches {reached} of {count} servers of etcd"

    def _may_write(self) -> bool:
        """Return whether the store takes a change; end a master that cannot write.

        A real one waits for the servers, until its lease is over.
        """
        master = self._master()
        if not self.is_automatic or master is None or master.is_dead:
            return True
        why = self._unreached(master.machine())
        if why:
            self._report(master.machine(), f"can store nothing any more: {why}")
            master.kill()
        return not why

    def _expire(self) -> None:
        """End the lease if the master did not prolong it since it was looked at."""
        self._is_check_due = False
        master = self._master()
        if self.is_taken or self._is_held(master):
            return
        if master is not None and not master.is_dead:
            why = self._unreached(master.machine())
            self._report(master.machine(), f"ceases to be the master: {why}")
            master.kill()
        self._is_vacant = True
        self._elect()

    def _elect(self) -> None:
        """Let the first candidate that can do it take over; of equals, by name."""
        if self.is_taken or not self._is_vacant:
            return
        if self._is_held(self._master()):
            self._is_vacant = False
            return
        reasons = []
        for node in self._candidates():
            why = self._obstacle(node.name)
            if not why:
                self._take(node.name)
                return
            reasons.append(f"{node.name}: {why}")
        self._say("cluster", f"no node can take over: {'; '.join(reasons)}")
        self._scheduler.at(RETRY_S, self._elect)

    def _candidates(self) -> list[Node]:
        nodes = self._data.snapshot.nodes.values()
        candidates = [node for node in nodes if node.master_candidate]
        return sorted(candidates, key=lambda node: node.name)

    def _obstacle(self, name: str) -> str:
        """Return why a node cannot lead; "" if it can."""
        if not self._hardware.machines[name].is_awake:
            return "it does not answer"
        snapshot = self._data.snapshot
        node = snapshot.nodes[snapshot.uuid_of("nodes", name) or ""]
        try:
            new_master.check_candidate(snapshot, node)
        except errors.OpPrereqError as err:
            return str(err.args[0])
        return self._unreached(name)

    def _take(self, name: str) -> None:
        """Begin to make a node the master."""
        self.is_taken, self._is_vacant = True, False
        # As a real candidate does, which first asks the others whether they accept it.
        seconds = new_master.ASK_S + START_S
        self._scheduler.at(seconds, lambda: self._begin(name))

    def _begin(self, name: str) -> None:
        """Record the new master and start its daemons, unless it was lost since."""
        self.is_taken = False
        why = self._obstacle(name) if self.is_automatic else self._refusal(name)
        if why:
            self._report(name, f"does not become the master: {why}")
            self._is_vacant = self.is_automatic
            self._elect()
            return
        self._last_report = ""
        self._replace()
        snapshot = self._data.snapshot
        opened = SimulatedStore(self._data)
        recorded = config.Config(cast("Store", opened), cast("Clock", self._scheduler))
        own = snapshot.nodes[snapshot.uuid_of("nodes", name) or ""]
        old = new_master.record_master(recorded, own)
        opened.close()
        last = name if old is None else old.name
        self._report(name, f"is the master now, after {last}")
        self._start()
        self.look()

    def _replace(self) -> None:
        """End the daemon of the old master: its term is over."""
        master = self._master()
        if master is not None and not master.is_dead:
            master.kill()

    # A person
    def fail_over(self, name: str) -> None:
        """Make a node the master, as ``gnt-cluster master-failover`` does there."""
        master = self._master()
        if master is not None and not master.is_dead and master.machine() == name:
            why = "it is the master"
        elif self.is_taken:
            why = "another node is about to become the master"
        else:
            why = self._obstacle(name) if self.is_automatic else self._refusal(name)
        if why:
            self._report(name, f"does not become the master: {why}")
            return
        self._take(name)

    def _refusal(self, name: str) -> str:
        """Return why nodes and candidates do not elect a node; "" if they do."""
        machines, snapshot = self._hardware.machines, self._data.snapshot
        if not machines[name].is_awake:
            return "it does not answer"
        nodes = [node for node in snapshot.nodes.values() if not node.offline]
        heard = [node for node in nodes if self._hardware.answers(name, node.name)]
        if len(heard) < quorum.majority(len(nodes)):
            return f"it reaches {len(heard)} of {len(nodes)} nodes"
        own = snapshot.uuid_of("nodes", name) or ""
        candidates = frozenset(node.uuid for node in self._candidates())
        # All copies are equal: a commit is on all of them when it returns.
        copy = Copy(_TERM, max(1, snapshot.revision))
        copies = {node.uuid: copy for node in heard if node.uuid in candidates}
        election = Election(own, Voters(candidates), copies)
        if own not in candidates:
            return "it is not a master candidate"
        if not election.is_won:
            silent = ", ".join(
                sorted(snapshot.nodes[uuid].name for uuid in election.silent)
            )
            return (
                f"{len(copies)} of {len(candidates)} copies of the configuration"
                f" answer; silent: {silent}"
            )
        return ""
