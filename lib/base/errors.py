"""Errors that cross a process border, and their exit codes.

An error travels as ``[class name, [arguments]]`` over LUXI and in job results;
`encode` and `decode` are the two ends. Existing clients take the name of a class that
they do not know for a result, so such a class travels under a ``WIRE_NAME`` that they
know. ``EXIT_CODE`` is what a command exits with when the error reaches its user.
"""

from typing import Any, ClassVar

from ganeti.base.constants import ecodes


class GenericError(Exception):
    """Root of all errors that a protocol may carry."""

    EXIT_CODE: ClassVar[int] = 1
    #: The class that other programs receive, and the beginning of its text, where the
    #: class itself is not documented.
    WIRE_NAME: ClassVar[str] = ""
    WIRE_PREFIX: ClassVar[str] = ""


class AddressPoolError(GenericError):
    """Address not available in a network.

    Arguments: msg.
    """


class BlockDeviceError(GenericError):
    """Disk could not be set up.

    Arguments: msg.
    """


class CommandError(GenericError):
    """External command failed.

    Arguments: msg.
    """


class ConfdClientError(GenericError):
    """Confd client misuse.

    Arguments: msg.
    """


class ConfdMagicError(GenericError):
    """Reply without the magic prefix.

    Arguments: msg.
    """


class ConfigurationError(GenericError):
    """Configuration unreadable, inconsistent, or object changed since read.

    Arguments: msg.
    """

    EXIT_CODE: ClassVar[int] = 2


class ConfigVerifyError(ConfigurationError):
    """Checks of the configuration failed.

    Arguments: msg, [text of each problem].
    """


class ConfigVersionMismatch(ConfigurationError):
    """Wrong config version.

    Arguments: expected: int, found: int.
    """


class DeviceCreationError(GenericError):
    """Disk creation failed part way.

    Arguments: msg, [[node, device]].
    """


class FileStoragePathError(GenericError):
    """File storage directory not allowed.

    Arguments: msg.
    """


class HooksFailure(GenericError):
    """Hooks could not be run at all.

    Arguments: msg.
    """


class HooksAbort(HooksFailure):
    """A pre hook failed and so refused the operation.

    Arguments: [[node, script, output]].
    """


class HypervisorError(GenericError):
    """Hypervisor refused or failed.

    Arguments: msg.
    """


class HotplugError(HypervisorError):
    """Device could not be plugged live.

    Arguments: msg.
    """


class IPAddressError(GenericError):
    """Address malformed.

    Arguments: msg.
    """


class InotifyError(GenericError):
    """File watch could not be set.

    Arguments: msg.
    """


class JobCanceled(GenericError):
    """Client side: the awaited job was cancelled.

    Arguments: msg.
    """


class JobFileCorrupted(GenericError):
    """Job file unreadable.

    Arguments: msg.
    """


class JobLost(GenericError):
    """Job unknown, archived or removed.

    Arguments: msg.
    """


class JobQueueError(GenericError):
    """Job queue trouble.

    Arguments: msg.
    """


class JobQueueDrainError(JobQueueError):
    """Queue is drained.

    Arguments: msg.
    """


class JobQueueFull(JobQueueError):
    """Too many jobs.

    Arguments: none.
    """


class LockError(GenericError):
    """Locking misuse or failure.

    Arguments: msg.
    """


class LuxiError(GenericError):
    """Protocol trouble.

    Arguments: msg.
    """


class NoCtypesError(GenericError):
    """Platform lacks a needed library.

    Arguments: msg.
    """


class OpCodeUnknown(GenericError):
    """No such OP_ID.

    Arguments: msg.
    """


class OpExecError(GenericError):
    """Operation failed during its execution.

    Arguments: msg.
    """


class OpPrereqError(GenericError):
    """Request refused before anything was changed.

    Arguments: msg, ecode.
    """


def refusal(text: str, code: str = ecodes.ECODE_INVAL) -> OpPrereqError:
    """Return the error for a request that is wrong, or cannot be done now."""
    return OpPrereqError(text, code)


class OpResultError(GenericError):
    """Operation produced a result of the wrong shape.

    Arguments: msg.
    """


class OpRetryNotSupportedError(GenericError):
    """Operation cannot be retried with more locks.

    Arguments: none.
    """


class ParameterError(GenericError):
    """Bad parameter to an internal call; the message is only the parameter name.

    Arguments: parameter name.
    """


class ParseError(GenericError):
    """Text not understood.

    Arguments: msg.
    """


class PidFileLockError(LockError):
    """Pid file locked by a running process.

    Arguments: msg.
    """


class ProgrammerError(GenericError):
    """Internal misuse.

    Arguments: msg.
    """


class QueryFilterParseError(ParseError):
    """Filter text not understood.

    Arguments: msg, parser detail (python only, not JSON).
    """


class RapiTestResult(GenericError):
    """Test helper.

    Arguments: msg.
    """


class RemoteError(GenericError):
    """Unexpected failure on another node.

    Arguments: msg.
    """


class ReservationError(GenericError):
    """Name, address, MAC, port or the like already taken.

    Arguments: msg.
    """


class ResolverError(GenericError):
    """Name lookup failed.

    Arguments: host name, resolver code: int, resolver text.
    """


class ResultValidationError(GenericError):
    """Iallocator or similar gave a malformed answer.

    Arguments: msg.
    """


class SignatureError(GenericError):
    """HMAC wrong.

    Arguments: msg.
    """


class SshError(GenericError):
    """A host could not be reached over SSH, or refused the login.

    Arguments: msg.
    """

    WIRE_NAME: ClassVar[str] = "OpExecError"


class SshUpdateError(GenericError):
    """Ssh setup on nodes failed.

    Arguments: msg.
    """


class StorageError(GenericError):
    """Storage backend failed.

    Arguments: msg.
    """


class CommitUnknownError(StorageError):
    """Whether a change is durable is not known.

    Arguments: msg.
    """

    WIRE_NAME: ClassVar[str] = "StorageError"


class TagError(GenericError):
    """Tag invalid, missing or too many.

    Arguments: msg.
    """


class TypeEnforcementError(GenericError):
    """Parameter has the wrong type.

    Arguments: msg.
    """


class UdpDataSizeError(GenericError):
    """Datagram too large.

    Arguments: msg.
    """


class UnitParseError(GenericError):
    """Size text not understood.

    Arguments: msg.
    """


class X509CertError(GenericError):
    """Certificate unreadable or refused.

    Arguments: file name, reason.
    """


class ProtocolError(LuxiError):
    """Malformed message, version difference.

    Arguments: msg.
    """


class ConnectionClosedError(ProtocolError):
    """Server closed the connection.

    Arguments: msg.
    """


class NoMasterError(ProtocolError):
    """Socket missing or nobody listens.

    Arguments: socket path.
    """


class LuxiPermissionError(ProtocolError):
    """No right to open the socket.

    Arguments: socket path.
    """


class RequestError(ProtocolError):
    """Server returned a failure that is not of a known class.

    Arguments: server result, (more).
    """


class LuxiTimeoutError(ProtocolError):
    """No answer in time.

    Arguments: msg.
    """


class RpcError(GenericError):
    """A node could not be asked or did not answer properly.

    Arguments: msg.
    """

    WIRE_NAME: ClassVar[str] = "OpExecError"


class TermError(GenericError):
    """The caller acts for an outdated master term.

    Arguments: msg.
    """

    WIRE_NAME: ClassVar[str] = "OpExecError"
    WIRE_PREFIX: ClassVar[str] = "this node is no longer the master: "


def is_outcome_unknown(err: BaseException) -> bool:
    """Return whether a change that failed with an error may be durable.

    That is also the case with a deposed master: the new one may have the change.
    """
    cause: BaseException | None = err
    while cause is not None:
        if isinstance(cause, CommitUnknownError | TermError):
            return True
        cause = cause.__cause__
    return False


def _wire_classes() -> dict[str, type[GenericError]]:
    by_name: dict[str, type[GenericError]] = {"GenericError": GenericError}
    todo: list[type[GenericError]] = [GenericError]
    while todo:
        for cls in todo.pop().__subclasses__():
            by_name[cls.__name__] = cls
            todo.append(cls)
    return by_name


def encode(err: BaseException) -> list[Any]:
    """Return ``[class name, [arguments]]``; foreign exceptions become OpExecError."""
    if not isinstance(err, GenericError):
        return ["OpExecError", [str(err) or type(err).__name__]]
    if err.WIRE_NAME:
        return [err.WIRE_NAME, [f"{err.WIRE_PREFIX}{err}"]]
    return [type(err).__name__, list(err.args)]


def decode(value: Any) -> GenericError | None:
    """Return the error for ``[class name, [arguments]]``, None for anything else."""
    if not (isinstance(value, (list, tuple)) and len(value) == 2):
        return None
    name, args = value
    if not (isinstance(name, str) and isinstance(args, (list, tuple))):
        return None
    cls = _wire_classes().get(name)
    return cls(*args) if cls is not None else None
