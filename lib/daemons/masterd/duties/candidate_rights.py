"""Candidates in place of dead ones, and rights of those that did not answer.

The job that marks a dead node offline must not wait for jobs of other nodes, so it
promotes none. The pool is filled here, with nodes that answer and that no job has
locked. A gap without a dead node was made by a person who demoted a candidate.

A new candidate gets the secrets of candidates, its certificate recorded, and the right
to log in to other nodes. One that was away then has no recorded certificate, which
distinguishes it. When it answers, the three steps are repeated, the record last.

A candidate may also have lost the secrets: a master whose changes are replaced later
has demoted it, or an interrupted ``gnt-node add --readd`` has emptied it. So all
candidates are asked for them every few minutes, and get what they lack; so are nodes
for SSH keys, see `LoginKeys`.
"""

import logging
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants.protocols import nodeverify
from ganeti.decisions.repair.node_lives import Phase
from ganeti.decisions.verify import node_answer
from ganeti.master.config import topology
from ganeti.master.locking import Level, Request
from ganeti.master.locking.manager import BGL
from ganeti.model import objects
from ganeti.operations import ancillary_files, base, candidate_role
from ganeti.operations.mcpu import EngineDeps
from ganeti.protocols.rpc import calls

_log = logging.getLogger(__name__)

#: Seconds between looks at the configuration, which cost nothing if nobody is missing.
PERIOD_S: Final = 10.0
#: The same for changed roles, whose SSH keys are looked at.
KEYS_PERIOD_S: Final = 2.0
#: Seconds for which locks are waited for; jobs come first.
_LOCKS_S: Final = 5.0
#: The same before a promotion, and most nodes that are tried in one sweep: others do.
_PROMOTION_S: Final = 1.0
#: Seconds in which a node has to answer to be promoted.
_ANSWER_S: Final = 2.0
_MAX_TRIED: Final = 8
#: Seconds until a candidate that had its secrets is asked for them again, and one that
#: did not answer.
LOOK_S: Final = 300.0
AWAY_S: Final = 60.0
_OWNER: Final = "candidate-rights"


class CandidateRights:
    """Repeats the admission of candidates in one thread, from `start` to `stop`."""

    def __init__(self, deps: EngineDeps) -> None:
        """Prepare; ``deps`` are those of the master daemon."""
        self._deps = deps
        #: Monotonic time of the next look for the secrets, by UUID.
        self._looks: dict[str, float] = {}
        self._keys = LoginKeys(deps, self._context, self._locked)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=_OWNER, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Begin no further admission; a call under way ends by itself."""
        self._stopping.set()

    def _run(self) -> None:
        count = 0
        while not self._deps.clock.wait(self._stopping, KEYS_PERIOD_S):
            count += 1
            try:
                if count % round(PERIOD_S / KEYS_PERIOD_S):
                    self._keys.sweep()
                else:
                    self.sweep()
            except errors.GenericError as err:
                _log.error("rights of candidates: %s", err)
            except Exception:  # noqa: BLE001 - logged, and tried again
                _log.exception("rights of candidates")

    def sweep(self) -> None:
        """Fill the pool; admit candidates without a certificate; give lost secrets."""
        self._fill_pool()
        for node in unrecorded(self._deps.config.snapshot()):
            if not self._stopping.is_set():
                self._locked(node.uuid, self._admit)
        now = self._deps.clock.monotonic()
        for node in recorded(self._deps.config.snapshot()):
            if self._stopping.is_set() or now < self._looks.get(node.uuid, now):
                continue
            is_lacking = ancillary_files.lacks_secrets(self._context(), node.uuid)
            self._looks[node.uuid] = now + (AWAY_S if is_lacking is None else LOOK_S)
            if is_lacking:
                self._locked(node.uuid, self._restore)
        if not self._stopping.is_set():
            self._keys.sweep()

    def _fill_pool(self) -> None:
        """Promote nodes in place of dead ones until the pool is full.

        Few are tried in one sweep.
        """
        snapshot = self._deps.config.snapshot()
        if not (topology.missing(snapshot) and self._has_dead(snapshot)):
            return
        eligible = topology.promotable(snapshot)
        for uuid in random.sample(eligible, min(_MAX_TRIED, len(eligible))):
            if self._stopping.is_set():
                return
            self._locked(uuid, self._promote, _PROMOTION_S)
            if not topology.missing(self._deps.config.snapshot()):
                return

    def _has_dead(self, snapshot: objects.Snapshot) -> bool:
        """Return whether a node is offline that was fenced within the last hour."""
        state = self._deps.config.node_deaths.state()
        names = {name for _time, name in state.fenced}
        names.update(d.name for d in state.deaths if d.phase is Phase.OFFLINE)
        return bool(names) and any(
            node.offline and node.name in names for node in snapshot.nodes.values()
        )

    def _promote(self, uuid: str) -> None:
        # One that is dead, too, would only take from the majority of the candidates.
        if self._deps.rpc.call_node(uuid, calls.version(), timeout_s=_ANSWER_S).failed:
            return
        with self._deps.config.edit(_OWNER) as edit:
            promoted = topology.promote_if_missing(edit, uuid)
        if promoted is not None:
            _log.info("node %s is a master candidate now", promoted.name)
            candidate_role.admit(self._context(), promoted)

    def _locked(
        self, uuid: str, act: Callable[[str], None], limit_s: float = _LOCKS_S
    ) -> bool:
        """Act on a node, unless a job has it; return whether it was done."""
        locks = self._deps.locks
        try:
            for level, name in ((Level.CLUSTER, BGL), (Level.NODE, uuid)):
                request = Request(level, [name], shared=level is Level.CLUSTER)
                if locks.acquire(request, limit_s) is None:
                    return False
            act(uuid)
            return True
        finally:
            locks.release_all()

    def _admit(self, uuid: str) -> None:
        for node in unrecorded(self._deps.config.snapshot()):
            if node.uuid == uuid and candidate_role.admit_again(self._context(), node):
                _log.info("node %s has the rights of a master candidate now", node.name)
                self._looks[uuid] = self._deps.clock.monotonic() + LOOK_S

    def _restore(self, uuid: str) -> None:
        for node in recorded(self._deps.config.snapshot()):
            if node.uuid != uuid:
                continue
            _log.warning("node %s lacks secrets of master candidates", node.name)
            if ancillary_files.send_secrets(self._context(), uuid):
                _log.info("node %s has the secrets of master candidates", node.name)
            else:
                self._looks[uuid] = self._deps.clock.monotonic() + AWAY_S

    def _context(self) -> base.Context:
        return base.view(
            base.Context,
            self._deps,
            log=_Log(),
            locks=_NoLocks(),
            owner=_OWNER,
            pause=self._pause,
            resumption=None,
            save_resumption=lambda _state: None,
        )

    def _pause(self, seconds: float) -> None:
        self._deps.clock.wait(self._stopping, seconds)


def unrecorded(snapshot: objects.Snapshot) -> list[objects.Node]:
    """Return the online candidates without a recorded certificate, sorted by name."""
    known = snapshot.cluster.candidate_certs
    return [node for node in _candidates(snapshot) if node.uuid not in known]


def recorded(snapshot: objects.Snapshot) -> list[objects.Node]:
    """Return the other online candidates without the master, sorted by name."""
    known, master = snapshot.cluster.candidate_certs, snapshot.cluster.master_node
    return [
        node
        for node in _candidates(snapshot)
        if node.uuid in known and node.uuid != master
    ]


def _candidates(snapshot: objects.Snapshot) -> list[objects.Node]:
    return sorted(
        (
            node
            for node in snapshot.nodes.values()
            if node.master_candidate and not node.offline
        ),
        key=lambda node: node.name,
    )


class _NoLocks:
    """The locks as an opcode sees them; this thread changes none."""

    def owned(self, level: Level) -> frozenset[str]:
        """Return no names."""
        del level
        return frozenset()

    def release(self, level: Level, *, keep: Any = ()) -> None:
        """Do nothing."""

    def downgrade(self, level: Level, names: Any) -> None:
        """Do nothing."""


class _Log:
    """The lines that a job would have in its log, in the log of the daemon."""

    def message(self, text: str) -> None:
        """Log a line."""
        _log.info("%s", text)

    info = message

    def warn(self, text: str, hint: str | None = None) -> None:
        """Log a warning."""
        _log.warning("%s%s", text, f"; {hint}" if hint else "")

    def step(self, number: int, total: int, text: str) -> None:
        """Log a step."""
        _log.info("STEP %d/%d %s", number, total, text)

    def entry(self, kind: str, payload: Any) -> None:
        """Log an entry of another kind."""
        _log.info("%s: %s", kind, payload)


# SSH keys that nodes lack, or still have, when their job of distribution has ended.
#
# A change of a node's role is committed before the keys follow it. They may not: the
# master is killed between the two, a node does not answer, or two nodes return at once
# and each job sees the other one as absent. So nodes are asked, at the start of the
# master, within seconds after each change of a role, and every few minutes. Those that
# could become candidates get the keys of all, the others those of candidates, which
# they only authorise. Keys of nodes that have lost their role are withdrawn. The list
# of the master's node comes first, since all others follow it.

#: Seconds until the first look again after one that could not mend everything, such as
#: on a node that a job has locked; doubled each time.
RETRY_S: Final = 4.0
#: Lines of a node that the log shows, and characters of each.
_MAX_LINES: Final = 3
_MAX_CHARACTERS: Final = 200

_MENDABLE: Final = (
    *nodeverify.SSH_LACKS,
    nodeverify.PUBLIC_KEY_OF,
    nodeverify.STILL_AUTHORISED,
)

Locked = Callable[[str, Callable[[str], None]], bool]


class LoginKeys:
    """Looks at key files of nodes, and sends what they lack. Of one thread."""

    def __init__(
        self, deps: EngineDeps, context: Callable[[], base.Context], locked: Locked
    ) -> None:
        """Prepare.

        Args:
            deps: those of the master daemon.
            context: returns what the steps of an operation get.
            locked: calls a function with a node's UUID, with the node locked; returns
                false if a job has it.
        """
        self._deps = deps
        self._context = context
        self._locked = locked
        #: Monotonic time of the next look, and the roles at the last one.
        self._next_look = 0.0
        self._retry_s = RETRY_S
        self._seen: Sequence[Sequence[Any]] = ()
        self._changed: Sequence[Sequence[Any]] = ()
        #: Public keys that the master's node has, by UUID, at the last look.
        self._known: Mapping[str, list[str]] = {}

    def sweep(self) -> None:
        """Look, if it is time; changed roles are left to their job for one period."""
        snapshot = self._deps.config.snapshot()
        if not snapshot.cluster.modify_ssh_setup:
            return
        rows = _roles(snapshot)
        is_settled = rows == self._changed
        self._changed = rows
        now = self._deps.clock.monotonic()
        if rows == self._seen and now < self._next_look:
            return
        if not is_settled:
            return
        self._retry_s = RETRY_S if rows != self._seen else 2 * self._retry_s
        self._seen = rows
        # A list, since all are to be tried.
        is_mended = all([self._mend_source(snapshot), self._mend_nodes(snapshot)])
        wait_s = LOOK_S if is_mended else min(self._retry_s, LOOK_S)
        self._next_look = now + wait_s

    def _mend_source(self, snapshot: objects.Snapshot) -> bool:
        """Complete the list of the master's node; return whether that succeeded."""
        self._known = self._recorded_keys(snapshot)
        if not self._known:
            return False
        done = []
        for node in sorted(snapshot.nodes.values(), key=lambda each: each.name):
            if (
                node.master_capable
                and not node.offline
                and node.uuid not in self._known
            ):
                _log.warning("SSH keys: the master has none of node %s", node.name)
                done.append(self._locked(node.uuid, self._spread))
            elif not node.master_capable and node.uuid in self._known:
                _log.warning("SSH keys: the master has one of node %s", node.name)
                done.append(self._locked(node.uuid, self._withdraw))
        return all(done)

    def _mend_nodes(self, snapshot: objects.Snapshot) -> bool:
        """Mend what the other lists and authorised keys have; return whether all is."""
        done, revoked = [], set()
        for uuid, lines in self._ask(snapshot).items():
            name = snapshot.nodes[uuid].name
            _log.warning("SSH keys: node %s: %s", name, _shown(lines))
            owners = {_former_candidate(snapshot, line) for line in lines} - {None}
            revoked |= owners
            if len(owners) < len(lines):
                done.append(self._locked(uuid, self._send))
        done += [
            self._locked(uuid, self._revoke) for uuid in sorted(filter(None, revoked))
        ]
        return all(done)

    def _ask(self, snapshot: objects.Snapshot) -> dict[str, list[str]]:
        """Return what is wrong with the keys on nodes, by UUID."""
        online = [node for node in snapshot.nodes.values() if not node.offline]
        capable = sorted(node.uuid for node in online if node.master_capable)
        question: dict[str, Any] = {
            nodeverify.NV_SSH_SETUP: candidate_role.key_owners(snapshot)
        }
        lacking = self._lacking(snapshot, capable, question)
        others = sorted(node.uuid for node in online if not node.master_capable)
        if others and (keys := self._candidate_keys(snapshot)):
            question = {nodeverify.NV_SSH_AUTHORISED: keys}
            lacking |= self._lacking(snapshot, others, question)
        return lacking

    def _recorded_keys(self, snapshot: objects.Snapshot) -> dict[str, list[str]]:
        """Return the public keys that the master's node has, by UUID."""
        key, master = nodeverify.NV_SSH_CANDIDATE_KEYS, snapshot.cluster.master_node
        answers = self._verify(snapshot, [master], {key: sorted(snapshot.nodes)})
        return dict(answers.get(master, {}).get(key) or {})

    def _candidate_keys(self, snapshot: objects.Snapshot) -> dict[str, list[str]]:
        """Return the public keys of candidates that the master's node has, by name."""
        nodes = (snapshot.nodes.get(uuid) for uuid in self._known)
        return {
            node.name: self._known[node.uuid]
            for node in nodes
            if node is not None and node.master_candidate
        }

    def _lacking(
        self,
        snapshot: objects.Snapshot,
        nodes: Sequence[str],
        question: Mapping[str, Any],
    ) -> dict[str, list[str]]:
        """Return the lines about keys that can be mended, by UUID."""
        return {
            uuid: lines
            for uuid, answer in self._verify(snapshot, nodes, question).items()
            if (
                lines := [
                    line
                    for key in question
                    for line in answer.get(key) or []
                    if line.startswith(_MENDABLE)
                ]
            )
        }

    def _verify(
        self,
        snapshot: objects.Snapshot,
        nodes: Sequence[str],
        question: Mapping[str, Any],
    ) -> dict[str, dict[str, Any]]:
        """Return the usable parts of the answers of nodes, by UUID."""
        name = snapshot.cluster.cluster_name
        answers = self._deps.rpc.call_nodes(
            nodes, calls.node_verify(question, name, {})
        )
        return {
            uuid: node_answer.clean(answer.payload)[0]
            for uuid, answer in answers.items()
            if not answer.failed
        }

    def _send(self, uuid: str) -> None:
        node = self._deps.config.snapshot().nodes.get(uuid)
        if node is not None and not node.offline:
            candidate_role.add_ssh_key(self._context(), node, get_public=True)
            _log.info("SSH keys: node %s was sent those that it lacked", node.name)

    def _spread(self, uuid: str) -> None:
        """Fetch a node's key, which is not recorded, and spread it."""
        node = self._deps.config.snapshot().nodes.get(uuid)
        if node is not None and node.master_capable and not node.offline:
            candidate_role.add_ssh_key(
                self._context(),
                node,
                to_authorized=node.master_candidate,
                to_public=True,
                get_public=True,
            )

    def _withdraw(self, uuid: str) -> None:
        """Remove the key of a node that can never be a candidate."""
        node = self._deps.config.snapshot().nodes.get(uuid)
        if node is not None and not node.master_capable:
            candidate_role.remove_ssh_key(
                self._context(), node, from_authorized=True, from_public=True
            )

    def _revoke(self, uuid: str) -> None:
        """Take the right to log in from a node that is no candidate any more."""
        node = self._deps.config.snapshot().nodes.get(uuid)
        if node is not None and not node.master_candidate:
            candidate_role.remove_ssh_key(self._context(), node, from_authorized=True)


def _former_candidate(snapshot: objects.Snapshot, line: str) -> str | None:
    """Return the node whose key a node still authorises; None for other lines."""
    text = line.removeprefix(nodeverify.STILL_AUTHORISED)
    if text == line:
        return None
    uuid = snapshot.names("nodes").get(text.strip().partition(",")[0])
    is_former = uuid is not None and not snapshot.nodes[uuid].master_candidate
    return uuid if is_former else None


def _roles(snapshot: objects.Snapshot) -> list[list[Any]]:
    """Return what decides which keys a node has, and whether it gets any."""
    return [
        [*row, snapshot.nodes[row[0]].offline]
        for row in candidate_role.key_owners(snapshot)
    ]


def _shown(lines: Sequence[str]) -> str:
    """Return a node's lines for the log, which they must not fill."""
    texts = [ascii(line[:_MAX_CHARACTERS])[1:-1] for line in lines[:_MAX_LINES]]
    more = len(lines) - len(texts)
    return "; ".join([*texts, *([f"{more} more"] if more else [])])
