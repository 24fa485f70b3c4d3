"""The master daemon, built from its dependencies."""

import os
import threading
from typing import Final

from ganeti.base import daemon_users
from ganeti.daemons.masterd import metrics, remote
from ganeti.daemons.masterd.deps import MasterDeps
from ganeti.daemons.masterd.duties import callers, interrupted
from ganeti.daemons.masterd.duties.candidate_rights import CandidateRights
from ganeti.daemons.masterd.duties.distributor import Distributor
from ganeti.daemons.masterd.duties.leftover_disks import LeftoverDisks
from ganeti.daemons.masterd.methods import (
    balancing,
    calls,
    capacity,
    copies,
    jobs,
    journal,
    maintenance,
    node_deaths,
    queries,
    settings,
)
from ganeti.daemons.masterd.stalls import Stalls
from ganeti.master import config
from ganeti.protocols.luxi.server import (
    Call,
    Limits,
    Restricted,
    Server,
    connection_limit,
)

#: Seconds that running opcodes have to end when the daemon stops. Most take less; a
#: longer wait would keep the cluster without a master, see doc/design/job-queue.rst.
OPCODES_S: Final = 10.0
_RAPI: Final = "ganeti-rapi"
#: Modules whose import registers the methods.
METHOD_MODULES: Final = (
    *(
        balancing,
        capacity,
        copies,
        jobs,
        journal,
        maintenance,
        metrics,
        node_deaths,
        queries,
        settings,
    ),
)


class Service:
    """A running master, created by `build` and ended by `stop`."""

    def __init__(self, deps: MasterDeps, distributor: Distributor) -> None:
        self.deps = deps
        self._distributor = distributor
        self._server = Server(
            self._answer,
            [deps.paths.query_socket, deps.paths.master_socket],
            clock=deps.clock,
            limits=Limits(connections=connection_limit()),
            waiting_methods=jobs.WAITING,
            restricted=self._remote_socket(),
        )
        self._server.warning = deps.store.exposure
        self._stalls = Stalls(deps.store.stall, deps.clock, self._server.call_later)
        self._leftovers = LeftoverDisks(
            deps.config.disk_notes,
            deps.config.snapshot,
            deps.rpc,
            deps.clock,
            has_ended=self._has_ended,
        )
        self._rights = CandidateRights(deps)
        self._is_stopped = threading.Event()

    def _remote_socket(self) -> Restricted:
        """Return the socket of the remote API; make its directory if it is missing."""
        paths = self.deps.paths
        os.makedirs(paths.rapi_socket_dir, mode=0o750, exist_ok=True)
        user = daemon_users.identity(_RAPI, paths)
        uid, gid = (user.uid, user.gid) if user else (os.geteuid(), -1)
        return Restricted(paths.rapi_socket, uid, gid, self._answer_remote)

    def _answer(self, call: Call) -> None:
        calls.answer(self.deps, call, self._stalls)

    def _answer_remote(self, call: Call) -> None:
        remote.check(call)
        call.rewrite = remote.without_requesters
        calls.answer(self.deps, call, self._stalls, is_remote=True)

    def _has_ended(self, job_id: int) -> bool:
        job = self.deps.queue.job(job_id)
        return job is None or job.is_final

    def start(self) -> None:
        """Start to run jobs and to serve clients."""
        self.deps.queue.start()
        self._distributor.start()
        self._leftovers.start()
        self._rights.start()
        self.deps.term_resets.start()
        self._server.start()

    def stop(self, opcodes_s: float = OPCODES_S) -> bool:
        """Refuse new clients, wait for running opcodes, leave waiting jobs queued.

        Args:
            opcodes_s: seconds that running opcodes have to end.

        Returns:
            Whether they have ended. If not, the process must end without delay: their
            threads go on and can store nothing any more.
        """
        if self._is_stopped.is_set():
            return True
        self._is_stopped.set()
        self._server.stop_accepting()
        self._leftovers.stop()
        self._rights.stop()
        self.deps.address.stop()
        self.deps.term_resets.stop()
        have_ended = self.deps.queue.stop(opcodes_s)
        self._server.stop()
        self.deps.quick.shutdown(wait=True, cancel_futures=True)
        self.deps.slow.shutdown(wait=False, cancel_futures=True)
        self.deps.planning.shutdown(wait=False, cancel_futures=True)
        self.deps.store.close()
        self._distributor.stop()
        self.deps.audit.stop()
        return have_ended


def build(deps: MasterDeps) -> Service:
    """Build the service and bind its sockets; `Service.start` starts it.

    Raises:
        StorageError: jobs cannot be read.
        OSError: a socket cannot be bound.
    """
    deps.audit.started(deps.paths.hostname, str(deps.store.term))
    deps.queue.recover()
    interrupted.mark_creations(deps.config)
    distributor = Distributor(
        deps.store,
        deps.rpc,
        config.SsconfTracker().all,
        wake_queue=deps.queue.poke,
        on_refusal=lambda refused: callers.restore_access(
            deps.rpc, deps.store.snapshot(), deps.store.term, refused
        ),
        clock=deps.clock,
    )
    deps.config.on_ssconf = distributor.write_again
    return Service(deps, distributor)
