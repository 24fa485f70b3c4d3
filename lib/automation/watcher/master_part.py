"""Part of a run on the master: daemons, old jobs, reservations, repairs, groups."""

import contextlib
import http
import logging
import os
import re
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ganeti.automation import autorepair
from ganeti.automation.watcher import effects, jobs
from ganeti.automation.watcher.effects import Settings, Watch
from ganeti.automation.watcher.jobs import Jobs
from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.base.constants import exitcodes, jobqueue, versions
from ganeti.base.constants.daemons import DAEMONS
from ganeti.base.filesystem import files, pidfile
from ganeti.base.net import ip, netutils
from ganeti.base.text.control_chars import escape
from ganeti.decisions.htools.model.cluster import DataError
from ganeti.decisions.repair import duties
from ganeti.protocols import luxi

_log = logging.getLogger(__name__)

# A version request to RAPI that shows whether the daemon answers.

#: Seconds for connection and answer.
_TIMEOUT_S: Final = 20.0
_NAME: Final = "ganeti-rapi"
#: An answer that demands a password comes from a live daemon, too.
_ALIVE: Final = frozenset((http.HTTPStatus.OK, http.HTTPStatus.UNAUTHORIZED))


def rapi_problem(address: str, port: int | None = None) -> str | None:
    """Return why RAPI counts as dead, None if it answers, with TLS or without.

    The certificate is not verified: the request has no secret, and a wrong certificate
    is not mended by a restart.

    Args:
        address: at which RAPI listens.
        port: its port; None for the usual one.
    """
    import http.client
    import ssl

    number = port or netutils.service_port(_NAME, DAEMONS[_NAME].port or 0)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with_tls = http.client.HTTPSConnection(
        address, number, timeout=_TIMEOUT_S, context=context
    )
    without = http.client.HTTPConnection(address, number, timeout=_TIMEOUT_S)
    try:
        try:
            status = _status(with_tls)
        except ssl.SSLError:
            status = _status(without)
    except (OSError, http.client.HTTPException) as err:
        return f"no answer at {address} port {number}: {err}"
    if status in _ALIVE:
        return None
    return f"{address} port {number} answers the version request with status {status}"


def _status(connection: Any) -> int:
    with contextlib.closing(connection):
        connection.request("GET", "/version")
        return int(connection.getresponse().status)


# A new term for a master that a candidate refuses.
#
# Masters that a minority was forced to elect can leave a term on a candidate that is
# not below the present master's. The candidate refuses the present master from then on,
# until that takes a higher term, which each start of the master daemon does.

#: Its time is that of the last restart; a candidate that refuses every term must not
#: have the master daemon restarted by each run.
_STAMP: Final = "watcher.new-term"
_PAUSE_S: Final = 3600.0
_ACTIVE: Final = ["|", ["==", "status", "running"], ["==", "status", "canceling"]]


def renew_master_term(watch: Watch, client: luxi.Client) -> bool:
    """Restart the master daemon if a candidate refuses its term and no job is running.

    Returns:
        whether it was restarted; then the connection is of no use any more.

    Raises:
        OpExecError: it does not stop or does not start.
        GenericError: the master daemon does not answer.
    """
    copies = client.call("QueryCopies")["copies"]
    refusing = sorted(copy["name"] for copy in copies if copy.get("wants_restart"))
    if not refusing:
        return False
    names = ", ".join(refusing)
    path = watch.paths.data(_STAMP)
    now = watch.clock.time()
    if os.path.exists(path) and abs(now - os.stat(path).st_mtime) < _PAUSE_S:
        _log.warning(
            "master candidate %s refuses the term of the master; the master daemon was"
            " restarted for that less than %d minutes ago",
            names,
            _PAUSE_S // 60,
        )
        return False
    if client.call("Query", ["job", ["id"], _ACTIVE])["data"]:
        _log.info(
            "master candidate %s refuses the term of the master; the master daemon is"
            " restarted when no job is running",
            names,
        )
        return False
    _log.warning(
        "master candidate %s refuses the term of the master; restarting the master"
        " daemon, which takes a higher one",
        names,
    )
    files.write_file(path, b"", mode=0o600, times=(now, now))
    effects.restart_daemon(watch, _MASTER)
    return True


# The addresses at which a process accepts TCP connections, as the kernel knows them.
#
# A daemon can be bound to any address by its options, the defaults of the package, a
# unit of systemd or by hand; only its sockets show where it is.

#: The state LISTEN in the files below.
_LISTEN: Final = "0A"
_SOCKET: Final = re.compile(r"socket:\[([0-9]+)\]")
_WORD_BYTES: Final = 4
#: Bytes of a table of sockets, which has 150 for each connection.
_MAX_TABLE: Final = 256 * 1024 * 1024


def listening_addresses(pid: int) -> list[tuple[str, int]]:
    """Return address and port of each listening socket of a process, sorted.

    The wildcard of each IP version is given as the loopback address. Empty if there is
    no such process, or it belongs to a user whom this one may not examine.
    """
    with contextlib.suppress(OSError):
        own = set(_sockets(pid))
        tables = (f"/proc/{pid}/net/{name}" for name in ("tcp", "tcp6"))
        rows = [row for path in tables if os.path.exists(path) for row in _rows(path)]
        return sorted(
            {(_address(host), port) for host, port, inode in rows if inode in own}
        )
    return []


def _sockets(pid: int) -> Iterator[str]:
    for name in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            match = _SOCKET.fullmatch(os.readlink(f"/proc/{pid}/fd/{name}"))
            if match:
                yield match[1]


def _rows(path: str) -> Iterator[tuple[str, int, str]]:
    """Yield address in hexadecimal, port and inode of the listening sockets."""
    for line in (
        files.read_file(path, max_size=_MAX_TABLE).decode("ascii").splitlines()[1:]
    ):
        words = line.split()
        if words[3] == _LISTEN:
            host, _, port = words[1].partition(":")
            yield host, int(port, 16), words[9]


def _address(text: str) -> str:
    """Return an address of the kernel's tables: 32-bit words in host byte order."""
    raw = bytes.fromhex(text)
    if sys.byteorder == "little":
        starts = range(0, len(raw), _WORD_BYTES)
        raw = b"".join(raw[start : start + _WORD_BYTES][::-1] for start in starts)
    address = ip.from_bytes(raw)
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "::1"
    return str(address)


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
            effects.ensure_daemon(watch, daemon)
        if watch.is_installed("ganeti-rapi"):
            _check_rapi(watch)
        confirm_master(watch, client)
        _archive(watch, client)
        is_released = release_expired(watch, client)
        is_restarted = renew_master_term(watch, client)
        is_repaired = is_restarted or repair_instances(watch, client)
    if is_restarted:
        with watch.connect() as client:
            confirm_master(watch, client)
            is_repaired = repair_instances(watch, client)
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
    if effects.is_daemon_running(watch, _MASTER):
        try:
            client.call("QueryConfigValues", [["master_node"]])
        except errors.NoMasterError:
            client.close()
        else:
            return client
    _log.warning("ganeti-masterd: does not answer; starting it")
    if not effects.start_daemon(watch, _MASTER):
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
        effects.restart_daemon(watch, "ganeti-rapi")
    except errors.OpExecError as err:
        _log.error("%s", err)
        return
    problem = _rapi_problem(watch)
    if problem is not None:
        _log.warning("ganeti-rapi: %s, also after a restart; see its log", problem)


def _rapi_problem(watch: Watch) -> str | None:
    """Return why RAPI does not answer where it was bound to, or the option says."""
    if watch.settings.rapi_ip is not None:
        return rapi_problem(watch.settings.rapi_ip)
    pid = pidfile.read_pid(watch.paths.pid_file("ganeti-rapi"))
    places = listening_addresses(pid) if pid is not None else []
    if not places:
        return rapi_problem(_LOOPBACK)
    problems = [rapi_problem(address, port) for address, port in places]
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


_EXPIRY_FIELDS: Final = ("name", "uuid", "forthcoming", "expires", "owner")


def release_expired(watch: Watch, client: luxi.Client) -> bool:
    """Submit the jobs; return whether all were accepted.

    An error does not keep the rest of the watcher from its work.
    """
    try:
        return _release_expired(watch, client)
    except (errors.JobQueueFull, errors.JobQueueDrainError) as err:
        _log.warning("reservations: the master accepts no jobs: %s", err)
        return True
    except errors.GenericError as err:
        _log.error("reservations: %s", err.args[0] if err.args else err)
        return False


def _release_expired(watch: Watch, client: luxi.Client) -> bool:
    now = watch.clock.time()
    rows = jobs.query_rows(client, "instance", _EXPIRY_FIELDS, ["?", "forthcoming"])
    expired = [
        row for row in rows if row["forthcoming"] and 0 < (row["expires"] or 0) <= now
    ]
    if not expired:
        return True
    pending = jobs.unfinished(client)
    submitter = Jobs(client, watch.clock, wait_s=0)
    wanted = {
        str(row["name"]): submitter.op(
            "OP_INSTANCE_REMOVE",
            _expiry_reason(row),
            instance_name=row["uuid"],
            if_expired=True,
        )
        for row in expired
        if f"INSTANCE_REMOVE({row['uuid']})" not in pending
    }
    accepted, refused = submitter.submit(wanted)
    for name, job_id in sorted(accepted.items()):
        _log.info("reservation %s has expired, released by job %d", name, job_id)
    for name, text in sorted(refused.items()):
        _log.error("reservation %s has expired, but stays: %s", name, text)
    return not refused


def _expiry_reason(row: dict[str, Any]) -> str:
    owner = f" of {escape(row['owner'])}" if row["owner"] else ""
    ended = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(row["expires"]))
    return f"reservation{owner} expired at {ended}"


#: Seconds that a job waits first, so that its id gets into the tag before it locks the
#: instance. A tag that is late does no harm: the job's reason trail names the repair.
_REPAIR_DELAY_S: Final = 5.0
#: Seconds for all changes of tags. They take milliseconds, unless a job holds the lock
#: of an instance; that instance then waits for the next run.
_REPAIR_WAIT_S: Final = 60.0


def repair_instances(watch: Watch, client: luxi.Client) -> bool:
    """Advance all repairs by one step; return whether everything could be done.

    An error does not keep the rest of the watcher from its work.
    """
    try:
        with autorepair.exclusive(watch.paths, timeout_s=0):
            return advance_repairs(client, watch.clock)
    except errors.LockError as err:
        _log.info("autorepair: another program repairs instances: %s", err)
        return True
    except (errors.JobQueueFull, errors.JobQueueDrainError) as err:
        _log.warning("autorepair: the master accepts no jobs: %s", err)
        return True
    except (errors.GenericError, DataError, OSError) as err:
        text = err.args[0] if isinstance(err, errors.GenericError) and err.args else err
        _log.error("autorepair: %s", text)
        return False


def advance_repairs(client: luxi.Client, clock: Clock) -> bool:
    """Do the same over a connection; the caller lets nobody else repair.

    Raises:
        GenericError: the master daemon does not answer, or accepts no jobs.
        DataError: its answer is malformed.
    """
    if duties.read(client.call("QueryClusterInfo")).repairs:
        _log.info("autorepair: left to ganeti-maintd, as the cluster is set")
        return True
    settings = autorepair.RunSettings(
        source=jobqueue.OPCODE_REASON_SRC_WATCHER,
        reason="autorepair",
        comment=f"automated repairs by ganeti-watcher {versions.RELEASE_VERSION}",
        job_delay_s=_REPAIR_DELAY_S,
        wait_s=_REPAIR_WAIT_S,
    )
    reporter = autorepair.LogReporter(_log)
    repairs = autorepair.RepairRun(
        client, clock, settings, reporter, lambda: str(uuid.uuid4())
    )
    count = repairs.all()
    _log.info("autorepair: %s", autorepair.summary(count) or "no instances")
    return not repairs.has_failed
