"""The report of a round to the decision journal, from its beginning to its end.

A round is reported before the first job is submitted, with the ids of its jobs, and
with the ends that it waited for. So a program that is killed leaves its decisions.
"""

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from ganeti.base import errors
from ganeti.decisions.repair import journal
from ganeti.decisions.repair.journal import Decision, Item, JobEnd, Round
from ganeti.decisions.repair.limits import Act, Automation, Refusal

_log = logging.getLogger(__name__)
#: Part of the answer of a master daemon of a release without a method.
_UNKNOWN: Final = "unknown method"

Value = TypeVar("Value")
#: Calls a method of the master daemon.
Call = Callable[[str, Sequence[Any]], Any]


class Recorder:
    """One round under way.

    Attributes:
        id: UUID of the round, for the reason trails of its jobs.
        automation: limits as last asked for, with the moves of the round.
    """

    def __init__(self, call: Call, automaton: str, scope: str = "") -> None:
        """Begin a round.

        Raises:
            GenericError: the master does not answer.
        """
        self._call = call
        self.id = str(uuid.uuid4())
        self._moved: list[str] = []
        self._has_journal = True
        self.automation = Automation()
        self._refresh()
        self._round = Round(
            round=self.id,
            automaton=automaton,
            scope=scope,
            revision=self.automation.revision,
        )
        self._is_reported = True

    def reason(self, now_ns: int) -> list[Any]:
        """Return the entry of a reason trail that names this round."""
        return journal.reason(self.id, now_ns)

    def add(self, *items: Item) -> None:
        """Note objects and the decisions about them."""
        self._change(items=(*self._round.items, *items))

    def note_jobs(self, kind: str, jobs: Mapping[str, int], action: str) -> None:
        """Note the jobs that were submitted for objects.

        Args:
            kind: of the objects.
            jobs: name of the object -> id.
            action: of the items.
        """
        self._update(
            kind,
            action,
            jobs,
            lambda item, job: msgspec.structs.replace(item, jobs=(*item.jobs, job)),
        )

    def note_refusals(self, kind: str, refused: Mapping[str, str], action: str) -> None:
        """Note that the master did not accept the jobs for objects.

        Args:
            kind: of the objects.
            refused: name of the object -> error.
            action: of the items.
        """
        self._update(
            kind,
            action,
            refused,
            lambda item, error: msgspec.structs.replace(
                item, decision=Decision.REFUSED, reason=error
            ),
        )

    def note_ends(self, ends: Iterable[JobEnd]) -> None:
        """Note the ends of jobs."""
        ends = tuple(ends)
        if ends:
            self._change(results=(*self._round.results, *ends))

    def report(self) -> str:
        """Send the round as far as it is known; return why that failed, or ""."""
        if not self._has_journal:
            return ""
        try:
            self._call("RecordRound", [msgspec.to_builtins(self._round)])
        except errors.GenericError as err:
            return f"the round is not in the journal: {err}"
        self._is_reported = True
        return ""

    def finish(self) -> str:
        """Send the round if it was never sent, or has changed since."""
        if self._is_reported and self._round.items:
            return ""
        return self.report()

    def note_move(self, instance: str) -> None:
        """Count an instance that a job of the round moves."""
        self._moved.append(instance)

    def refusal(self, act: Act, now: float, instance: str = "") -> Refusal | None:
        """Return why an act must not be done now; see `Automation.refusal`.

        The master is asked again, since a round can take minutes and a freeze holds
        whatever comes after it.

        Raises:
            GenericError: the master does not answer.
        """
        self._refresh()
        return self.automation.refusal(act, now, instance)

    def _refresh(self) -> None:
        known = load(self._call)
        self._has_journal = known is not None
        self.automation = known or Automation()
        for name in self._moved:
            self.automation = self.automation.with_move(name)

    def _update(
        self,
        kind: str,
        action: str,
        values: Mapping[str, Value],
        change: Callable[[Item, Value], Item],
    ) -> None:
        """Change the items of a kind and an action whose objects have a value."""
        if values:
            items = (
                change(item, values[item.name])
                if (item.kind, item.action) == (kind, action) and item.name in values
                else item
                for item in self._round.items
            )
            self._change(items=tuple(items))

    def _change(self, **changes: Any) -> None:
        self._round = msgspec.structs.replace(self._round, **changes)
        self._is_reported = False


def load(call: Call) -> Automation | None:
    """Return the present limits; None if the master daemon has none, and no journal.

    That is so during an upgrade, while the daemon of an earlier release runs.

    Raises:
        GenericError: the master does not answer.
    """
    try:
        return _convert(call("QueryAutomation", []))
    except errors.RequestError as err:
        if _UNKNOWN not in str(err):
            raise
        _log.warning(
            "the master daemon is of an earlier release without limits of automation"
            " and journal; going on without them"
        )
        return None


def _convert(answer: Any) -> Automation:
    """Return the limits in an answer of the master.

    Raises:
        ProtocolError: it is of another form, so nothing may be done.
    """
    try:
        return msgspec.convert(answer, Automation)
    except msgspec.ValidationError as err:
        raise errors.ProtocolError(f"QueryAutomation: {err}") from err
