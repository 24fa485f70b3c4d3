"""From an error to its message and exit code; the texts are documented."""

from collections.abc import Callable
from typing import Any, Final

from ganeti import errors
from ganeti.cli import local
from ganeti.constants import exitcodes
from ganeti.pathutils import Paths
from ganeti.utils.control_chars import escape

_PREREQ: Final = "Failure: prerequisites not met for this operation:\n"
_DRAINED: Final = (
    "Failure: the job queue is marked for drain and doesn't accept new requests"
)
_FULL: Final = (
    "Failure: the job queue is full and doesn't accept new job submissions until old"
    " jobs are archived"
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
    for node, script, output in err.args[0] if err.args else ():
        lines.append(
            f"  node: {node}, script: {script}, output: {output}"
            if output
            else f"  node: {node}, script: {script} (no output)"
        )
    return "\n".join(lines)


def _resolver(err: errors.GenericError) -> str:
    host = err.args[0] if err.args else "?"
    return f"Failure: can't resolve hostname '{host}'"


def _no_permission(_: errors.GenericError) -> str:
    return (
        "It seems you don't have permissions to connect to the master daemon.\n"
        "Please retry as a different user."
    )


_Describe = Callable[[Any], str]
#: First match wins, so that derived classes stand before their parents.
_TEXTS: Final[tuple[tuple[type[errors.GenericError], _Describe], ...]] = (
    (
        errors.ConfigurationError,
        lambda err: f"Corrupt configuration file: {err}\nAborting.",
    ),
    (errors.HooksAbort, _hooks_abort),
    (
        errors.HooksFailure,
        lambda err: f"Failure: hooks general failure: {err}",
    ),
    (errors.ResolverError, _resolver),
    (errors.OpPrereqError, _prereq),
    (
        errors.OpExecError,
        lambda err: f"Failure: command execution error:\n{err}",
    ),
    (
        errors.StorageError,
        lambda err: f"Failure: storage error:\n{err}",
    ),
    (errors.TagError, lambda err: f"Failure: invalid tag(s) given:\n{err}"),
    (errors.JobQueueDrainError, lambda _: _DRAINED),
    (errors.JobQueueFull, lambda _: _FULL),
    (errors.TypeEnforcementError, lambda err: f"Parameter Error: {err}"),
    (
        errors.ParameterError,
        lambda err: f"Failure: unknown/wrong parameter name '{err}'",
    ),
    (errors.LuxiTimeoutError, lambda err: f"{_TIMEOUT}{err}"),
    (errors.LuxiPermissionError, _no_permission),
    (
        errors.ProtocolError,
        lambda err: (
            "Unhandled protocol error while talking to the master daemon:\n"
            f"{_plain(err)}"
        ),
    ),
    # The text names the problem and shows the position.
    (errors.QueryFilterParseError, lambda err: "\n".join(map(str, err.args))),
    (errors.JobLost, lambda err: f"Error checking job status: {err}"),
)


def _plain(err: errors.GenericError) -> str:
    return str(err.args[0]) if err.args else type(err).__name__


def describe(err: errors.GenericError) -> tuple[str, int]:
    """Return the text for stderr and the exit code.

    The text may contain output of scripts and nodes, so control characters are escaped.
    """
    for cls, text_of in _TEXTS:
        if isinstance(err, cls):
            return _safe_lines(text_of(err)), err.EXIT_CODE
    text = f"Unhandled Ganeti error: {err or type(err).__name__}"
    return _safe_lines(text), err.EXIT_CODE


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
    return (
        (
            f"Cannot communicate with {target}.\n"
            "Is the process running and listening for connections?"
        ),
        exitcodes.EXIT_FAILURE,
    )
