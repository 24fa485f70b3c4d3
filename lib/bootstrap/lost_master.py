"""Renewal of certificates without the master: who may do it, and what is given up.

The copies of a majority of the master candidates have every acknowledged change. If
candidates are lost for good, the administrator names them: this node goes on with the
copies of all others, marks the named ones offline and leaves out the numbers that they
may have used. The record of that is in the configuration, in the first group of the new
term, so a candidate that returns does not count any more.
"""

import contextlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from ganeti import store
from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.base.constants import ecodes
from ganeti.base.errors import refusal
from ganeti.base.pathutils import Paths
from ganeti.bootstrap import store_access
from ganeti.decisions import quorum
from ganeti.master import config
from ganeti.model.objects import Snapshot
from ganeti.store import Document, choice
from ganeti.store.copies import voters
from ganeti.store.etcd import Gateway, Servers
from ganeti.store.etcd.reader import Reader

_OPTION: Final = "--lost-candidates"


def caller(paths: Paths) -> str:
    """Return the UUID of this node.

    Raises:
        OpPrereqError: it is not a master candidate, or the store is in etcd.
    """
    snapshot = store.read_snapshot(paths.store_db)
    servers = choice.read(paths)
    if servers is not None:
        # There the renewal would take the leadership from a master that works.
        raise _refused_in_etcd(servers, snapshot)
    uuid = snapshot.uuid_of("nodes", paths.hostname)
    if uuid is None or not snapshot.nodes[uuid].master_candidate:
        raise errors.OpPrereqError(
            f"{paths.hostname} is not a master candidate", ecodes.ECODE_STATE
        )
    return uuid


def _refused_in_etcd(servers: Servers, snapshot: Snapshot) -> errors.OpPrereqError:
    """Return why a node leaves the renewal to the master that etcd knows."""
    gateway = Gateway(servers)
    try:
        leading = Reader(gateway).look().leading
    except errors.GenericError as err:
        todo = f"this needs a majority of its servers: {err}"
    else:
        if leading is None:
            todo = "start ganeti-standby on a candidate"
        else:
            node = snapshot.nodes.get(leading.owner)
            todo = (
                f"{leading.owner if node is None else node.name} is the master; run the"
                " command there, without this option"
            )
    finally:
        gateway.close()
    return errors.OpPrereqError(
        "--without-master: the store is in etcd, with which a master candidate becomes"
        f" the master by itself: {todo}",
        ecodes.ECODE_STATE,
    )


def lost_candidates(paths: Paths, given: Sequence[str], own: str) -> dict[str, str]:
    """Return the candidates that the administrator has given up: UUID -> name.

    Nodes that are offline are left out, because an earlier run of the command gave them
    up; unless it was interrupted before they ceased to count.

    Args:
        paths: of this node.
        given: names or UUIDs.
        own: UUID of this node.

    Raises:
        OpPrereqError: a name is not that of another master candidate.
    """
    snapshot, counting = _read(paths)
    lost = {}
    for word in given:
        node = snapshot.nodes.get(snapshot.uuid_of("nodes", word) or word)
        if node is None:
            problem = "unknown node"
        elif node.uuid == own:
            problem = "is this node"
        # Before the flag `offline`: an interrupted run has set the flag, and the copy
        # of the node still counts until the candidate set is settled.
        elif node.uuid in counting.everyone:
            lost[node.uuid] = node.name
            continue
        elif node.offline:
            continue
        else:
            problem = "is not a master candidate"
        raise refusal(f"{_OPTION}: {word}: {problem}")
    return lost


def _read(paths: Paths) -> tuple[Snapshot, quorum.Voters]:
    """Return the configuration, and the candidates whose copies count."""
    with contextlib.closing(store.Follower(paths.store_db)) as copy:
        snapshot, stored = copy.snapshot(), copy.read("meta", voters.KEY)
    if stored is None:
        return snapshot, quorum.Voters(voters.candidates_of(snapshot))
    return snapshot, voters.decode(stored)


def check_copies(
    paths: Paths,
    own: str,
    names: Collection[str],
    lost: frozenset[str],
    *,
    is_refused: bool,
) -> None:
    """Refuse to take nodes from a master that the others may follow.

    Without a majority this node could not be recorded, and the nodes with its new files
    would refuse the calls of the master. If the certificates have ended, they do so
    anyway.

    Args:
        paths: of this node.
        own: its UUID.
        names: of the other nodes that can be reached.
        lost: UUIDs of candidates that were given up.
        is_refused: nodes refuse the calls of all others.

    Raises:
        OpPrereqError: fewer than a majority of the master candidates can be reached,
            and not all others were given up; or they were without need.
    """
    snapshot, counting = _read(paths)
    candidates = {
        uuid: snapshot.nodes[uuid].name if uuid in snapshot.nodes else uuid
        for uuid in counting.everyone
    }
    reached = {uuid for uuid, name in candidates.items() if name in names} | {own}
    is_enough = counting.has_majority(reached)
    counts = f"{len(reached)} of {len(candidates)} master candidates can be reached"
    if lost:
        others = sorted(candidates[uuid] for uuid in candidates.keys() - reached - lost)
        # Only then nothing but the copies of lost nodes is missing.
        if not is_enough and not others:
            return
        problem = (
            f"{_OPTION}: nothing has to be given up, since {counts}; leave the option"
            " out"
            if is_enough
            else f"{counts}, and changes may be on {', '.join(others)} alone; start"
            f" these nodes, or name them with {_OPTION}, too, if they are lost for good"
        )
    elif is_enough or is_refused:
        return
    else:
        problem = (
            f"{counts}, wanted {quorum.majority(len(candidates))}, because the"
            " certificates are valid and the others may have a master. Restore the"
            " network, or use 'gnt-cluster master-failover'"
        )
    raise errors.OpPrereqError(f"nothing was changed: {problem}", ecodes.ECODE_STATE)


@contextlib.contextmanager
def recording(
    paths: Paths, clock: Clock, own: str, lost: frozenset[str], owner: str
) -> Iterator[config.Edit]:
    """Win a term for this node, which is no master, and yield its first edit.

    Raises:
        StorageError: copies are missing that were not given up.
        TermError: another node became master.
    """
    with store_access.opened(paths, clock, own, is_takeover=True, lost=lost) as engine:
        loss: dict[str, Any] = {}
        if lost:
            left_out = config.higher_numbers
            loss = {
                "skipped": left_out.SKIPPED_SERIALS,
                "also": [left_out.job_ids(engine)],
            }
        with config.Config(engine, clock).edit(owner, **loss) as edit:
            _give_up(edit, own, lost)
            yield edit
        if lost:
            # The second group settles the candidate set: the lost ones count no more.
            engine.commit([Document("meta", "term", str(engine.term).encode())])


def _give_up(edit: config.Edit, own: str, lost: frozenset[str]) -> None:
    """Mark nodes offline; if the master is one of them, this node is recorded as it."""
    for uuid in sorted(lost):
        node = edit.snapshot.nodes[uuid]
        edit.update(node.replace(offline=True, master_candidate=False, drained=False))
    if edit.snapshot.cluster.master_node in lost:
        edit.update_cluster(master_node=own)
