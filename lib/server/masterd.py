"""``ganeti-masterd``: the master daemon's main program.

Opens the effect interfaces, builds `ganeti.masterd.Service` and ends it on request.
Exit codes: 11 when this node is not the master, 12 when it cannot tell who it is.
"""

import argparse
import contextlib
import functools
import gc
import logging
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Final

from ganeti import clock, errors, masterd, pathutils, rpc, store
from ganeti.cmdlib import master_ip
from ganeti.constants import exitcodes
from ganeti.masterd import service, startup
from ganeti.objects import Snapshot
from ganeti.rpc import voting
from ganeti.server import common
from ganeti.utils import netutils

_log = logging.getLogger(__name__)

NAME: Final = "ganeti-masterd"
_CODES: Final = {
    startup.Refusal.NOT_MASTER: exitcodes.EXIT_NOTMASTER,
    startup.Refusal.NODE_SETUP: exitcodes.EXIT_NODESETUP_ERROR,
    startup.Refusal.FAILED: exitcodes.EXIT_FAILURE,
}
#: Longest time that one thread may keep the others from running. With Python's
#: default of 5 ms a commit that wakes many threads waits for them: measured with 100
#: busy threads and two candidates, 99 % of commits took 77 ms, with this 36 ms.
_SWITCH_S: Final = 0.0005
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
    return parser


def _confirm(options: argparse.Namespace) -> None:
    """Have the operator confirm a start without vote.

    Raises:
        StartError: it was not confirmed.
    """
    if not options.no_voting or options.yes_do_it:
        return
    if not sys.stdin.isatty():
        raise common.StartError("--no-voting needs --yes-do-it without a terminal")
    sys.stdout.write(_WARNING)
    sys.stdout.flush()
    if sys.stdin.readline().strip() != "YES":
        raise common.StartError("not confirmed")


def _read_configuration(paths: pathutils.Paths) -> Snapshot:
    """Return the configuration as it is on disk."""
    follower = store.Follower(paths.store_db)
    try:
        return follower.snapshot()
    finally:
        follower.close()


def _check(
    options: argparse.Namespace, paths: pathutils.Paths, time: clock.Clock
) -> None:
    """Check that this node may be master.

    Raises:
        StartError: it may not.
    """
    try:
        common.check_user(options, 0 if not paths.is_virtual else os.geteuid())
        startup.check_own_files(paths)
        snapshot = _read_configuration(paths)
        startup.check_configuration(snapshot, paths)
        if not options.no_voting:
            _vote(snapshot, paths, time)
    except startup.NotMaster as err:
        raise common.StartError(str(err), _CODES[err.why]) from err
    except errors.GenericError as err:
        raise common.StartError(f"the configuration cannot be used: {err}") from err


def _vote(snapshot: Snapshot, paths: pathutils.Paths, time: clock.Clock) -> None:
    if len(snapshot.nodes) == 1:
        return
    with _termless(snapshot, paths) as runner:
        startup.vote(
            lambda: voting.gather(runner, snapshot.nodes),
            paths.hostname,
            pause=lambda seconds: _pause(time, seconds),
        )
        startup.check_copies(voting.gather_terms(runner, snapshot.nodes), snapshot)


def _seen_term(paths: pathutils.Paths) -> int:
    """Return the highest term that the nodes know; taking it again would be wrong."""
    snapshot = _read_configuration(paths)
    with _termless(snapshot, paths) as runner:
        return voting.gather_terms(runner, snapshot.nodes).seen


@contextlib.contextmanager
def _termless(snapshot: Snapshot, paths: pathutils.Paths) -> Iterator[rpc.Runner]:
    """Reach nodes for no term.

    Questions before the start must not depose a master that may be the right one.
    """
    runner = rpc.NetworkRunner(lambda: snapshot, paths, None)
    try:
        yield runner
    finally:
        runner.close()


def _pause(time: clock.Clock, seconds: float) -> None:
    time.wait(threading.Event(), seconds)


class _Running:
    """The service with the effect interfaces that its main has opened."""

    def __init__(self, inner: masterd.Service, runner: rpc.NetworkRunner) -> None:
        self._inner = inner
        self._runner = runner

    def stop(self) -> None:
        """End the service, then close the effect interfaces."""
        self._inner.stop()
        self._runner.close()


def _start(
    paths: pathutils.Paths, time: clock.Clock, control: common.Control
) -> common.Service:
    """Open the effect interfaces and begin to serve."""
    late = rpc.LateRunner()

    def on_deposed() -> None:
        _log.critical("another master has taken over; ending")
        control.ask_stop(exitcodes.EXIT_NOTMASTER)

    opened = store.open_master(
        paths.store_db,
        replicate=late,
        clock=time,
        seen_term=_seen_term(paths),
        on_deposed=on_deposed,
    )
    runner = rpc.NetworkRunner(opened.snapshot, paths, opened.term)
    late.set(runner)
    _log.info("revision %d, term %d", opened.snapshot().revision, opened.term)
    doors = service.Doors(
        store=opened,
        rpc=runner,
        clock=time,
        paths=paths,
        lookup_host=functools.partial(netutils.lookup_host, paths=paths),
        tcp_ping=_tcp_ping,
        rpc_at=runner.at,
        on_deposed=on_deposed,
    )
    try:
        built = masterd.build(doors)
    except BaseException:
        opened.close()
        runner.close()
        raise
    _tune_interpreter()
    built.start()
    threading.Thread(
        target=_raise_address,
        args=(opened.snapshot(), runner),
        name="master-ip",
        daemon=True,
    ).start()
    return _Running(built, runner)


def _tune_interpreter() -> None:
    """Set Python up for a large configuration that is loaded and hardly changes."""
    sys.setswitchinterval(_SWITCH_S)
    # The configuration stays: looking through it for garbage, which takes 0.2 s with
    # 20,000 instances, would only hold up everybody.
    gc.collect()
    gc.freeze()
    # An answer about thousands of instances makes a million tuples and no garbage:
    # looking for it as often as usual takes longer than the answer.
    gc.set_threshold(*_GC_THRESHOLDS)


def _tcp_ping(address: str, port: int, source: str | None) -> bool:
    return netutils.tcp_ping(address, port, source=source, live_port_needed=True)


def _raise_address(snapshot: Snapshot, runner: rpc.Runner) -> None:
    """Turn the master's address up; failures are no reason not to serve."""
    cluster = snapshot.cluster
    result = runner.call_one(
        "node_activate_master_ip",
        cluster.master_node,
        master_ip.parameters(cluster),
        cluster.use_external_mip_script,
    )
    if result.failed:
        _log.error("%s", result.describe("the master's address is not up"))


#: Containers that are made between two looks for garbage, and how often those look
#: at older ones too.
_GC_THRESHOLDS: Final = (100_000, 20, 50)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the master daemon and return its exit code."""
    options = common.parse(build_parser(), sys.argv[1:] if argv is None else argv)
    try:
        paths = pathutils.from_environ(os.environ)
        _confirm(options)
    except (errors.ConfigurationError, common.StartError) as err:
        sys.stderr.write(f"{NAME}: {err}\n")
        return exitcodes.EXIT_FAILURE
    time = clock.SystemClock()
    return common.run(
        common.Daemon(
            name=NAME,
            check=lambda: _check(options, paths, time),
            start=functools.partial(_start, paths, time),
        ),
        options,
        paths,
    )


if __name__ == "__main__":
    sys.exit(main())
