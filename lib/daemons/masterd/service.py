"""The master daemon, built from its dependencies."""

import logging
import os
import re
import threading
from collections.abc import Sequence
from typing import Any, Final

from ganeti.base import daemon_users, errors
from ganeti.base.constants import ecodes
from ganeti.base.constants import instance as constants
from ganeti.daemons.masterd.deps import MasterDeps
from ganeti.daemons.masterd.duties.candidate_rights import CandidateRights
from ganeti.daemons.masterd.duties.distributor import Distributor
from ganeti.daemons.masterd.duties.leftover_disks import LeftoverDisks
from ganeti.daemons.masterd.methods import (
    automatons,
    balancing,
    calls,
    consoles,
    events,
    jobs,
    node_deaths,
    queries,
    sessions,
    settings,
    status,
)
from ganeti.daemons.masterd.stalls import Stalls
from ganeti.decisions.jobs.filters import REMOTE_SOURCE
from ganeti.decisions.quorum import Term
from ganeti.master import config
from ganeti.master.config import Config
from ganeti.model.objects import Node, Snapshot
from ganeti.protocols import rpc
from ganeti.protocols.luxi.server import (
    Call,
    Limits,
    Restricted,
    Server,
    connection_limit,
)
from ganeti.protocols.rapi.resource_table import METHODS, OPCODES

_log = logging.getLogger(__name__)

# Access to nodes that do not know the certificate of this master.
#
# Such a node was away while this one became a candidate. It gets the list of permitted
# callers through another node that it still accepts; see
# `ganeti.node.calls.membership.relays`.

#: Seconds until a relaying node must have answered; its own call has 10.
_RELAY_S: Final = 15.0
#: Most nodes that are asked to relay at the same time.
_MOST: Final = 10


def restore_access(
    runner: rpc.Runner, snapshot: Snapshot, term: Term, refused: Sequence[str]
) -> None:
    """Have other nodes send the list of permitted callers to nodes that refuse us.

    Failures are logged; the distributor tries again while a node refuses it.

    Args:
        runner: calls the nodes.
        snapshot: has the list.
        term: of this master.
        refused: UUIDs of the nodes that refuse the certificate of this master.
    """
    callers = dict(snapshot.cluster.candidate_certs)
    for uuid in refused:
        target = snapshot.nodes[uuid]
        relayed = rpc.calls.callers_relay(
            (term.number, term.owner),
            (target.uuid, target.name, target.primary_ip),
            callers,
        )
        problems = []
        for relays in _relays(snapshot, {*refused, term.owner}):
            answers = runner.call_nodes(
                [node.uuid for node in relays], relayed, timeout_s=_RELAY_S
            )
            done = [each.node for each in answers.values() if not each.failed]
            problems += [
                f"{each.node}: {each.fail_msg}"
                for each in answers.values()
                if each.failed
            ]
            if done:
                _log.info(
                    "node %s has the permitted callers from %s", target.name, done[0]
                )
                break
        else:
            _log.warning(
                "node %s refuses the certificate of this master, and no other node"
                " could change that; run gnt-node add --readd for it: %s",
                target.name,
                "; ".join(problems) or "no other node is online",
            )


def _relays(snapshot: Snapshot, without: set[str]) -> list[list[Node]]:
    """Return the nodes that can be asked, in groups, the most promising one first.

    A node that was a candidate may still be one for a node that was away.
    """
    others = sorted(
        (n for u, n in snapshot.nodes.items() if not n.offline and u not in without),
        key=lambda node: node.name,
    )
    candidates = [node for node in others if node.master_candidate]
    rest = [node for node in others if not node.master_candidate]
    return [group[:_MOST] for group in (candidates, rest) if group]


# The part of LUXI that the remote API may use, on a socket of its own.
#
# The daemon of the remote API has a user of its own, who cannot connect to the other
# sockets. Whoever takes that daemon over can do what its users can do, but not, for
# example, destroy the cluster, set its master, or call the test opcodes.

_SOURCE_TEXT: Final = f'["{REMOTE_SOURCE}","'.encode()
#: A reason of `REMOTE_SOURCE` in a compact text: its start, and the end of its text.
_REQUESTER: Final = re.compile(
    re.escape(_SOURCE_TEXT).join((b"(", b")"))
    + rb'user (?:[^"\\]|\\.)*?, address (?:[^"\\]|\\.)*?, (request [0-9a-f]+")'
)


def check_remote(call: Call) -> None:
    """Refuse a request that the remote API never makes.

    Raises:
        OpPrereqError: the method or an opcode is not on the list.
    """
    if call.method not in METHODS:
        raise _refusal(f"method {call.method!r}")
    if call.method in {"PlanJob", "SubmitJob"}:
        for op in _opcodes(call.args):
            if op.get("OP_ID") not in OPCODES:
                raise _refusal(f"opcode {op.get('OP_ID')!r}")
            if not _names_requester(op.get("reason")):
                raise _refusal(f"an opcode without a reason of {REMOTE_SOURCE!r}")


def without_requesters(text: bytes) -> bytes:
    """Return the JSON text of a result without who asked for jobs, and from where.

    Users of the remote API see each other's jobs. The number of the request remains;
    the commands of the master show all.
    """
    if _SOURCE_TEXT not in text:
        return text
    return _REQUESTER.sub(rb"\1\2", text)


def _opcodes(args: list[Any]) -> list[dict[str, Any]]:
    """Return the opcodes; whatever is none is refused when it is decoded."""
    ops = args[0] if args and isinstance(args[0], list) else []
    return [op for op in ops if isinstance(op, dict)]


def _names_requester(trail: Any) -> bool:
    return isinstance(trail, list) and any(
        isinstance(entry, list) and entry and entry[0] == REMOTE_SOURCE
        for entry in trail
    )


def _refusal(subject: str) -> errors.OpPrereqError:
    return errors.OpPrereqError(
        f"{subject} is not available to the remote API", ecodes.ECODE_INVAL
    )


_OWNER: Final = "start of the master daemon"
#: Mark while a script runs -> mark of one that is not known to have ended well.
_AFTER: Final = {
    constants.CREATION_INSTALLING: constants.CREATION_INTERRUPTED,
    constants.CREATION_RENAMING: constants.CREATION_RENAME_CUT,
}


def mark_creations(config: Config) -> None:
    """Mark the instances whose job ended while its OS script ran.

    Call it before jobs run: one that goes on with its work removes the mark at the end.

    Raises:
        StorageError: nothing was changed.
    """
    names = [
        instance.name
        for instance in config.snapshot().instances.values()
        if instance.creation in _AFTER
    ]
    if not names:
        return
    with config.edit(_OWNER) as edit:
        for instance in edit.snapshot.instances.values():
            if instance.creation in _AFTER:
                edit.update(instance.replace(creation=_AFTER[instance.creation]))
    _log.warning("instances whose OS script did not finish: %s", ", ".join(names))


#: Seconds that running opcodes have to end when the daemon stops. Most take less; a
#: longer wait would keep the cluster without a master, see doc/design/job-queue.rst.
OPCODES_S: Final = 10.0
_RAPI: Final = "ganeti-rapi"
#: Modules whose import registers the methods.
METHOD_MODULES: Final = (
    automatons,
    balancing,
    consoles,
    events,
    jobs,
    node_deaths,
    queries,
    sessions,
    settings,
    status,
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
            waiting_methods=jobs.WAITING | events.WAITING,
            restricted=self._remote_socket(),
        )
        self._server.warning = deps.store.exposure
        loop = self._server.loop
        self._stalls = Stalls(deps.store.stall, deps.clock, loop.call_later)
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
        check_remote(call)
        call.rewrite = without_requesters
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
        self.deps.events.stop()
        have_ended = self.deps.queue.stop(opcodes_s)
        self._server.stop()
        self.deps.quick.shutdown(wait=True, cancel_futures=True)
        self.deps.slow.shutdown(wait=False, cancel_futures=True)
        self.deps.reporting.shutdown(wait=False, cancel_futures=True)
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
    deps.sessions.load()
    mark_creations(deps.config)
    distributor = Distributor(
        deps.store,
        deps.rpc,
        config.SsconfTracker().all,
        wake_queue=deps.queue.poke,
        on_refusal=lambda refused: restore_access(
            deps.rpc, deps.store.snapshot(), deps.store.term, refused
        ),
        clock=deps.clock,
    )
    deps.config.on_ssconf = distributor.write_again
    return Service(deps, distributor)
