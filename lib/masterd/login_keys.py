"""SSH keys that nodes lack although their job of distribution has ended.

A change of a node's role is committed before the keys follow it. They may not: the
master is killed between the two, a node does not answer, or two nodes return at once
and each job sees the other one as absent. So nodes are
asked, at the start of the master, after each change of a role and every few minutes,
what their key files lack. Those that could become candidates get the keys of all, the
others those of candidates, which they only authorise.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ganeti import objects
from ganeti.cmdlib import base, candidate_role
from ganeti.constants import nodeverify
from ganeti.mcpu import EngineDeps
from ganeti.verify import node_answer

_log = logging.getLogger(__name__)

#: Seconds between looks if no role changes.
LOOK_S: Final = 300.0
#: Lines of a node that the log shows, and characters of each.
_MAX_LINES: Final = 3
_MAX_CHARACTERS: Final = 200

Locked = Callable[[str, Callable[[str], None]], None]


class LoginKeys:
    """Looks at key files of nodes, and sends what they lack. Of one thread."""

    def __init__(
        self, deps: EngineDeps, context: Callable[[], base.Context], locked: Locked
    ) -> None:
        """Prepare.

        Args:
            deps: those of the master daemon.
            context: returns what the steps of an operation get.
            locked: calls a function with a node's UUID, with the node locked; not at
                all if a job has it.
        """
        self._deps = deps
        self._context = context
        self._locked = locked
        #: Monotonic time of the next look, and the roles at the last one.
        self._next_look = 0.0
        self._seen: Sequence[Sequence[Any]] = ()
        self._changed: Sequence[Sequence[Any]] = ()

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
        self._seen, self._next_look = rows, now + LOOK_S
        for uuid, lines in self._ask(snapshot).items():
            name = snapshot.nodes[uuid].name
            _log.warning("SSH keys: node %s: %s", name, _shown(lines))
            self._locked(uuid, self._send)

    def _ask(self, snapshot: objects.Snapshot) -> dict[str, list[str]]:
        """Return what nodes lack, by UUID."""
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

    def _candidate_keys(self, snapshot: objects.Snapshot) -> dict[str, list[str]]:
        """Return the public keys of candidates that the master's node has, by name."""
        names = {
            node.uuid: node.name
            for node in snapshot.nodes.values()
            if node.master_candidate
        }
        key, master = nodeverify.NV_SSH_CANDIDATE_KEYS, snapshot.cluster.master_node
        answers = self._verify(snapshot, [master], {key: sorted(names)})
        known = answers.get(master, {}).get(key) or {}
        return {names[uuid]: lines for uuid, lines in known.items() if uuid in names}

    def _lacking(
        self,
        snapshot: objects.Snapshot,
        nodes: Sequence[str],
        question: Mapping[str, Any],
    ) -> dict[str, list[str]]:
        """Return the lines about keys that nodes lack, by UUID.

        Keys that they should not have stay there however often they are sent others.
        """
        return {
            uuid: lines
            for uuid, answer in self._verify(snapshot, nodes, question).items()
            if (
                lines := [
                    line
                    for key in question
                    for line in answer.get(key) or []
                    if line.startswith(nodeverify.SSH_LACKS)
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
