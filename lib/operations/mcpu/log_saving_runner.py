"""A runner that has the job's log stored before each act on a node.

After a crash of the master, the log then names each step that nodes may have begun.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ganeti.operations.mcpu.shared_answers import acts
from ganeti.protocols.rpc import Result, Runner, Target


class LogSavingRunner(Runner):
    """A runner that calls ``save_log`` before each call that acts.

    Args:
        inner: calls the nodes.
        save_log: returns when the log is on disk, see `ganeti.master.jqueue.Callbacks`.
    """

    def __init__(self, inner: Runner, save_log: Callable[[], None]) -> None:
        self._inner = inner
        self._save_log = save_log

    def call(
        self,
        procedure: str,
        nodes: Sequence[str],
        args: Sequence[Any] | Callable[[str], Sequence[Any]] = (),
        *,
        timeout_s: float | None = None,
    ) -> Mapping[str, Result]:
        """Call many nodes, see `Runner`."""
        if acts(procedure, args):
            self._save_log()
        return self._inner.call(procedure, nodes, args, timeout_s=timeout_s)


def at(
    inner: Callable[[Sequence[Target]], Runner], save_log: Callable[[], None]
) -> Callable[[Sequence[Target]], Runner]:
    """Return a maker of runners whose runners save the log, too."""
    return lambda targets: LogSavingRunner(inner(targets), save_log)
