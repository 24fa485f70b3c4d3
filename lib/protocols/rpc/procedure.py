"""Node calls: the declaration of a procedure, a request made of it, and its result."""

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import (
    Any,
    Final,
    Generic,
    NamedTuple,
    ParamSpec,
    TypeVar,
    cast,
    get_type_hints,
)

import msgspec

from ganeti.base import errors

#: Time limits of a whole call, in seconds, by class, as in Ganeti; that of `duration`
#: is added to the argument of the call.
TIMEOUTS: Final = {
    "urgent": 60,
    "fast": 300,
    "normal": 900,
    "slow": 3600,
    "4h": 14400,
    "1d": 86400,
    "duration": 5,
}
MIB: Final = 1024 * 1024
#: Largest answer about many objects of a node: 10,000 volumes or disks in 8 MiB.
MANY: Final = 8 * MIB
#: Largest copy of the store; only master candidates are asked for one.
STORE: Final = 256 * MIB
#: Lanes of a node daemon: calls of one lane never wait for those of another.
LANE_POWER: Final = "power"
LANE_STORE: Final = "store"
LANE_STORAGE: Final = "storage"
LANE_URGENT: Final = "urgent"
LANE_ORDINARY: Final = "ordinary"
#: Characters of a node's reason for a failure that are kept, for the job's log.
MAX_REASON: Final = 4000
P = ParamSpec("P")
T = TypeVar("T")

OFFLINE_TEXT: Final = "Node is marked offline"


@dataclasses.dataclass(frozen=True)
class Result:
    """The result of one call of one node.

    Attributes:
        call: procedure name.
        node: node name, for messages.
        payload: the answer, None on failure.
        fail_msg: the reason of a failure, None on success.
        offline: the node is marked offline and was not called.
        is_lost: the connection broke or timed out after the request was sent, so the
            node may have executed it.
        deposed: the node refused the call because it has seen a higher master term.
        refused: the node does not accept the certificate of the caller.
        is_silent: no answer came: the node may be down.
        is_rejected: the node daemon answered with another HTTP error, such as that of a
            busy node; the procedure gave no answer.
    """

    call: str
    node: str
    payload: Any = None
    fail_msg: str | None = None
    offline: bool = False
    is_lost: bool = False
    deposed: bool = False
    refused: bool = False
    is_silent: bool = False
    is_rejected: bool = False

    @property
    def failed(self) -> bool:
        """Return whether the call failed."""
        return self.fail_msg is not None

    @property
    def is_answered(self) -> bool:
        """Return whether the node carried the call out, with success or without."""
        return not (
            self.offline
            or self.is_lost
            or self.deposed
            or self.refused
            or self.is_silent
            or self.is_rejected
        )

    def unwrap(self, what: str) -> Any:
        """Return the payload.

        Args:
            what: the attempt, such as ``cannot start instance web1``.

        Raises:
            OpExecError: the call failed.
        """
        if self.fail_msg is not None:
            raise errors.OpExecError(self.describe(what))
        return self.payload

    def require(self, what: str, ecode: str) -> Any:
        """Return the payload, in checks before any change.

        Raises:
            OpPrereqError: the call failed.
        """
        if self.fail_msg is not None:
            raise errors.OpPrereqError(self.describe(what), ecode)
        return self.payload

    def describe(self, what: str) -> str:
        """Return the message for a failure."""
        return f"{what}: node {self.node}: {self.fail_msg}"


@dataclasses.dataclass(frozen=True)
class Answer(Result, Generic[T]):
    """A result whose payload has the type that the procedure declares."""

    payload: T = None  # type: ignore[assignment] # of a failed call

    def unwrap(self, what: str) -> T:
        """Return the payload, see `Result`."""
        return cast("T", super().unwrap(what))

    def require(self, what: str, ecode: str) -> T:
        """Return the payload, see `Result`."""
        return cast("T", super().require(what, ecode))


class Request(NamedTuple, Generic[T]):
    """A procedure and its arguments in wire order; ``T`` is the type of the answer."""

    procedure: "Procedure[..., T]"
    args: tuple[Any, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class Procedure(Generic[P, T]):
    """One node call; called with the call's arguments, it returns a request.

    Attributes:
        function: the declaration: its name and its arguments are those on the wire, its
            result is the type as which the answer is read.
        timeout: a key of `TIMEOUTS`.
        multi: many nodes may be called at once.
        accept_offline: nodes that are marked offline are called, too.
        own_lane: lane of the node daemon, if it does not follow from the time limit;
            see `lane`.
        runs_programs: the call runs programs of users, which can be ended early.
        reads: the call never changes anything on a node, so a dry run sends it.
        reads_if: name of the function in `ganeti.operations.mcpu.simulated_nodes` that
            decides this from the arguments.
        names_its_base: the call says what it builds on, or has a key of its request, so
            a second one finds the first one's result and changes nothing.
        answer: the payload of an acting call in a dry run, as after a success.
        answer_from: name of the function in `ganeti.operations.mcpu.simulated_nodes`
            that computes this payload from the arguments.
        shown: arguments that a plan shows, separated by spaces. All others may contain
            secrets or whole files.
        private: an instance among the arguments may have private and secret OS
            parameters, because the call runs OS scripts or stores an export. Other
            calls get none.
        starts: an instance among the arguments may have the files of its cloud-init
            seed, because the call starts its guest or prepares for it. Other calls get
            none.
        waits_for: what a job waits for in a call that often takes long, as the object
            of a sentence.
        max_answer: size limit of an answer, in bytes. The caller aborts a longer one: a
            decoded answer takes up to 25 times the memory.
    """

    function: Callable[P, T]
    timeout: str
    multi: bool = False
    accept_offline: bool = False
    own_lane: str = ""
    runs_programs: bool = False
    reads: bool = False
    reads_if: str = ""
    names_its_base: bool = False
    answer: Any = None
    answer_from: str = ""
    shown: str = ""
    private: bool = False
    starts: bool = False
    max_answer: int = MIB
    waits_for: str = ""

    def __call__(self, *args: P.args, **named: P.kwargs) -> Request[T]:
        """Return a request with the arguments in wire order."""
        rest = self.args[len(args) :] if named else ()
        return Request(self, (*args, *(named[name] for name in rest)))

    @functools.cached_property
    def name(self) -> str:
        """The name on the wire."""
        return self.function.__name__

    @functools.cached_property
    def args(self) -> tuple[str, ...]:
        """The names of the arguments, in wire order."""
        return tuple(inspect.signature(self.function).parameters)

    @functools.cached_property
    def shape(self) -> Any:
        """The type that the payload of an answer must fit, as msgspec takes it.

        Any for an answer that nobody reads, or one that its reader takes apart itself,
        value by value.
        """
        made = get_type_hints(self.function, include_extras=True)["return"]
        return Any if made is type(None) else made

    @property
    def lane(self) -> str:
        """The lane of the node daemon that serves the call.

        Urgent calls do not wait for ordinary ones, which may be long. Among urgent
        calls, those that read storage or the copy of the store can hang with a disk, so
        they are separate; a power cycle shares its lane with nothing.
        """
        by_time = LANE_URGENT if self.timeout == "urgent" else LANE_ORDINARY
        return self.own_lane or by_time

    def read(self, result: Result) -> Answer[T]:
        """Return a result with its payload in the declared type.

        A node is not trusted: an answer of another shape is a failed call.
        """
        # Runners of the network have read it; others return plain results.
        if isinstance(result, Answer):
            return result
        known = vars(result)
        if result.failed or self.shape is Any:
            return Answer(**known)
        try:
            payload = msgspec.convert(result.payload, self.shape)
        except msgspec.ValidationError as err:
            # The node has carried the call out, but with a result that nobody knows.
            text = f"RPC layer error: unexpected answer: {err}"[:MAX_REASON]
            return Answer(result.call, result.node, fail_msg=text, is_lost=True)
        return Answer(**known | {"payload": payload})


def procedure(
    timeout: str, **options: Any
) -> Callable[[Callable[P, T]], Procedure[P, T]]:
    """Make a procedure of a declaration; see `Procedure` for the options."""
    return lambda function: Procedure(function, timeout, **options)
