"""Dispatch of LUXI requests to typed functions.

A method is a function of the `MasterDeps` and of its typed arguments in documented
order, registered under its wire name. It returns its result, or a `Later` for a future
result. It runs in the event loop's thread and must not block.
"""

import dataclasses
import inspect
import logging
import typing
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Any, Final, TypeVar

import msgspec

from ganeti.base import errors
from ganeti.daemons.masterd import audit
from ganeti.daemons.masterd.deps import MasterDeps
from ganeti.daemons.masterd.stalls import Stalls
from ganeti.protocols.luxi.server import Call

_log = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])

#: Clients send job ids as numbers or as texts, depending on their version.
JobId = int | str


class Malformed(Exception):
    """A malformed request: the client gets a text, and the connection is closed."""


@dataclasses.dataclass(frozen=True)
class Later:
    """A future result.

    Attributes:
        future: holds the result.
        convert: returns the wire form.
        can_cancel: cancel the future when the client disconnects.
        committing: the part that waits for a commit, as the subject of a sentence;
            empty if the result needs none. See `ganeti.daemons.masterd.stalls`.
    """

    future: "Future[Any]"
    convert: Callable[[Any], Any] = lambda value: value
    can_cancel: bool = False
    committing: str = ""


class Method(typing.NamedTuple):
    """A registered method: the record that decodes its arguments, and the function."""

    arguments: type[msgspec.Struct]
    function: Callable[..., Any]


METHODS: Final[dict[str, Method]] = {}


def method(name: str) -> Callable[[F], F]:
    """Register a function as the LUXI method of this name."""

    def register(function: F) -> F:
        METHODS[name] = Method(_arguments_of(name, function), function)
        return function

    return register


def _arguments_of(name: str, function: Callable[..., Any]) -> type[msgspec.Struct]:
    """Return a record class that decodes the argument list by the annotations."""
    hints = typing.get_type_hints(function)
    fields: list[Any] = []
    for item in list(inspect.signature(function).parameters.values())[1:]:
        if item.default is inspect.Parameter.empty:
            fields.append((item.name, hints[item.name]))
        else:
            fields.append((item.name, hints[item.name], item.default))
    return msgspec.defstruct(
        name, fields, array_like=True, forbid_unknown_fields=True, frozen=True
    )


def answer(
    deps: MasterDeps, call: Call, stalls: Stalls, *, is_remote: bool = False
) -> None:
    """Execute a request; answer the call now or later.

    Args:
        deps: of the method.
        call: the request.
        stalls: knows the calls that wait for commits.
        is_remote: it came from the remote API.
    """
    known = METHODS.get(call.method)
    if known is None:
        call.reject(f"Failed to parse request: unknown method {call.method!r}")
        return
    try:
        arguments = msgspec.convert(call.args, known.arguments)
        caller = audit.Caller.of(call, is_remote=is_remote)
        with audit.asked_by(caller):
            result = known.function(deps, **msgspec.structs.asdict(arguments))
    except (Malformed, msgspec.ValidationError) as err:
        call.reject(f"Failed to parse request: {call.method}: {err}")
        return
    except errors.GenericError as err:
        if call.method in audit.CHANGES:
            deps.audit.called(caller, call, err)
        call.fail(err)
        return
    if call.method in audit.CHANGES:
        _record(deps, caller, call, result)
    if isinstance(result, Later):
        _answer_later(call, result, stalls)
    else:
        call.succeed(result)


def _record(deps: MasterDeps, caller: audit.Caller, call: Call, result: Any) -> None:
    """Have the audit log take a change, when it has been made."""
    if not isinstance(result, Later):
        deps.audit.called(caller, call, result)
        return

    def done(future: "Future[Any]") -> None:
        if not future.cancelled():
            deps.audit.called(caller, call, future.exception() or future.result())

    result.future.add_done_callback(done)


def _answer_later(call: Call, later: Later, stalls: Stalls) -> None:
    # An answer can be large. Its holders must not form a reference cycle, or it would
    # stay in memory until the next garbage collection.
    convert = later.convert
    if later.can_cancel:
        call.on_close = later.future.cancel  # type: ignore[assignment]
    if not later.committing:
        later.future.add_done_callback(lambda future: _done(call, convert, future))
        return

    def done(future: "Future[Any]") -> None:
        if stalls.remove(call):
            _done(call, convert, future)

    stalls.add(call, later.committing)
    later.future.add_done_callback(done)


def _done(call: Call, convert: Callable[[Any], Any], future: "Future[Any]") -> None:
    call.on_close = None
    try:
        call.succeed(convert(future.result()))
    except CancelledError:
        return
    except Malformed as err:
        call.reject(f"Failed to parse request: {call.method}: {err}")
    except errors.GenericError as err:
        call.fail(err)
    except Exception as err:  # noqa: BLE001 - logged
        _log.exception("luxi: %s failed", call.method)
        call.fail(errors.GenericError(f"{type(err).__name__}: {err}"))
