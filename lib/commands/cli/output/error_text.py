"""From an error to its message and exit code; the texts are documented."""

import os
from collections.abc import Callable
from typing import Any, Final

from ganeti import _buildconf
from ganeti.base import errors
from ganeti.base.constants import exitcodes
from ganeti.base.pathutils import Paths
from ganeti.base.text.control_chars import escape
from ganeti.commands.cli import local

_PREREQ: Final = "Failure: prerequisites not met for this operation:\n"
_DRAINED: Final = (
    "Failure: the job queue is marked for drain and doesn't accept new requests"
)
_FULL: Final = (
    "Failure: the job queue is full and doesn't accept new job submissions until old"
    " jobs are archived"
)
_NO_PERMISSION: Final = (
    "It seems you don't have permissions to connect to the master daemon.\n"
    "Please retry as a different user."
)
_TIMEOUT: Final = (
    "Timeout while talking to the master daemon. Jobs may have been submitted and may"
    " still be running: see them with 'gnt-job list', stop them with 'gnt-job cancel',"
    " follow them with 'gnt-job watch'. Details:\n"
)


def _prereq(err: errors.GenericError) -> str:
    if len(err.args) == 2:
        text, code = err.args
        return f"{_PREREQ}error type: {code}, error details:\n{text}"
    return f"{_PREREQ}{err}"


def _hooks_abort(err: errors.GenericError) -> str:
    lines = ["Failure: hooks execution failed:"]
    rows = err.args[0] if err.args else ()
    if isinstance(rows, str):
        return f"{lines[0]}\n{rows}"
    for node, script, output in rows:
        lines.append(
            f"  node: {node}, script: {script}, output: {output}"
            if output
            else f"  node: {node}, script: {script} (no output)"
        )
    return "\n".join(lines)


def _version(err: errors.GenericError) -> str:
    if len(err.args) != 2:
        return f"Corrupt configuration file: {err}\nAborting."
    wanted, stored = err.args
    return (
        f"Corrupt configuration file: wanted version {wanted}, found {stored}\n"
        "Aborting."
    )


def _config_checks(err: errors.GenericError) -> str:
    text, problems = (*err.args, "", ())[:2]
    lines = problems if isinstance(problems, (list, tuple)) else ()
    listed = "".join(f"\n  {line}" for line in lines)
    return f"Corrupt configuration file: {text}{listed}\nAborting."


def _device_creation(err: errors.GenericError) -> str:
    text, created = (*err.args, "", ())[:2]
    pairs = created if isinstance(created, (list, tuple)) else ()
    left = "".join(
        f"\n  left behind on node, device: {', '.join(map(str, pair))}"
        for pair in pairs
    )
    return f"Failure: disks cannot be created:\n{text}{left}"


_Describe = Callable[[Any], str]
_Row = tuple[type[errors.GenericError], _Describe]


def _failure(cls: type[errors.GenericError], subject: str) -> _Row:
    """Return the row of a class whose text stands below a line with the subject."""
    return cls, lambda err: f"Failure: {subject}:\n{_plain(err)}"


#: First match wins, so that derived classes stand before their parents. The last rows
#: leave no class without a text.
_TEXTS: Final[tuple[_Row, ...]] = (
    (errors.ConfigVersionMismatch, _version),
    (errors.ConfigVerifyError, _config_checks),
    (
        errors.ConfigurationError,
        lambda err: f"Corrupt configuration file: {err}\nAborting.",
    ),
    (errors.HooksAbort, _hooks_abort),
    (
        errors.HooksFailure,
        lambda err: f"Failure: hooks general failure: {err}",
    ),
    (
        errors.ResolverError,
        lambda err: f"Failure: can't resolve hostname '{(*err.args, '?')[0]}'",
    ),
    (errors.OpPrereqError, _prereq),
    _failure(errors.OpExecError, "command execution error"),
    _failure(errors.StorageError, "storage error"),
    _failure(errors.TagError, "invalid tag(s) given"),
    (errors.JobQueueDrainError, lambda _: _DRAINED),
    (errors.JobQueueFull, lambda _: _FULL),
    (errors.TypeEnforcementError, lambda err: f"Parameter Error: {err}"),
    (
        errors.ParameterError,
        lambda err: f"Failure: unknown/wrong parameter name '{err}'",
    ),
    (errors.LuxiTimeoutError, lambda err: f"{_TIMEOUT}{err}"),
    (errors.LuxiPermissionError, lambda _: _NO_PERMISSION),
    (
        errors.ProtocolError,
        lambda err: (
            "Unhandled protocol error while talking to the master daemon:\n"
            f"{_plain(err)}"
        ),
    ),
    # The text names the problem and shows the position.
    (
        errors.QueryFilterParseError,
        lambda err: "\n".join(map(str, err.args)) or _plain(err),
    ),
    (errors.JobLost, lambda err: f"Error checking job status: {err}"),
    (errors.JobCanceled, lambda err: f"Failure: {_plain(err)}"),
    (errors.DeviceCreationError, _device_creation),
    (
        errors.X509CertError,
        lambda err: f"Failure: certificate {': '.join(map(str, err.args))}",
    ),
    (
        errors.OpRetryNotSupportedError,
        lambda _: "Failure: the operation needs more locks and cannot be repeated",
    ),
    _failure(errors.AddressPoolError, "address not available in the network"),
    _failure(errors.BlockDeviceError, "disk error"),
    _failure(errors.CommandError, "external command failed"),
    _failure(errors.ConfdClientError, "wrong use of the confd client"),
    _failure(errors.ConfdMagicError, "malformed answer of a confd daemon"),
    _failure(errors.FileStoragePathError, "directory not allowed for disks"),
    _failure(errors.HotplugError, "device of a running instance not changed"),
    _failure(errors.HypervisorError, "hypervisor error"),
    _failure(errors.IPAddressError, "malformed IP address"),
    _failure(errors.InotifyError, "a file cannot be watched"),
    _failure(errors.JobFileCorrupted, "a job cannot be read"),
    _failure(errors.JobQueueError, "job queue error"),
    _failure(errors.PidFileLockError, "another process is running"),
    _failure(errors.LockError, "lock error"),
    _failure(errors.LuxiError, "error of the master daemon's protocol"),
    _failure(errors.NoCtypesError, "a library of the system is missing"),
    _failure(errors.OpCodeUnknown, "operation unknown to this version"),
    _failure(errors.OpResultError, "malformed result of an operation"),
    _failure(errors.ProgrammerError, "internal error, a defect of Ganeti"),
    _failure(errors.UnitParseError, "malformed size"),
    _failure(errors.ParseError, "text not understood"),
    _failure(errors.RapiTestResult, "test of the remote API"),
    _failure(errors.RemoteError, "unexpected error on another node"),
    _failure(errors.ReservationError, "already in use"),
    _failure(errors.ResultValidationError, "malformed answer of an external program"),
    _failure(errors.SignatureError, "wrong signature"),
    _failure(errors.SshError, "SSH connection failed"),
    _failure(errors.SshUpdateError, "SSH keys not updated"),
    _failure(errors.RpcError, "a node cannot be asked"),
    _failure(errors.TermError, "this node is no longer the master"),
    _failure(errors.UdpDataSizeError, "message too large for one datagram"),
    (errors.GenericError, lambda err: f"Failure: {_plain(err)}"),
)


def _plain(err: errors.GenericError) -> str:
    return str(err.args[0]) if err.args else type(err).__name__


def describe(err: errors.GenericError) -> tuple[str, int]:
    """Return the text for stderr and the exit code.

    The text may contain output of scripts and nodes, so control characters are escaped.
    """
    text_of = next(text_of for cls, text_of in _TEXTS if isinstance(err, cls))
    return _safe_lines(text_of(err)), err.EXIT_CODE


def describe_system_error(err: OSError) -> str:
    """Return the text for stderr of a failed system call, such as a full disk."""
    reason = err.strerror or str(err) or type(err).__name__
    subject = "" if err.filename is None else f"{err.filename}: "
    return _safe_lines(f"Failure: {subject}{reason}")


def describe_defect(err: Exception, *, after: str) -> str:
    """Return the text for stderr of an error that no part of the command expects.

    Args:
        err: the error.
        after: the method of the master daemon that was called last; empty for none.
    """
    cause = f"{type(err).__name__}: {err}"
    if not after:
        return _safe_lines(f"Failure: internal error, a defect of Ganeti: {cause}")
    return _safe_lines(
        f"Failure: the master daemon's answer to {after} cannot be used: {cause}\n"
        "Commands and daemons may be of different releases: restart the daemons after"
        " an installation. Otherwise this is a defect of Ganeti."
    )


def where_logged(paths: Paths) -> str:
    """Return the place of the details of an error that is a defect."""
    return f"Details are in {paths.log_dir}/commands.log, or shown with --debug."


def _safe_lines(text: str) -> str:
    return "\n".join(escape(line) for line in text.split("\n"))


def describe_unreachable(err: errors.NoMasterError, paths: Paths) -> tuple[str, int]:
    """Return text and exit code when no process listens on the socket.

    On another node than the master, the text names the master instead.
    """
    try:
        local.check_is_master(paths)
    except errors.OpPrereqError as wrong_place:
        return describe(wrong_place)
    path = err.args[0] if err.args else paths.query_socket
    if path == paths.query_socket:
        target = "the config daemon"
    elif path == paths.master_socket:
        target = "the master daemon"
    else:
        target = f"socket '{path}'"
    text = (
        f"Cannot communicate with {target}.\n"
        "Is the process running and listening for connections?"
    )
    if path in (paths.query_socket, paths.master_socket):
        # One daemon serves both sockets, whatever the known texts call it.
        text += f"\n{_what_to_start(paths)}{_store_trouble(paths)}"
    return text, exitcodes.EXIT_FAILURE


def _what_to_start(paths: Paths) -> str:
    from ganeti.base.filesystem import pidfile, releases

    if os.path.exists(releases.intent_file(paths)):
        return (
            "An upgrade of the cluster has begun and not ended. If its command does not"
            " run any more, go on with: gnt-cluster upgrade --resume"
        )
    pid = pidfile.live_pid(paths.pid_file("ganeti-masterd"), "ganeti-masterd")
    if pid is None:
        start = f"{_buildconf.TOOLSDIR}/daemon-util start ganeti-masterd"
        return f"The daemon is ganeti-masterd on this node; start it: {start}"
    return (
        f"The daemon is ganeti-masterd on this node and runs as process {pid}, but"
        " accepts no commands: it starts or stops, or waits for a majority of the"
        f" master candidates; see {paths.log_dir}/master-daemon.log"
    )


def _store_trouble(paths: Paths) -> str:
    """Return why no master can begin, if the store is in etcd and cannot be used."""
    # Rarely needed, and slow to load.
    from ganeti.store import choice, etcd

    try:
        servers = choice.read(paths)
        if servers is None:
            return ""
        etcd.check(servers)
    except errors.GenericError as err:
        return (
            f"\nThe store cannot be used, so no master can begin: {err}\nNothing is"
            " changed until a majority of its servers answers; then a candidate takes"
            " over by itself."
        )
    return ""
