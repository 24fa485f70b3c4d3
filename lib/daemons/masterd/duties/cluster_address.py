"""The address of the cluster on the master's node: added, watched, and added again.

Another machine can answer at the address when the master daemon begins: a frozen node
that was the master, whose kernel goes on. So one attempt is not enough. The address may
also go later, for example when the network is set up again. A job that removes it, such
as that of ``gnt-cluster deactivate-master-ip``, ends the duty until one adds it.

Candidates that still have the address have to remove it. All calls have the term of
this master daemon, so a deposed one takes the address from nobody.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final

from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.base.net import netutils
from ganeti.model.objects import Snapshot
from ganeti.operations import master_ip
from ganeti.protocols import rpc
from ganeti.protocols.rpc import calls

_log = logging.getLogger(__name__)

#: Seconds between looks at the address.
LOOK_S: Final = 10.0
#: Seconds until the next attempt after a failed one; the last value is repeated. An
#: attempt sends five echo requests within a second.
RETRY_S: Final = (1.0, 2.0, 5.0, 10.0)
#: Seconds for a candidate to answer whether it has the address, and to remove it.
_ASK_S: Final = 5.0
_DROP_S: Final = 20.0
_UP: Final = "node_activate_master_ip"
_DOWN: Final = "node_deactivate_master_ip"


class ClusterAddress:
    """Keeps the address in one thread, from `start` to `stop`."""

    def __init__(
        self,
        snapshot: Callable[[], Snapshot],
        runner: rpc.Runner,
        clock: Clock,
        owns: Callable[[str], bool] = netutils.owns_address,
    ) -> None:
        """Prepare.

        Args:
            snapshot: returns the newest configuration.
            runner: calls nodes; the calls of jobs use another one, see `note`.
            clock: for pauses.
            owns: returns whether this machine has an address.
        """
        self._snapshot = snapshot
        self._rpc = runner
        self._clock = clock
        self._owns = owns
        #: The last job that could do so has removed the address; one does at present.
        self._is_removed = self._is_removing = False
        #: The last attempt was a success, and the address was there since.
        self._is_up = False
        self._failures = 0
        self._last_problem = ""
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, name="master-ip", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Begin no further attempt."""
        self._end.set()

    def begin(self, procedure: str) -> None:
        """Take a node call of a job that begins: its hooks may outlast the removal."""
        if procedure == _DOWN:
            self._is_removing = True

    def note(self, procedure: str, failed: int) -> None:
        """Take a node call of a job that has ended, and how many nodes failed.

        The job may remove the address, or have it at another place.
        """
        if procedure not in (_UP, _DOWN):
            return
        if procedure == _UP or not failed:
            # A removal that failed is none: neither does it end the duty, nor does it
            # undo an earlier one.
            self._is_removed = procedure == _DOWN
        if procedure == _DOWN:
            self._is_removing = False
        self._is_up = not failed and self._is_wanted

    @property
    def _is_wanted(self) -> bool:
        return not (self._is_removed or self._is_removing)

    def _run(self) -> None:
        pause_s = 0.0
        while not self._clock.wait(self._end, pause_s):
            try:
                pause_s = self.look()
            except errors.TermError:
                return
            except Exception:  # noqa: BLE001 - logged, and tried again
                _log.exception("the cluster's address")
                pause_s = LOOK_S

    def look(self) -> float:
        """Add the address if it is missing; return the seconds until the next look.

        Raises:
            TermError: this master is deposed.
        """
        if not self._is_wanted:
            return LOOK_S
        snapshot = self._snapshot()
        if self._is_up:
            if self._is_there(snapshot):
                return LOOK_S
            self._is_up = False
            return RETRY_S[0]
        cluster = snapshot.cluster
        arguments = master_ip.parameters(cluster), cluster.use_external_mip_script
        answer = self._rpc.call_node(
            cluster.master_node, calls.node_activate_master_ip(*arguments)
        )
        if answer.failed:
            return self._next_try(snapshot, answer)
        _log.info("this node has the cluster's address %s", cluster.master_ip)
        self._is_up, self._failures, self._last_problem = True, 0, ""
        if not self._is_wanted:
            self._rpc.call_node(
                cluster.master_node, calls.node_deactivate_master_ip(*arguments)
            )
        return LOOK_S

    def _is_there(self, snapshot: Snapshot) -> bool:
        cluster = snapshot.cluster
        # Where a script of the administrator puts the address is not known.
        return cluster.use_external_mip_script or self._owns(cluster.master_ip)

    def _next_try(self, snapshot: Snapshot, answer: rpc.Result) -> float:
        problem = answer.describe(
            "the cluster's address could not be added to this node"
        )
        if problem != self._last_problem:
            _log.error("%s; trying again", problem)
        self._last_problem = problem
        if self._take_from_others(snapshot):
            return RETRY_S[0]
        self._failures += 1
        return RETRY_S[min(self._failures, len(RETRY_S)) - 1]

    def _take_from_others(self, snapshot: Snapshot) -> bool:
        """Have candidates remove the address; return whether one has done so."""
        cluster = snapshot.cluster
        if cluster.use_external_mip_script or netutils.is_loopback(cluster.master_ip):
            return False
        others = [
            node.uuid
            for node in snapshot.nodes.values()
            if node.master_candidate
            and not node.offline
            and node.uuid != cluster.master_node
        ]
        asked = self._rpc.call_nodes(
            others, calls.node_has_ip_address(cluster.master_ip), timeout_s=_ASK_S
        )
        strays = [uuid for uuid, answer in asked.items() if answer.payload is True]
        if not strays:
            return False
        arguments = (master_ip.parameters(cluster), cluster.use_external_mip_script)
        answers = self._rpc.call_nodes(
            strays, calls.node_deactivate_master_ip(*arguments), timeout_s=_DROP_S
        )
        for answer in answers.values():
            what = f"the cluster's address {cluster.master_ip} was there"
            if answer.failed:
                what = answer.describe("the cluster's address was not removed")
            _log.warning("node %s: %s", answer.node, what)
        return any(not answer.failed for answer in answers.values())
