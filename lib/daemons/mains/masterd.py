"""``ganeti-masterd``: the master daemon's main program.

Opens the effect interfaces, builds `ganeti.daemons.masterd.Service` and ends it on
request. Exit codes: 11 when this node is not the master, 12 when it does not know its
own name.
"""

import argparse
import contextlib
import functools
import gc
import logging
import os
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Final

from ganeti import store
from ganeti.base import clock, errors, pathutils
from ganeti.base.constants import daemons, exitcodes
from ganeti.base.constants.misc import COMMIT_POLICY_AVAILABILITY
from ganeti.base.net import netutils
from ganeti.base.pathutils import Paths
from ganeti.base.tls import authority
from ganeti.daemons import common, masterd
from ganeti.daemons.masterd import startup
from ganeti.master import address_removal, config
from ganeti.model.objects import Snapshot
from ganeti.operations import master_ip
from ganeti.protocols import rpc
from ganeti.protocols.rpc import calls, voting
from ganeti.protocols.ssh import host_keys
from ganeti.store import Engine, choice
from ganeti.store.copies import branches, election
from ganeti.store.etcd import Claim, Servers, open_etcd

_log = logging.getLogger(__name__)

# Notes the copies of candidates that follow a master which a minority elected.

_minority_log: Final = logging.getLogger(__name__)


def note_minority(opened: Engine, paths: Paths, node: str) -> bool:
    """Note the copy of a candidate that refuses this master, if it is a newer one.

    Does not wait for the note to be written; failures are logged. See
    `ganeti.store.copies.branches`.

    Args:
        opened: the store; a majority follows its term.
        paths: of this node.
        node: uuid of the candidate.

    Returns:
        whether the copy is not newer, or was noted by an earlier call: it stops no
        start of the master daemon then.
    """
    snapshot = opened.snapshot()
    if node not in snapshot.nodes:
        return False
    name = snapshot.nodes[node].name
    try:
        # A call with this master's term would be refused.
        with election.asking(paths) as ask:
            answer = ask(snapshot, [node], calls.store_status())[node]
        if answer.fail_msg is not None:
            raise errors.StorageError(answer.fail_msg)
        digest = branches.newer(
            answer.payload, snapshot.cluster.uuid, opened.term.number
        )
        if not digest or branches.is_known(opened.read, node, digest):
            return True
        opened.commit_soon([branches.document(node, digest)])
        _minority_log.warning(
            "the copy of the configuration on %s is of a master that a minority"
            " elected; it will not count",
            name,
        )
    except errors.GenericError as err:
        _minority_log.info("the copy of %s was not noted: %s", name, err)
    return False


# Beginning as master with the store in etcd: the lease takes the place of a vote.

#: A master daemon that is stopped in order leaves its lease to end by itself, so that
#: it can be started again before another candidate takes over.
_CLAIM = Claim(gives_back=False)


def open_store(
    paths: Paths,
    time: clock.Clock,
    servers: Servers,
    on_deposed: Callable[[], None],
) -> tuple[store.Engine, rpc.NetworkRunner]:
    """Open the store for writing, as its only master.

    Args:
        paths: of this node.
        time: measures the lease.
        servers: of the store.
        on_deposed: called once when the lease is over or another master has begun.

    Raises:
        NotMaster: another node has the lease, or the configuration names another one.
        StorageError: no majority of the servers answers.
        ConfigurationError: the store is damaged, or was moved to a file.
    """
    snapshot = store.read_snapshot(paths.store_db)
    nodes = snapshot.nodes
    own = snapshot.uuid_of("nodes", paths.hostname)
    if own is None:
        raise startup.NotMaster(
            startup.Refusal.FAILED,
            f"{paths.hostname} is not a node of the configuration",
        )
    try:
        opened = open_etcd(
            servers, clock=time, node=own, on_deposed=on_deposed, claim=_CLAIM
        )
    except errors.TermError as err:
        text = str(err)
        for node in nodes.values():
            text = text.replace(node.uuid, node.name)
        raise startup.NotMaster(startup.Refusal.NOT_MASTER, text) from err
    runner = rpc.NetworkRunner(opened.latest, paths, opened.term)
    try:
        startup.check_configuration(opened.snapshot(), paths)
        first = store.Document("meta", "term", str(opened.term).encode())
        opened.commit([first])
    except BaseException:
        opened.close()
        runner.close()
        raise
    return opened, runner


NAME: Final = "ganeti-masterd"
#: Thread switch interval in seconds. With Python's default of 5 ms a commit that wakes
#: many threads waits for them: measured with 100 busy threads and two candidates, the
#: 99th percentile of commits was 77 ms; with this value it was 36 ms.
_SWITCH_S: Final = 0.0005
#: Seconds from the request to stop until the process ends, whatever happens.
#: ``daemon-util stop`` waits for 30.
_STOP_S: Final = 20.0
#: Longest time that a deposed master spends on the removal of the cluster's address.
_DROP_S: Final = 2.0
#: Time for answers on their way to clients.
_FAREWELL_S: Final = 0.2
#: Pause until numbers that could not be left out are tried again.
_RETRY_NUMBERS_S: Final = 1.0
_WARNING: Final = """\
The master daemon is about to start without asking the other nodes who is master.
If another master still runs, this can damage the cluster. Type YES to go on: """


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the daemon's options."""
    parser = common.parser(NAME)
    parser.add_argument(
        "--no-voting", action="store_true", help="do not ask the other nodes"
    )
    parser.add_argument(
        "--yes-do-it", action="store_true", help="do not ask the operator either"
    )
    parser.add_argument(
        "--require-majority",
        action="store_true",
        help="with --no-voting: still need a majority of the candidates' copies",
    )
    startup.add_option(parser)
    return parser


def _confirm(options: argparse.Namespace) -> None:
    """Ask the operator to confirm a start without vote.

    Raises:
        StartError: the operator did not confirm.
    """
    if not options.no_voting or options.yes_do_it:
        return
    if not sys.stdin.isatty():
        raise common.StartError("--no-voting needs --yes-do-it without a terminal")
    sys.stdout.write(_WARNING)
    sys.stdout.flush()
    if sys.stdin.readline().strip() != "YES":
        raise common.StartError("not confirmed")


def _check(
    options: argparse.Namespace,
    paths: pathutils.Paths,
    time: clock.Clock,
    silent: set[str],
) -> None:
    """Check that this node may be master.

    Args:
        options: of the command line.
        paths: of this node.
        time: for pauses.
        silent: nodes that have just not answered; afterwards, those that did not
            answer in the vote.

    Raises:
        StartError: this node may not be master.
    """
    try:
        common.check_user(options, 0 if not paths.is_virtual else os.geteuid())
        startup.check_own_files(paths)
        snapshot = store.read_snapshot(paths.store_db)
        if choice.read(paths) is not None:
            # The servers decide who is master, and have the newest configuration.
            return
        startup.check_configuration(snapshot, paths)
        if not options.no_voting:
            authority.check_ends(paths.server_pem, paths.client_pem)
            absent = _vote(snapshot, paths, time, frozenset(silent))
            silent.clear()
            silent |= absent
    except startup.NotMaster as err:
        raise common.StartError(str(err), startup.EXIT_CODES[err.why]) from err
    except errors.ConfigurationError as err:
        raise common.StartError(
            f"the configuration cannot be used: {err}. Unless the file can be put"
            f" right, {startup.ANOTHER_COPY}"
        ) from err
    except errors.X509CertError as err:
        raise common.StartError(f"certificate {err.args[0]}: {err.args[-1]}") from err
    except errors.GenericError as err:
        raise common.StartError(f"the configuration cannot be used: {err}") from err


def _vote(
    snapshot: Snapshot,
    paths: pathutils.Paths,
    time: clock.Clock,
    silent: frozenset[str],
) -> frozenset[str]:
    """Have the nodes vote; return those that did not answer, now or just before."""
    if len(snapshot.nodes) == 1:
        return frozenset()
    last: dict[str, str | None] = {}
    refusing: set[str] = set()

    def gather(nodes: Collection[str]) -> dict[str, str | None]:
        return voting.gather(runner, nodes, refusing)

    def ask() -> dict[str, str | None]:
        last.update(asked())
        return last

    def pause(seconds: float) -> None:
        _pause(time, seconds)

    runner = rpc.NetworkRunner(lambda: snapshot, paths, None)
    asked = startup.asking(gather, snapshot.nodes, paths.hostname, silent)
    try:
        startup.vote(ask, paths.hostname, pause=pause, refusing=refusing)
    finally:
        runner.close()
    return frozenset(node for node, vote in last.items() if vote is None)


def _elect(
    options: argparse.Namespace,
    paths: pathutils.Paths,
    time: clock.Clock,
    silent: frozenset[str],
) -> startup.Elected:
    """Win a term for this node.

    Raises:
        NotMaster: the configuration names another node by now.
        StartError: no majority promised it, or this node's copy has lost changes.
    """
    snapshot = store.read_snapshot(paths.store_db)
    # The copy may have been brought up to date by a new master since the first look.
    startup.check_configuration(snapshot, paths)
    with election.asking(paths) as ask:
        return startup.elect(
            lambda skip: election.elector(
                paths, snapshot.cluster.master_node, ask, skip
            ),
            silent,
            accept_loss=options.no_voting and not options.require_majority,
            pause=lambda seconds: _pause(time, seconds),
        )


def _pause(time: clock.Clock, seconds: float) -> None:
    time.wait(threading.Event(), seconds)


class _Running:
    """The service with the effect interfaces that `_start` has opened."""

    def __init__(
        self,
        inner: masterd.Service,
        runner: rpc.NetworkRunner,
        opened: store.Engine,
        time: clock.Clock,
    ) -> None:
        self._clock = time
        self._inner = inner
        self._runner = runner
        self._store = opened

    def stop(self) -> None:
        """End the service, then close the effect interfaces.

        A deposed master ends at once: its jobs cannot be finished any more. Opcodes
        that do not end in time end with the process.
        """
        if self._store.is_over():
            common.end_now(exitcodes.EXIT_NOTMASTER)
        threading.Thread(target=self._end_late, name="stop-limit", daemon=True).start()
        if not self._inner.stop():
            common.end_now(exitcodes.EXIT_SUCCESS)
        self._runner.close()

    def _end_late(self) -> None:
        """End the process if it has not ended in time, for example on a hung disk."""
        _pause(self._clock, _STOP_S)
        _log.error("not stopped within %g s", _STOP_S)
        common.end_now(exitcodes.EXIT_SUCCESS)


def _open_store(
    paths: pathutils.Paths,
    time: clock.Clock,
    elected: startup.Elected,
    *,
    silent: frozenset[str],
    higher: config.HigherNumbers,
    on_deposed: Callable[[], None],
) -> tuple[store.Engine, rpc.NetworkRunner]:
    """Open the store for writing, and have a majority know this term."""
    term, late = elected.term, rpc.LateRunner()
    made: list[store.Engine] = []

    def is_lenient() -> bool:
        return (
            bool(made)
            and made[0].snapshot().cluster.commit_policy == COMMIT_POLICY_AVAILABILITY
        )

    def note_branch(node: str) -> bool:
        return bool(made) and note_minority(made[0], paths, node)

    opened = store.open_master(
        paths.store_db,
        replicate=late,
        clock=time,
        node=term.owner,
        term=term,
        settings=store.CommitSettings(
            is_lenient,
            accept_loss=elected.is_forced,
            on_deposed=on_deposed,
            on_higher=higher.note,
            on_refusal=note_branch,
            silent=silent,
        ),
    )
    made.append(opened)
    runner = rpc.NetworkRunner(opened.latest, paths, opened.term)
    runner.on_refusal = opened.note_refusal
    late.set(runner)
    try:
        startup.check_configuration(opened.snapshot(), paths)
        # Nothing of an earlier term counts before a group of this one is acknowledged.
        first = [store.Document("meta", "term", str(term).encode())]
        if elected.is_forced:
            loss = config.higher_numbers
            first += [loss.job_ids(opened), loss.serials(opened)]
        opened.commit(first)
    except BaseException:
        opened.close()
        runner.close()
        raise
    return opened, runner


def _leaving(
    paths: pathutils.Paths, time: clock.Clock, control: common.Control
) -> Callable[[], None]:
    """Return the function that ends a deposed master."""

    def on_deposed() -> None:
        _log.critical("another master has taken over; ending")
        threading.Thread(target=leave, name="leave", daemon=True).start()

    def leave() -> None:
        try:
            if choice.is_etcd(paths):
                # From here on nothing is written and no node is called; clients may
                # still read the reason. ganeti-standby removes the cluster's address.
                _pause(time, _FAREWELL_S)
            else:
                _drop_address(store.read_snapshot(paths.store_db), paths)
        finally:
            control.ask_end(exitcodes.EXIT_NOTMASTER)

    return on_deposed


def _start(
    options: argparse.Namespace,
    paths: pathutils.Paths,
    time: clock.Clock,
    silent: set[str],
    control: common.Control,
) -> common.Service:
    """Win a term, open the effect interfaces and begin to serve."""
    on_deposed = _leaving(paths, time, control)
    _remove_sockets(paths)
    higher = config.HigherNumbers()
    try:
        servers = choice.read(paths)
        if servers is not None:
            opened, runner = open_store(paths, time, servers, on_deposed)
        else:
            mute = frozenset(silent)
            elected = _elect(options, paths, time, mute)
            opened, runner = _open_store(
                paths, time, elected, silent=mute, higher=higher, on_deposed=on_deposed
            )
    except startup.NotMaster as err:
        raise common.StartError(str(err), startup.EXIT_CODES[err.why]) from err
    _log.info("revision %d, term %s", opened.snapshot().revision, opened.term)
    deps = masterd.MasterDeps(
        store=opened,
        rpc=runner,
        clock=time,
        paths=paths,
        lookup_host=functools.partial(netutils.lookup_host, paths=paths),
        tcp_ping=_tcp_ping,
        address_answers=_address_answers,
        rpc_at=runner.at,
        listing_rpc=runner.for_listings(),
        abort_call=runner.abort,
        on_deposed=on_deposed,
    )
    runner.on_silence = deps.queue.note_silence
    try:
        built = masterd.build(deps)
    except BaseException:
        opened.close()
        runner.close()
        raise
    _tune_interpreter()
    _refresh_known_hosts(paths, opened.snapshot())
    built.start()
    threading.Thread(
        target=_leave_out_numbers,
        args=(deps, opened, higher),
        name="higher-numbers",
        daemon=True,
    ).start()
    deps.address.start()
    return _Running(built, runner, opened, time)


def _refresh_known_hosts(paths: pathutils.Paths, snapshot: Snapshot) -> None:
    """Write the nodes' SSH host keys; as a candidate this node may have missed some."""
    try:
        host_keys.refresh(paths.data("known_hosts"), snapshot)
    except OSError as err:
        _log.warning("known_hosts: cannot be written: %s", err)


def _leave_out_numbers(
    deps: masterd.MasterDeps, opened: store.Engine, higher: config.HigherNumbers
) -> None:
    """Leave out numbers that replaced copies may have shown, as they come."""
    while (numbers := higher.take()) is not None:
        try:
            opened.leave_out(numbers.revision)
            deps.config.leave_out(numbers.serial)
            deps.queue.leave_out(numbers.last_job)
        except errors.TermError:
            return
        except errors.StorageError as err:
            _log.warning("numbers are not left out yet: %s", err)
            _pause(deps.clock, _RETRY_NUMBERS_S)
            higher.note(numbers)


def _remove_sockets(paths: pathutils.Paths) -> None:
    """Remove the sockets of a daemon that was killed.

    A socket that exists while the daemon runs means that the daemon serves.
    """
    for path in (paths.query_socket, paths.master_socket, paths.rapi_socket):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _tune_interpreter() -> None:
    """Tune Python for a large configuration that rarely changes."""
    sys.setswitchinterval(_SWITCH_S)
    # The configuration is permanent: a garbage collection of it, which takes 0.2 s with
    # 20,000 instances, would only delay all threads.
    gc.collect()
    gc.freeze()
    # An answer for thousands of instances creates a million tuples and no garbage:
    # collections at the usual rate take longer than the answer.
    gc.set_threshold(*_GC_THRESHOLDS)


def _tcp_ping(address: str, port: int, source: str | None) -> bool:
    return netutils.tcp_ping(address, port, source=source, live_port_needed=True)


def _address_answers(address: str) -> bool:
    # Any port serves: a refusal is an answer, too.
    return netutils.tcp_ping(address, daemons.DAEMONS["ganeti-noded"].port or 0)


def _drop_address(snapshot: Snapshot, paths: pathutils.Paths) -> None:
    """Remove the cluster's address from this machine; a failure is logged.

    Args:
        snapshot: this node's copy, which may name the new master already.
        paths: of this node.
    """
    cluster = snapshot.cluster
    uuid = snapshot.uuid_of("nodes", paths.hostname)
    if uuid is None or netutils.is_loopback(cluster.master_ip):
        return
    own = snapshot.nodes[uuid]
    try:
        result = address_removal.drop(
            paths,
            own.primary_ip,
            master_ip.parameters(cluster),
            is_external=cluster.use_external_mip_script,
            timeout_s=_DROP_S,
        )
    except (errors.GenericError, OSError) as err:
        _log.error("the cluster's address could not be removed: %s", err)
        return
    if result.failed:
        what = "the cluster's address could not be removed from this node"
        _log.error("%s; the watcher tries again", result.describe(what))


#: Containers created between two garbage collections, and the number of collections
#: after which older generations are included.
_GC_THRESHOLDS: Final = (100_000, 20, 50)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the master daemon and return its exit code."""
    options = common.parse(build_parser(), sys.argv[1:] if argv is None else argv)
    try:
        paths = pathutils.from_environ(os.environ)
        _confirm(options)
    except (errors.OpPrereqError, common.StartError) as err:
        sys.stderr.write(f"{NAME}: {err.args[0]}\n")
        return exitcodes.EXIT_FAILURE
    time = clock.SystemClock()
    silent: set[str] = set(options.not_answering)
    return common.run(
        common.Daemon(
            name=NAME,
            check=lambda: _check(options, paths, time, silent),
            start=functools.partial(_start, options, paths, time, silent),
        ),
        options,
        paths,
    )


if __name__ == "__main__":
    sys.exit(main())
