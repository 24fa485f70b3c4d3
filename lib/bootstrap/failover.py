"""Move of the master role to this node, without the help of the old master.

The administrator decides that the old master is down; the code does not. A majority of
the candidates promises this node a new term before copies are compared and before
anything is changed. An old master that still runs can then neither write nor call
nodes. A failover that was interrupted between two steps can be repeated.
"""

import contextlib
import dataclasses
import logging
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from ganeti import store
from ganeti.automation import new_master
from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.base.constants import ecodes
from ganeti.base.errors import refusal
from ganeti.base.net import netutils
from ganeti.base.pathutils import Paths
from ganeti.base.process import Runner
from ganeti.base.tls import authority
from ganeti.bootstrap.jobs import wait_until
from ganeti.bootstrap.options import Feedback
from ganeti.decisions.quorum import Term
from ganeti.master import config
from ganeti.model.objects import Node, Snapshot
from ganeti.node.services import Services
from ganeti.operations import master_ip
from ganeti.protocols import luxi, rpc
from ganeti.protocols.rpc import calls, voting
from ganeti.protocols.ssconf import SimpleStore
from ganeti.store import Document, choice
from ganeti.store.copies import election
from ganeti.store.copies.election import Survey
from ganeti.store.etcd import Claim, Servers
from ganeti.store.numbers import LAST_JOB

_log = logging.getLogger(__name__)

#: Seconds to wait until the master's address disappears, and until it is back.
_ADDRESS_S: Final = 30.0
#: Seconds to wait for the answer to one call; the old master may be frozen.
_CALL_S: Final = 15.0
#: Seconds for one attempt to reach the master's address.
_PING_S: Final = 2.0
#: Seconds to wait for an answer of the master daemon.
_LUXI_S: Final = 5.0
#: In a cluster of two candidates, the majority consists of both.
_TWO: Final = 2
_OWNER: Final = "master-failover"


@dataclasses.dataclass(frozen=True)
class FailoverOptions:
    """Decisions of the administrator.

    Attributes:
        no_voting: continue without asking the other nodes.
        ignore_offline_nodes: nodes that are marked offline need not answer.
        accept_loss: continue although some copies cannot be read which may contain
            acknowledged changes.
    """

    no_voting: bool = False
    ignore_offline_nodes: bool = True
    accept_loss: bool = False


@dataclasses.dataclass(frozen=True)
class _Plan:
    """The new and the old master.

    Attributes:
        snapshot: this node's copy of the configuration.
        own: this node, the new master.
        old: the old master; None if all records name this node, because an earlier
            failover was interrupted after they were written.
        silent: UUIDs of nodes that did not answer; they are not called again.
    """

    snapshot: Snapshot
    own: Node
    old: Node | None
    silent: frozenset[str] = frozenset()

    @property
    def old_name(self) -> str:
        """The old master's name for messages."""
        return self.old.name if self.old is not None else "unknown"


class _Elected(NamedTuple):
    """The term that this node won.

    ``accept_loss``: the election went on without a majority of copies.
    """

    term: Term
    accept_loss: bool


def fail_over(
    paths: Paths,
    process: Runner,
    clock: Clock,
    options: FailoverOptions,
    *,
    feedback: Feedback,
) -> bool:
    """Make this node the master.

    Args:
        paths: of this node.
        process: runs programs.
        clock: source of time stamps; waits.
        options: decisions of the administrator.
        feedback: called with each step and each warning.

    Returns:
        True without warnings. False if the role has moved, but the master's address or
        the master daemon did not behave as expected; the warnings explain it.

    Raises:
        OpPrereqError: a check failed; nothing was changed.
        OpExecError: the configuration could not be changed, or the master daemons did
            not start.
    """
    plan = _plan(paths)
    servers = choice.read(paths)
    # The servers know who leads, so nodes do not vote and copies are not compared.
    if servers is not None:
        return _fail_over_in_etcd(
            plan,
            paths,
            process,
            clock,
            servers=servers,
            is_certain=options.no_voting,
            feedback=feedback,
        )
    silent = _check_nodes(plan, paths, options, feedback)
    with election.asking(paths) as ask:
        elector = election.elector(paths, plan.own.uuid, ask, silent)
        accept_loss = _check_copies(elector.survey(), options, feedback)
        try:
            term, _result = elector.elect(is_takeover=True, accept_loss=accept_loss)
        except (errors.StorageError, errors.TermError) as err:
            raise errors.OpExecError(
                f"{err}. This command can be repeated, on this node or another one"
            ) from err
    # Nobody waits for these once more, neither below nor in the daemons that start.
    plan = dataclasses.replace(plan, silent=silent | elector.silent)
    words = _words(options, plan, accept_loss=accept_loss)
    plan = _take_over(
        plan,
        paths,
        clock,
        _Elected(term, accept_loss),
        needs_votes=not words,
        feedback=feedback,
    )
    runner = rpc.NetworkRunner(lambda: plan.snapshot, paths, None)
    try:
        # Before the start, which activates the address of the cluster here: two
        # machines must not have it.
        _stop_old(plan, runner, feedback)
        is_clean = _wait_for_old_address(plan, clock, feedback)
    finally:
        runner.close()
    feedback("Starting the master daemons on this node")
    # Not by a call of the node daemon, which has no place for these options.
    Services(paths, process).start_master(*words, silent=plan.silent)
    return _wait_for_master(plan, paths, clock, feedback) and is_clean


def plan(paths: Paths, options: FailoverOptions, *, feedback: Feedback) -> list[str]:
    """Do the checks of `fail_over`; return its steps as text, in order.

    Raises:
        OpPrereqError: a check failed.
    """
    failover = _plan(paths)
    if choice.is_etcd(paths):
        return [
            (
                f"take the leadership in etcd from {failover.old_name}, which ends its"
                " master daemon"
            ),
            *_common_steps(failover),
        ]
    silent = _check_nodes(failover, paths, options, feedback)
    with election.asking(paths) as ask:
        elector = election.elector(paths, failover.own.uuid, ask, silent)
        _check_copies(elector.survey(), options, feedback)
    return [
        "get the promise of a new term from a majority of the master candidates",
        "adopt their newest copy of the configuration and the jobs",
        *_common_steps(failover),
    ]


def _common_steps(plan: _Plan) -> list[str]:
    old, own = plan.old_name, plan.own.name
    address = plan.snapshot.cluster.master_ip
    return [
        f"have the ssconf files of the online nodes name {own} as the master",
        f"record {own} as the master in the configuration, under the new term",
        "if the job queue is drained, let it accept jobs again",
        (
            f"if {old} answers, deactivate the address {address} there and stop its"
            " master daemons"
        ),
        f"wait until {address} does not answer",
        f"start the master daemons on {own}, which activates {address}",
    ]


def _fail_over_in_etcd(
    plan: _Plan,
    paths: Paths,
    process: Runner,
    clock: Clock,
    *,
    servers: Servers,
    is_certain: bool,
    feedback: Feedback,
) -> bool:
    """Move the role by the leadership in etcd; see `fail_over`."""
    feedback(f"Setting master to {plan.own.name}, old master: {plan.old_name}")
    leading = new_master.lead(
        paths,
        clock,
        servers,
        plan.own,
        Claim(is_forced=True),
        is_certain=is_certain,
    )
    try:
        with leading as (opened, _):
            if opened.read("meta", "drain") is not None:
                feedback("The job queue was drained; it accepts jobs again")
                opened.commit([Document("meta", "drain", None)])
            plan = dataclasses.replace(plan, snapshot=opened.snapshot())
            runner = rpc.NetworkRunner(opened.latest, paths, opened.term)
            try:
                _send_name(plan, plan.own.name, runner, feedback)
                _stop_old(plan, runner, feedback)
                is_clean = _wait_for_old_address(plan, clock, feedback)
            finally:
                runner.close()
            feedback("Starting the master daemons on this node")
            Services(paths, process).start_master(silent=plan.silent)
            return _wait_for_master(plan, paths, clock, feedback) and is_clean
    except (errors.StorageError, errors.TermError) as err:
        raise errors.OpExecError(
            f"{err}. This command can be repeated, on this node or another one"
        ) from err


# Checks
def _plan(paths: Paths) -> _Plan:
    """Read this node's copy of the configuration and find the two nodes."""
    try:
        snapshot = store.read_snapshot(paths.store_db)
    except errors.GenericError as err:
        raise errors.OpPrereqError(
            f"the copy of the configuration on this node cannot be used: {err}",
            ecodes.ECODE_STATE,
        ) from err
    uuid = snapshot.uuid_of("nodes", paths.hostname)
    if uuid is None:
        raise errors.OpPrereqError(
            f"{paths.hostname} is not a node of the configuration", ecodes.ECODE_STATE
        )
    own = snapshot.nodes[uuid]
    names = [snapshot.nodes[snapshot.cluster.master_node].name]
    # The copy and the ssconf files name different nodes after a failover that was
    # interrupted between the two.
    names.append(SimpleStore(paths).master_node())
    old_name = next((name for name in names if name != own.name), None)
    # A node that is recorded and serves nobody goes on: an earlier failover ended
    # before the daemons had started.
    if own.name in names and is_serving(paths):
        raise refusal(
            f"{own.name} is the master already; run this on the node that is to become"
            " the master"
        )
    if not own.master_candidate:
        names = sorted(n.name for n in snapshot.nodes.values() if n.master_candidate)
        raise errors.OpPrereqError(
            f"{own.name} is not a master candidate; the candidates are"
            f" {', '.join(names)}",
            ecodes.ECODE_STATE,
        )
    new_master.check_start(paths, own)
    old_uuid = None if old_name is None else snapshot.uuid_of("nodes", old_name)
    return _Plan(snapshot, own, snapshot.nodes[old_uuid] if old_uuid else None)


def _check_nodes(
    plan: _Plan, paths: Paths, options: FailoverOptions, feedback: Feedback
) -> frozenset[str]:
    """Check that most nodes answer, and that most answers name the old master.

    Returns:
        UUIDs of the nodes that did not answer.
    """
    if options.no_voting:
        return frozenset()
    # With an ended certificate every node would only count as silent; this error names
    # the command that helps.
    authority.check_ends(paths.server_pem, paths.client_pem)
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
            f" than half are required; repeat this when the other {len(missing)}"
            " answer, or use --no-voting if they are known to be down",
            ecodes.ECODE_ENVIRON,
        )
    counts = Counter(vote for vote in votes.values() if vote)
    winner, number = counts.most_common(1)[0]
    known = SimpleStore(paths).master_node()
    # After an interrupted failover, some nodes already name this one, perhaps this node
    # alone, whose copy still names the old master; or as many name one as another. Then
    # no node's files prove those of others to be outdated.
    expected = {known, plan.own.name, plan.old_name}
    if winner not in expected and number * 2 > counts.total():
        raise errors.OpPrereqError(
            f"most nodes name {winner} as the master, this node names {known}: its"
            f" ssconf files are outdated; run 'gnt-cluster redist-conf' there",
            ecodes.ECODE_STATE,
        )
    return frozenset(uuid for uuid, vote in votes.items() if vote is None)


def _check_copies(survey: Survey, options: FailoverOptions, feedback: Feedback) -> bool:
    """Check that the readable copies contain every acknowledged change.

    Returns:
        Whether to continue without a majority, which the administrator allowed.
    """
    if survey.is_enough:
        return False
    text = survey.shortage()
    # With two candidates, --no-voting has always implied --accept-loss.
    is_small = len(survey.election.voters.everyone) <= _TWO
    if not options.accept_loss and not (options.no_voting and is_small):
        raise errors.OpPrereqError(
            f"{text}; use --accept-loss to continue with the newest readable copy",
            ecodes.ECODE_STATE,
        )
    feedback(f"Warning: {text}; continuing")
    return True


# Steps
def _take_over(
    plan: _Plan,
    paths: Paths,
    clock: Clock,
    elected: _Elected,
    *,
    needs_votes: bool,
    feedback: Feedback,
) -> _Plan:
    """Have the nodes name the new master, then record it in the configuration.

    Args:
        plan: the two nodes.
        paths: of this node.
        clock: source of time stamps.
        elected: the new term.
        needs_votes: the new master daemon asks the nodes who is master.
        feedback: called with warnings.

    Returns:
        The plan with the changed configuration.
    """
    feedback(f"Setting master to {plan.own.name}, old master: {plan.old_name}")
    # The store sends to the copies by the runner, and the runner needs the term of the
    # store; so the runner is set later.
    late, higher = rpc.LateRunner(), config.HigherNumbers()
    opened = store.open_master(
        paths.store_db,
        replicate=late,
        clock=clock,
        node=plan.own.uuid,
        term=elected.term,
        settings=store.CommitSettings(
            accept_loss=elected.accept_loss,
            # The master daemon would wait for a majority; a command reports that there
            # is none. Nodes that were just asked are not waited for a second time.
            is_patient=False,
            on_higher=higher.note,
            silent=plan.silent,
        ),
    )
    runner = rpc.NetworkRunner(opened.latest, paths, opened.term)
    try:
        late.set(runner)
        cfg = config.Config(opened, clock)
        with (
            # The names in files come before the store: once the store names a node
            # whose file does not, no master daemon starts on either node.
            new_master.recorded_here(paths, opened.snapshot(), plan.own),
            _named_by_others(plan, runner, needs_votes=needs_votes, feedback=feedback),
            _recording(cfg, opened, elected) as edit,
        ):
            edit.update_cluster(master_node=plan.own.uuid)
        # Only an acknowledged group of the new term makes the adopted history safe:
        # rule 4 of `ganeti.decisions.quorum`.
        opened.commit([Document("meta", "term", str(elected.term).encode())])
        if opened.read("meta", "drain") is not None:
            feedback("The job queue was drained; it accepts jobs again")
            opened.commit([Document("meta", "drain", None)])
        snapshot = opened.snapshot()
        _leave_out(cfg, opened, higher)
    except (errors.StorageError, errors.TermError) as err:
        raise errors.OpExecError(
            f"the new master was not recorded by a majority of the candidates: {err}."
            " This command can be repeated, on this node or another one"
        ) from err
    finally:
        opened.close()
        runner.close()
    return dataclasses.replace(plan, snapshot=snapshot)


def _recording(
    cfg: config.Config, opened: store.Engine, elected: _Elected
) -> contextlib.AbstractContextManager[config.Edit]:
    """Return the edit that is the first group of the new term."""
    if not elected.accept_loss:
        return cfg.edit(_OWNER)
    # In the first group of the term: if a later commit were cut off, the next failover
    # would give ids of lost jobs to other jobs.
    loss = config.higher_numbers
    return cfg.edit(_OWNER, skipped=loss.SKIPPED_SERIALS, also=[loss.job_ids(opened)])


def _leave_out(
    cfg: config.Config, opened: store.Engine, higher: config.HigherNumbers
) -> None:
    """Leave out numbers that the copies replaced by this command may have shown."""
    higher.close()
    while (numbers := higher.take()) is not None:
        opened.leave_out(numbers.revision)
        cfg.leave_out(numbers.serial)
        last_job = int(opened.read("meta", LAST_JOB) or b"0")
        last_job = max(last_job, numbers.last_job)
        opened.commit([Document("meta", LAST_JOB, b"%d" % last_job)])


@contextlib.contextmanager
def _named_by_others(
    plan: _Plan, runner: rpc.Runner, *, needs_votes: bool, feedback: Feedback
) -> Iterator[None]:
    """Have the other nodes name the new master; the former one if the block fails.

    Raises:
        OpExecError: too few would vote for the new master; the block was not entered.
    """
    # This node is counted without a call: its files name it already, see
    # `recorded_here`.
    named = 1 + _send_name(plan, plan.own.name, runner, feedback)
    try:
        if needs_votes:
            _require_votes(plan, named)
        yield
    except BaseException:
        if plan.old is not None:
            _send_name(plan, plan.old.name, runner, _log.warning)
        raise


def _require_votes(plan: _Plan, named: int) -> None:
    # Of all nodes: the vote of the master daemon counts those that are offline, too.
    if named * 2 <= len(plan.snapshot.nodes):
        raise errors.OpExecError(
            f"only {named} of {len(plan.snapshot.nodes)} nodes can record"
            f" {plan.own.name} as the master, more than half are required; the"
            " configuration was not changed, and this command can be repeated"
        )


def _send_name(plan: _Plan, master: str, runner: rpc.Runner, feedback: Feedback) -> int:
    """Have the other online nodes name a master; return how many did.

    They get their other files from the master daemon: a large list must not delay or
    stop the move of the role.
    """
    online = []
    for uuid, node in plan.snapshot.nodes.items():
        if node.offline or uuid == plan.own.uuid:
            continue
        if uuid in plan.silent:
            feedback(
                f"Warning: node {node.name} does not answer; its ssconf files are"
                " written later"
            )
        else:
            online.append(uuid)
    values = {new_master.KEY: master}
    answers = runner.call_nodes(
        online, calls.write_ssconf_files(values), timeout_s=_CALL_S
    )
    failed = [answer for answer in answers.values() if answer.failed]
    for answer in failed:
        feedback(f"Warning: {answer.describe('cannot record the master')}")
    return len(answers) - len(failed)


def _stop_old(plan: _Plan, runner: rpc.Runner, feedback: Feedback) -> None:
    """Deactivate the address and stop the daemons of the old master, if it answers."""
    if plan.old is None or plan.old.uuid not in plan.snapshot.nodes:
        return
    if plan.old.uuid in plan.silent:
        feedback(f"Warning: the old master {plan.old.name} does not answer")
        return
    cluster = plan.snapshot.cluster
    steps = (
        (
            "cannot deactivate the master's address",
            runner.call_node(
                plan.old.uuid,
                calls.node_deactivate_master_ip(
                    master_ip.parameters(cluster), cluster.use_external_mip_script
                ),
                timeout_s=_CALL_S,
            ),
        ),
        (
            "cannot stop the master daemons",
            runner.call_node(
                plan.old.uuid, calls.node_stop_master(), timeout_s=_CALL_S
            ),
        ),
    )
    for problem, answer in steps:
        if answer.failed:
            feedback(f"Warning: {answer.describe(problem)}")


def _wait_for_old_address(plan: _Plan, clock: Clock, feedback: Feedback) -> bool:
    address, port = plan.snapshot.cluster.master_ip, rpc.node_port()

    def is_gone() -> bool:
        # On a virtual node every address refuses connections, so only an accepted one
        # shows that the address is in use.
        return not netutils.tcp_ping(
            address, port, timeout_s=_PING_S, live_port_needed=True
        )

    if wait_until(is_gone, clock, timeout_s=_ADDRESS_S):
        return True
    feedback(f"Warning: the master's address {address} still answers; continuing")
    return False


def _words(options: FailoverOptions, plan: _Plan, *, accept_loss: bool) -> list[str]:
    """Return the options with which the master daemon starts.

    The majority that was there a moment ago may be gone. Only with accepted loss the
    daemon goes on without it. The daemon counts offline nodes, which were not asked
    here: if they are half of all, it would not start after the role has moved.
    """
    if accept_loss:
        return ["--no-voting", "--yes-do-it"]
    nodes = plan.snapshot.nodes.values()
    present = [n for n in nodes if not n.offline and n.uuid not in plan.silent]
    if options.no_voting or len(present) * 2 <= len(nodes):
        return ["--no-voting", "--require-majority", "--yes-do-it"]
    return []


def _wait_for_master(
    plan: _Plan, paths: Paths, clock: Clock, feedback: Feedback
) -> bool:
    """Wait until the master daemon and the master's address answer."""
    if not wait_until(
        lambda: is_serving(paths, timeout_s=_PING_S), clock, timeout_s=_ADDRESS_S
    ):
        feedback("Warning: the master daemon does not answer")
        return False
    address, port = plan.snapshot.cluster.master_ip, rpc.node_port()

    def is_there() -> bool:
        return netutils.tcp_ping(address, port, timeout_s=_PING_S)

    if wait_until(is_there, clock, timeout_s=_ADDRESS_S):
        return True
    feedback(f"Warning: the master's address {address} does not answer")
    return False


def is_serving(paths: Paths, *, timeout_s: float = _LUXI_S) -> bool:
    """Return whether the master daemon on this node answers a query."""
    client = luxi.Client.of_node(
        paths, connect_timeout_s=timeout_s, timeout_s=timeout_s, retries=0
    )
    try:
        with client:
            client.call("QueryConfigValues", [["master_node"]])
    except errors.GenericError:
        return False
    return True
