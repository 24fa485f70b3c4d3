"""Watching the transfer programs of nodes: status, words of failures, progress.

A program outlives the daemon of its node. So a node that does not answer for a while,
as when its daemon is restarted, does not end a transfer.
"""

from typing import Any, Final

from ganeti.base import errors
from ganeti.operations import base, progress
from ganeti.operations.instance import common
from ganeti.protocols import rpc
from ganeti.protocols.rpc import calls
from ganeti.protocols.rpc.answers import Transfer

#: Seconds between two polls: at the beginning, and at most.
_FIRST_POLL_S: Final = 0.05
_POLL_S: Final = 2.0
#: Seconds until a start is repeated that was not answered.
_AGAIN_S: Final = 1.0
#: Seconds that the other end of a broken transfer gets to notice it.
DETAILS_S: Final = 10.0
#: Characters of a message or line of a node that an error shows.
_MAX_WORDS: Final = 1000
#: Seconds between two progress lines.
REPORT_S: Final = 60.0

_NO_STATUS: Final = Transfer()


def is_running(status: Transfer) -> bool:
    """Return whether a program has not ended, as far as is known."""
    return status.exit_status is None


def has_failed(status: Transfer) -> bool:
    """Return whether a program has ended without success."""
    return bool(status.exit_status)


class Watch:
    """The questions to the nodes about one operation's transfer programs."""

    def __init__(self, ctx: base.Context, what: str) -> None:
        """Start watching.

        Args:
            ctx: dependencies of the opcode.
            what: the transfer, for errors.
        """
        self._ctx = ctx
        self._what = what
        self._wait_s = _FIRST_POLL_S
        self._silent_since: dict[str, float] = {}
        self._last: dict[tuple[str, str], Transfer] = {}

    def hurry(self) -> None:
        """Ask often again, as at the beginning."""
        self._wait_s = _FIRST_POLL_S

    def pause(self) -> None:
        """Wait until the next poll is due.

        Raises:
            Canceled: a client asked to kill the job.
        """
        self._ctx.pause(self._wait_s)
        self._wait_s = min(_POLL_S, self._wait_s * 1.5)

    def start(self, node: str, request: rpc.Request[str]) -> str:
        """Start a program; return its name.

        The call is repeated while the node does not answer, as when its daemon is
        restarted. The node starts one program for one key of a request.

        Raises:
            OpExecError: it was not started, or the node is silent for
                `common.SILENCE_S` seconds.
        """
        begun = self._ctx.clock.monotonic()
        is_reported = False
        while True:
            answer = self._ctx.rpc.call_node(node, request)
            is_unsure = answer.failed and (answer.is_silent or answer.is_lost)
            silent_s = self._ctx.clock.monotonic() - begun
            if not is_unsure or silent_s >= common.SILENCE_S:
                return answer.unwrap(self._what)
            if not is_reported:
                self._ctx.log.info(
                    f"node {self._ctx.node_name(node)} did not answer when its"
                    f" end of the transfer was started; it is asked again for"
                    f" {common.SILENCE_S:g} s"
                )
                is_reported = True
            self._ctx.pause(_AGAIN_S)

    def status(self, node: str, name: str) -> Transfer:
        """Return the status of a program, empty if it has none yet.

        Args:
            node: uuid.
            name: of the program.

        Raises:
            OpExecError: the node refuses to say, or is silent for
                `common.SILENCE_S` seconds.
        """
        answer = self._ctx.rpc.call_node(node, calls.impexp_status([name]))
        if answer.failed and (answer.is_silent or answer.is_lost):
            return self._silent(node, name, answer)
        self._silent_since.pop(node, None)
        statuses = answer.unwrap(f"{self._what}: cannot ask for the progress")
        # A program that has just been started has not written a status.
        status = statuses[0] or _NO_STATUS
        self._last[node, name] = status
        return status

    def _silent(self, node: str, name: str, answer: Any) -> Transfer:
        """Return the last known status of a node that does not answer for a while."""
        now = self._ctx.clock.monotonic()
        if node not in self._silent_since:
            self._ctx.log.info(
                f"node {self._ctx.node_name(node)} does not answer; its end of"
                f" the transfer goes on, and is asked again for {common.SILENCE_S:g} s"
            )
        if now - self._silent_since.setdefault(node, now) >= common.SILENCE_S:
            answer.unwrap(
                f"{self._what}: no news of the transfer for {common.SILENCE_S:g} s"
            )
        return self._last.get((node, name), _NO_STATUS)

    def wait_for_port(self, node: str, name: str, limit_s: float) -> int:
        """Return the port on which an import listens.

        Raises:
            OpExecError: it failed, or does not listen in time.
        """
        deadline = self._ctx.clock.monotonic() + limit_s
        while True:
            status = self.status(node, name)
            if has_failed(status):
                raise errors.OpExecError(f"{self._what}: {self.words(node, status)}")
            if status.listen_port:
                return status.listen_port
            if self._ctx.clock.monotonic() >= deadline:
                raise errors.OpExecError(
                    f"{self._what}: the import on node"
                    f" {self._ctx.node_name(node)} does not listen after"
                    f" {limit_s:g} s"
                )
            self.pause()

    def words(self, node: str, status: Transfer) -> str:
        """Return the node of a program, and why it says it failed."""
        name = self._ctx.node_name(node)
        if is_running(status):
            return f"node {name}: has reported nothing within {DETAILS_S:g} s"
        given = status.error_message or "failed without a message"
        text = f"{given:.{_MAX_WORDS}}"
        # A program prints its message as well, so it is often among these lines.
        lines = [line for line in status.recent_output or () if text not in line]
        last = " / ".join(f"{line:.{_MAX_WORDS}}" for line in lines[-3:])
        more = f" ({last})" if lines else ""
        return f"node {name}: {text}{more}"


class Report:
    """Progress of a transfer: rare job log lines, frequent entries for terminals."""

    def __init__(self, ctx: base.Context, what: str, size_mib: int) -> None:
        self._ctx = ctx
        self._what = what
        self._size_mib = size_mib
        self._last = ctx.clock.monotonic()
        self._progress = progress.Progress(ctx, f"copying {what}", size_mib)

    def report_progress(self, status: Transfer) -> None:
        """Report the progress that a program states."""
        done = float(status.progress_mbytes or 0)
        rate, left_s = status.progress_throughput, status.progress_eta
        self._progress.at(done, rate=rate, left_s=left_s)
        now = self._ctx.clock.monotonic()
        if now - self._last >= REPORT_S:
            text = progress.line(self._what, done, self._size_mib, rate, left_s)
            self._ctx.log.message(f"* {text}")
            self._last = now
