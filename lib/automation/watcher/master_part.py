"""Part of a run on the master: daemons, old jobs, repairs, a process per group."""

import logging
import subprocess
import threading
from collections.abc import Sequence
from typing import Final

from ganeti.automation.watcher import (
    daemons,
    expired_part,
    listening,
    master_term,
    rapi_probe,
    repair_part,
)
from ganeti.automation.watcher.effects import Settings, Watch
from ganeti.base import errors
from ganeti.base.constants import exitcodes
from ganeti.base.filesystem import pidfile
from ganeti.protocols import luxi

_log = logging.getLogger(__name__)
#: Daemons of the master beside the master daemon; those not installed are skipped.
_DAEMONS: Final = ("ganeti-rapi", "ganeti-maintd")
_MASTER: Final = "ganeti-masterd"
#: Where RAPI is expected if it has no socket that listens.
_LOOPBACK: Final = "127.0.0.1"
#: Seconds that the master may spend on archiving jobs; the next run continues.
_ARCHIVE_S: Final = 60.0
#: Seconds between the starts of two children, to spread the load.
_CHILD_PAUSE_S: Final = 1.0


class NotMaster(Exception):
    """This node is not the master any more."""


def run(watch: Watch) -> int:
    """Look after the cluster if this node is the master; return the exit code.

    Raises:
        NotMaster: this node ceased to be the master.
        GenericError: the master daemon refuses something or does not answer.
    """
    if not is_master_node(watch):
        return exitcodes.EXIT_SUCCESS
    client = _connect(watch)
    if client is None:
        return exitcodes.EXIT_SUCCESS
    with client:
        for daemon in _DAEMONS:
            daemons.ensure(watch, daemon)
        if watch.is_installed("ganeti-rapi"):
            _check_rapi(watch)
        confirm_master(watch, client)
        _archive(watch, client)
        is_released = expired_part.run(watch, client)
        is_restarted = master_term.renew(watch, client)
        is_repaired = is_restarted or repair_part.run(watch, client)
    if is_restarted:
        with watch.connect() as client:
            confirm_master(watch, client)
            is_repaired = repair_part.run(watch, client)
    code = _run_children(watch, sorted(watch.ssconf.nodegroups()))
    return code if is_repaired and is_released else exitcodes.EXIT_FAILURE


def is_master_node(watch: Watch) -> bool:
    """Return whether the files of this node name it as the master."""
    try:
        master = watch.ssconf.master_node()
    except errors.ConfigurationError as err:
        _log.info("the master is not known on this node: %s", err)
        return False
    if master != watch.paths.hostname:
        _log.debug("the master is %s, not this node", master)
        return False
    return True


def _connect(watch: Watch) -> luxi.Client | None:
    """Return a connection to the master daemon, which is started if it is down.

    None if this node must not become master.

    Raises:
        OpExecError: the daemon does not start.
        NoMasterError: the daemon was started and does not answer.
        CommandError: daemon-util cannot be run.
    """
    client = watch.connect()
    # Without a process there is no point in waiting for the socket.
    if daemons.is_running(watch, _MASTER):
        try:
            client.call("QueryConfigValues", [["master_node"]])
        except errors.NoMasterError:
            client.close()
        else:
            return client
    _log.warning("ganeti-masterd: does not answer; starting it")
    if not daemons.start(watch, _MASTER):
        return None
    client = watch.connect()
    client.call("QueryConfigValues", [["master_node"]])
    return client


def confirm_master(watch: Watch, client: luxi.Client) -> None:
    """Check that the master daemon regards this node as the master.

    Raises:
        NotMaster: it names another node.
    """
    (master,) = client.call("QueryConfigValues", [["master_node"]])
    if master != watch.paths.hostname:
        raise NotMaster(
            f"the master daemon names {master} as the master, not this node,"
            f" {watch.paths.hostname}"
        )


def _check_rapi(watch: Watch) -> None:
    """Restart RAPI once if it does not answer."""
    problem = _rapi_problem(watch)
    if problem is None:
        return
    _log.warning("ganeti-rapi: %s; restarting it", problem)
    try:
        daemons.restart(watch, "ganeti-rapi")
    except errors.OpExecError as err:
        _log.error("%s", err)
        return
    problem = _rapi_problem(watch)
    if problem is not None:
        _log.warning("ganeti-rapi: %s, also after a restart; see its log", problem)


def _rapi_problem(watch: Watch) -> str | None:
    """Return why RAPI does not answer where it was bound to, or the option says."""
    if watch.settings.rapi_ip is not None:
        return rapi_probe.problem(watch.settings.rapi_ip)
    pid = pidfile.read_pid(watch.paths.pid_file("ganeti-rapi"))
    places = listening.addresses(pid) if pid is not None else []
    if not places:
        return rapi_probe.problem(_LOOPBACK)
    problems = [rapi_probe.problem(address, port) for address, port in places]
    return None if None in problems else problems[0]


def _archive(watch: Watch, client: luxi.Client) -> None:
    age_s = watch.settings.job_age_s
    archived, remaining = client.call("AutoArchiveJobs", [age_s, _ARCHIVE_S])
    _log.debug(
        "archived %s jobs, %s not examined for lack of time", archived, remaining
    )


# Children
def child_options(settings: Settings) -> list[str]:
    """Return the options that a child gets from its parent."""
    chosen = (
        ("--debug", settings.debug),
        ("--ignore-pause", settings.ignore_pause),
        ("--no-verify-disks", not settings.verify_disks),
        ("--no-strict", not settings.strict),
    )
    return [word for word, is_given in chosen if is_given]


def _run_children(watch: Watch, groups: Sequence[str]) -> int:
    """Start a child per group; return 11 if one noticed another master, else 0 or 1."""
    program = f"{watch.paths.daemons_dir}/ganeti-watcher"
    options = child_options(watch.settings)
    children = []
    for number, group in enumerate(groups):
        if number:
            watch.clock.wait(threading.Event(), _CHILD_PAUSE_S)
        command = [program, *options, f"--node-group={group}"]
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        _log.debug("group %s: process %d", group, child.pid)
        children.append((group, child))
    if not watch.settings.wait_children:
        return exitcodes.EXIT_SUCCESS
    failures = set()
    for group, child in children:
        code = child.wait()
        if code != exitcodes.EXIT_SUCCESS:
            failures.add(code)
            _log.error("group %s: the watcher of this group ended with %d", group, code)
    if exitcodes.EXIT_NOTMASTER in failures:
        return exitcodes.EXIT_NOTMASTER
    return exitcodes.EXIT_FAILURE if failures else exitcodes.EXIT_SUCCESS
