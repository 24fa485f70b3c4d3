"""Making this node the master, without the help of the present one.

Nothing here decides that the old master is dead: the administrator does. A new term
is taken before anything is changed, so that an old master that still lives can
neither write nor call nodes.
"""

import dataclasses
import logging
from collections import Counter
from typing import Final

from ganeti import config, errors, rpc, store
from ganeti.bootstrap.options import Feedback
from ganeti.bootstrap.waiting import wait_until
from ganeti.clock import Clock
from ganeti.cmdlib import master_ip
from ganeti.constants import ecodes
from ganeti.objects import Node, Snapshot
from ganeti.pathutils import Paths
from ganeti.rpc import voting
from ganeti.ssconf import SimpleStore
from ganeti.store import Document
from ganeti.utils import netutils

_log = logging.getLogger(__name__)

#: Seconds that the master's address has to go and to come.
_ADDRESS_S: Final = 30.0
#: Seconds that nodes have for what is asked of them; the old master may be stuck.
_CALL_S: Final = 15.0
#: Seconds for one attempt to reach it.
_PING_S: Final = 2.0
_OWNER: Final = "master-failover"


@dataclasses.dataclass(frozen=True)
class FailoverOptions:
    """What the administrator decided.

    Attributes:
        no_voting: act without asking the other nodes.
        ignore_offline_nodes: nodes that are marked offline need not answer.
    """

    no_voting: bool = False
    ignore_offline_nodes: bool = True


@dataclasses.dataclass(frozen=True)
class _Plan:
    """Who takes over from whom."""

    snapshot: Snapshot
    own: Node
    old: Node


def fail_over(
    paths: Paths, clock: Clock, options: FailoverOptions, *, feedback: Feedback
) -> bool:
    """Make this node the master.

    Args:
        paths: of this node.
        clock: for time stamps and waiting.
        options: what the administrator decided.
        feedback: told each step and each warning.

    Returns:
        Whether all went well; else warnings have been told, and the role has moved
        nevertheless.

    Raises:
        OpPrereqError: it cannot be done; nothing was changed.
        OpExecError: the configuration could not be changed, or the master daemons did
            not start.
    """
    plan = _plan(paths)
    _check_nodes(plan, paths, options, feedback)
    seen = _check_copies(plan, paths, options, feedback)
    _take_over(plan, paths, clock, seen, feedback)
    runner = rpc.NetworkRunner(lambda: plan.snapshot, paths, None)
    try:
        _stop_old(plan, runner, feedback)
        is_clean = _wait_for_old_address(plan, clock, feedback)
        _start(plan, runner, options, feedback)
    finally:
        runner.close()
    return _wait_for_address(plan, clock, feedback) and is_clean


def plan(paths: Paths, options: FailoverOptions, *, feedback: Feedback) -> list[str]:
    """Check as `fail_over` does; return what it would do, in words and in order.

    Raises:
        OpPrereqError: it cannot be done.
    """
    found = _plan(paths)
    _check_nodes(found, paths, options, feedback)
    _check_copies(found, paths, options, feedback)
    old, own = found.old.name, found.own.name
    address = found.snapshot.cluster.master_ip
    return [
        f"record {own} as the master in the configuration, under a new term",
        "take jobs again, should the queue be drained",
        "write the ssconf files of all online nodes",
        (
            f"take the address {address} down on {old}, and stop the master daemons"
            " there, if it answers"
        ),
        f"wait until {address} is gone",
        f"start the master daemons on {own}, which brings {address} up",
    ]


# Checks
def _plan(paths: Paths) -> _Plan:
    """Read this node's copy of the configuration and find the two nodes."""
    try:
        follower = store.Follower(paths.store_db)
    except errors.GenericError as err:
        raise errors.OpPrereqError(
            f"this node has no usable copy of the configuration: {err}",
            ecodes.ECODE_STATE,
        ) from err
    snapshot = follower.snapshot()
    follower.close()
    uuid = snapshot.uuid_of("nodes", paths.hostname)
    if uuid is None:
        raise errors.OpPrereqError(
            f"{paths.hostname} is not a node of the configuration", ecodes.ECODE_STATE
        )
    own = snapshot.nodes[uuid]
    old = snapshot.nodes[snapshot.cluster.master_node]
    ssconf_master = SimpleStore(paths).master_node()
    if own.name in {old.name, ssconf_master}:
        raise errors.OpPrereqError(
            f"{own.name} is the master already; run this on the node that is to become"
            " the master",
            ecodes.ECODE_INVAL,
        )
    if not own.master_candidate:
        names = sorted(n.name for n in snapshot.nodes.values() if n.master_candidate)
        raise errors.OpPrereqError(
            f"{own.name} is not a master candidate; the candidates are"
            f" {', '.join(names)}",
            ecodes.ECODE_STATE,
        )
    return _Plan(snapshot, own, old)


def _check_nodes(
    plan: _Plan, paths: Paths, options: FailoverOptions, feedback: Feedback
) -> None:
    """Ask the nodes: most must answer, and believe in the old master."""
    if options.no_voting:
        return
    nodes = plan.snapshot.nodes
    runner = rpc.NetworkRunner(lambda: plan.snapshot, paths, None)
    try:
        votes = voting.gather(runner, nodes)
    finally:
        runner.close()
    wanted = [
        uuid
        for uuid, node in nodes.items()
        if not (options.ignore_offline_nodes and node.offline)
    ]
    missing = sorted(nodes[uuid].name for uuid in wanted if votes[uuid] is None)
    if (len(wanted) - len(missing)) * 2 <= len(wanted):
        for name in missing:
            feedback(f"node {name} does not answer")
        raise errors.OpPrereqError(
            f"only {len(wanted) - len(missing)} of {len(wanted)} nodes answer, more"
            " than half must; use --no-voting if the others are known to be down",
            ecodes.ECODE_ENVIRON,
        )
    believed = Counter(vote for vote in votes.values() if vote).most_common(1)[0][0]
    known = SimpleStore(paths).master_node()
    if believed != known:
        raise errors.OpPrereqError(
            f"most nodes call {believed} master, this node {known}: its files are"
            " outdated, let the present master write them anew",
            ecodes.ECODE_STATE,
        )


def _check_copies(
    plan: _Plan, paths: Paths, options: FailoverOptions, feedback: Feedback
) -> int:
    """Check that this node's copy is the newest; return the highest term known."""
    runner = rpc.NetworkRunner(lambda: plan.snapshot, paths, None)
    try:
        found = voting.gather_terms(runner, plan.snapshot.nodes)
    finally:
        runner.close()
    own = found.copies.get(
        plan.own.uuid, voting.Copy(plan.snapshot.term, plan.snapshot.revision)
    )
    newer = found.newer_than(own)
    if newer is None:
        return found.seen
    uuid, copy = newer
    text = (
        f"node {plan.snapshot.nodes[uuid].name} has a newer configuration (term"
        f" {copy.term}, revision {copy.revision}) than this node (term {own.term},"
        f" revision {own.revision})"
    )
    if not options.no_voting:
        raise errors.OpPrereqError(
            f"{text}; make that node the master, or use --no-voting to lose what is"
            " newer there",
            ecodes.ECODE_STATE,
        )
    feedback(f"Warning: {text}; what is newer there will be lost")
    return found.seen


# Steps
def _take_over(
    plan: _Plan, paths: Paths, clock: Clock, seen: int, feedback: Feedback
) -> None:
    """Write the new master into the configuration and tell all nodes."""
    feedback(f"Setting master to {plan.own.name}, old master: {plan.old.name}")
    late = rpc.LateRunner()
    opened = store.open_master(
        paths.store_db, replicate=late, clock=clock, node=plan.own.uuid, seen_term=seen
    )
    runner = rpc.NetworkRunner(opened.snapshot, paths, opened.term)
    try:
        late.set(runner)
        cfg = config.Config(opened, clock)
        with cfg.edit(_OWNER) as edit:
            edit.update_cluster(master_node=plan.own.uuid)
        if opened.read("meta", "drain") is not None:
            feedback("The job queue was drained; jobs are taken again")
            opened.commit([Document("meta", "drain", None)])
        _write_ssconf(opened.snapshot(), runner, feedback)
    except (errors.StorageError, errors.TermError) as err:
        raise errors.OpExecError(f"the configuration was not changed: {err}") from err
    finally:
        opened.close()
        runner.close()


def _write_ssconf(snapshot: Snapshot, runner: rpc.Runner, feedback: Feedback) -> None:
    online = [node.uuid for node in snapshot.nodes.values() if not node.offline]
    answers = runner.call(
        "write_ssconf_files",
        online,
        [config.ssconf_values(snapshot)],
        timeout_s=_CALL_S,
    )
    for answer in answers.values():
        if answer.failed:
            feedback(f"Warning: {answer.describe('cannot tell who is master')}")


def _stop_old(plan: _Plan, runner: rpc.Runner, feedback: Feedback) -> None:
    """Take address and daemons from the old master, if it still answers."""
    cluster = plan.snapshot.cluster
    steps = (
        (
            "cannot take the master's address down",
            runner.call_one(
                "node_deactivate_master_ip",
                plan.old.uuid,
                master_ip.parameters(cluster),
                cluster.use_external_mip_script,
                timeout_s=_CALL_S,
            ),
        ),
        (
            "cannot stop the master daemons",
            runner.call_one("node_stop_master", plan.old.uuid, timeout_s=_CALL_S),
        ),
    )
    for what, answer in steps:
        if answer.failed:
            feedback(f"Warning: {answer.describe(what)}")


def _wait_for_old_address(plan: _Plan, clock: Clock, feedback: Feedback) -> bool:
    address, port = plan.snapshot.cluster.master_ip, rpc.node_port()

    def is_gone() -> bool:
        return not netutils.tcp_ping(
            address, port, timeout_s=_PING_S, live_port_needed=True
        )

    if wait_until(is_gone, clock, timeout_s=_ADDRESS_S):
        return True
    feedback(f"Warning: the master's address {address} is still reachable; going on")
    return False


def _start(
    plan: _Plan, runner: rpc.Runner, options: FailoverOptions, feedback: Feedback
) -> None:
    feedback("Starting the master daemons on this node")
    answer = runner.call_one(
        "node_start_master_daemons", plan.own.uuid, options.no_voting
    )
    answer.unwrap("cannot start the master daemons")


def _wait_for_address(plan: _Plan, clock: Clock, feedback: Feedback) -> bool:
    address, port = plan.snapshot.cluster.master_ip, rpc.node_port()

    def is_there() -> bool:
        return netutils.tcp_ping(address, port, timeout_s=_PING_S)

    if wait_until(is_there, clock, timeout_s=_ADDRESS_S):
        return True
    feedback(f"Warning: the master's address {address} does not answer")
    return False
