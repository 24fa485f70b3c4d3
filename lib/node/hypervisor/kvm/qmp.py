"""Synchronous client of a guest's control socket.

The library qemu.qmp implements the protocol; each session has its own event loop, so
that any thread may use it. An emulator serves one client at a time: sessions are short.
"""

import asyncio
import contextlib
import itertools
import logging
import os
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self, TypedDict, TypeVar

import msgspec
from qemu.qmp import (
    ConnectError,
    EventListener,
    ExecInterruptedError,
    ExecuteError,
    QMPClient,
    QMPError,
)

from ganeti.base import errors

T = TypeVar("T")
#: Events that somebody waits for. Others are not kept, and of these only so many of at
#: most so many characters: an emulator that was taken over can send them without end.
#: The library bounds each message, 10 MiB.
_WAITED_FOR: Final = ("DEVICE_DELETED",)
_MOST_EVENTS: Final = 1000
_MAX_EVENT: Final = 4096
#: Seconds for connecting and for each command.
TIMEOUT_S: Final = 5.0
#: Seconds before connecting again to an emulator that closed the connection before its
#: greeting, as it may at the end of an incoming migration on a busy machine.
_AGAIN_S: Final = (0.1, 0.2, 0.4, 0.8, 1.6)


class QmpCommandError(errors.HypervisorError):
    """The emulator refused a command."""


class QmpNotFoundError(QmpCommandError):
    """The emulator does not have the device that a command names."""


#: Class of an error in the protocol -> class here, if it has one of its own.
_REFUSALS: Final = {"DeviceNotFound": QmpNotFoundError}


class Qmp:
    """One session; a context manager.

    Args:
        path: path of the socket.
        name: name of the guest, for messages.
        timeout_s: for connecting and for each command.
    """

    def __init__(self, path: str, name: str, timeout_s: float = TIMEOUT_S) -> None:
        self._path = path
        self._name = name
        self._timeout_s = timeout_s
        self._make_client()

    def _make_client(self) -> None:
        self._client = QMPClient(self._name)
        self._client.logger.setLevel(logging.CRITICAL)
        seen = itertools.count()
        self._events = EventListener(
            _WAITED_FOR,
            lambda event: (
                len(str(event.get("data"))) <= _MAX_EVENT and next(seen) < _MOST_EVENTS
            ),
        )
        self._client.register_listener(self._events)

    def __enter__(self) -> Self:
        """Connect.

        Raises:
            HypervisorError: no answer.
        """
        self._loop = asyncio.new_event_loop()
        try:
            self._run(self._connect(), "connecting")
        except errors.HypervisorError as err:
            self._close()
            if os.path.exists(self._path):
                raise
            raise errors.HypervisorError(
                f"instance {self._name}: connecting: {self._path} does not exist; if"
                f" the guest runs, 'gnt-instance reboot {self._name}' makes it again"
            ) from err
        return self

    async def _connect(self) -> None:
        """Connect; repeat while the emulator has not ended the previous session."""
        for pause_s in _AGAIN_S:
            try:
                await self._open()
            except ConnectError as err:
                if not _is_hang_up(err):
                    raise
                await asyncio.sleep(pause_s)
                self._make_client()
            else:
                return
        await self._open()

    async def _open(self) -> None:
        try:
            await self._client.connect(self._path)
        except AssertionError as err:
            # The emulator closed the connection just after its greeting. The library
            # asserts that it is still open, and leaves the tasks of the session behind.
            await self._disconnect()
            raise ConnectError("Failed to keep the session", EOFError()) from err

    def __exit__(
        self,
        kind: type[BaseException] | None,
        err: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Disconnect."""
        self._close()

    def _close(self) -> None:
        self._loop.run_until_complete(self._disconnect())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def _disconnect(self) -> None:
        with contextlib.suppress(QMPError, OSError, EOFError, TimeoutError):
            await asyncio.wait_for(self._client.disconnect(), self._timeout_s)

    def _run(self, waiting: Any, what: str, timeout_s: float | None = None) -> Any:
        limit = self._timeout_s if timeout_s is None else timeout_s
        try:
            return self._loop.run_until_complete(asyncio.wait_for(waiting, limit))
        except TimeoutError:
            raise errors.HypervisorError(
                f"instance {self._name}: {what}: no answer from {self._path} in"
                f" {limit:g} s"
            ) from None
        except ExecuteError as err:
            kind = _REFUSALS.get(err.error_class, QmpCommandError)
            raise kind(f"instance {self._name}: {what}: {err}") from err
        except ExecInterruptedError as err:
            raise errors.HypervisorError(
                f"instance {self._name}: {what}: the emulator closed the connection"
            ) from err
        except (QMPError, OSError, EOFError) as err:
            raise errors.HypervisorError(
                f"instance {self._name}: {what}: {str(err) or type(err).__name__}"
            ) from err

    def execute(self, command: str, arguments: Mapping[str, Any] | None = None) -> Any:
        """Run a command and return its answer.

        Raises:
            QmpCommandError: the emulator refused the command; `QmpNotFoundError` if it
                has no such device.
            HypervisorError: no answer.
        """
        args = dict(arguments) if arguments is not None else None
        return self._run(self._client.execute(command, args), command)

    def send_fd(self, fd: int, name: str) -> None:
        """Pass an open file to the emulator under a name; both keep it open.

        Raises:
            HypervisorError: the file was not accepted.
        """

        async def send() -> None:
            self._client.send_fd_scm(fd)
            await self._client.execute("getfd", {"fdname": name})

        self._run(send(), f"getfd {name}")

    def add_fd(self, fd: int) -> str:
        """Pass an open file to the emulator; return the path that names it there.

        Raises:
            HypervisorError: the file was not accepted.
        """

        async def send() -> Any:
            self._client.send_fd_scm(fd)
            return await self._client.execute("add-fd")

        answer: Any = self._run(send(), "add-fd")
        return f"/dev/fdset/{answer['fdset-id']}"

    def wait_event(self, name: str, timeout_s: float, **data: Any) -> bool:
        """Wait for an event with these data; return false after the timeout.

        Events since the start of the session count.
        """

        async def wait() -> bool:
            async for event in self._events:
                content: Any = event.get("data", {})
                if event["event"] == name and data.items() <= content.items():
                    return True
            return False

        try:
            return bool(self._run(wait(), f"event {name}", timeout_s))
        except errors.HypervisorError:
            return False


def _is_hang_up(err: ConnectError) -> bool:
    """Return whether the emulator closed the connection while it was set up."""
    cause: BaseException | None = err
    while cause is not None:
        if isinstance(cause, EOFError | ConnectionResetError):
            return True
        cause = cause.exc if isinstance(cause, ConnectError) else cause.__cause__
    return False


class _Status(TypedDict):
    status: str


def checked(qmp: Qmp, command: str, kind: type[T]) -> T:
    """Run a command without arguments; return its answer as a type.

    Raises:
        HypervisorError: no answer, or one of another form.
    """
    try:
        return msgspec.convert(qmp.execute(command), kind)
    except msgspec.ValidationError as err:
        raise errors.HypervisorError(
            f"{command}: odd answer of the emulator: {err}"
        ) from err


def run_state(qmp: Qmp) -> str:
    """Return the state of a guest, a word of QEMU. Raises as `checked`."""
    return checked(qmp, "query-status", _Status)["status"]
