"""SSH keys that nodes lack, or still have, when their job of distribution has ended.

A change of a node's role is committed before the keys follow it. They may not: the
master is killed between the two, a node does not answer, or two nodes return at once
and each job sees the other one as absent. So nodes are
asked, at the start of the master, within seconds after each change of a role, and
every few minutes. Those that could become candidates get the keys of all, the others
those of candidates, which they only authorise. Keys of nodes that have lost their role
are withdrawn. The list of the master's node comes first, since all others follow it.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ganeti.base.constants.protocols import nodeverify
from ganeti.decisions.verify import node_answer
from ganeti.model import objects
from ganeti.operations import base, candidate_role
from ganeti.operations.mcpu import EngineDeps

_log = logging.getLogger(__name__)

#: Seconds between looks if no role changes.
LOOK_S: Final = 300.0
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
        answers = self._deps.rpc.call("node_verify", nodes, (question, name, {}))
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
