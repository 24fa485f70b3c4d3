"""Polls of the agents of many nodes, in which a slow node delays no other.

A command of a node may take a minute, so an answer may come after the poll that asked
for it. A later poll has it then, and until then the node is not asked again.
"""

import dataclasses
import logging
import secrets
import threading
from collections.abc import Callable, Mapping
from typing import Final

from ganeti.automation.maintenance import diagnoses
from ganeti.automation.maintenance.diagnoses import Diagnosis, Place, RefusedError
from ganeti.base.clock import Clock
from ganeti.base.constants import timeouts

_log = logging.getLogger(__name__)

#: Why a node has no diagnosis that was asked for some time ago.
LATE: Final = "its agent has not answered yet; its command may hang"
#: Seconds until a poll goes on without an answer: a node without power is noticed by
#: then, so what is late has at least accepted the connection.
PROMPT_S: Final = timeouts.RPC_CONNECT_TIMEOUT + 1.0
#: Nodes that are asked at once, without those that are late.
_AT_ONCE: Final = 32
#: Seconds for which an answer is of use: a command that hangs takes 60.
_KEPT_S: Final = 90.0

#: Returns the answer of a node to a challenge, for a path; see `diagnoses.fetch`.
Fetch = Callable[[Place, str, str], bytes]


@dataclasses.dataclass
class _Question:
    """A question to a node.

    Attributes:
        place: of its agent.
        began: monotonic time.
        ended: monotonic time of the answer; None without one.
        answer: the diagnosis, or why there is none.
    """

    place: Place
    began: float
    ended: float | None = None
    answer: Diagnosis | str = LATE


class Poller:
    """Asks agents. For use by one thread."""

    def __init__(
        self,
        key: Callable[[], bytes],
        clock: Clock,
        path: str = diagnoses.PATH,
        *,
        fetch: Fetch = diagnoses.fetch,
        prompt_s: float = PROMPT_S,
    ) -> None:
        """Prepare.

        Args:
            key: returns the content of the key file.
            clock: times of answers.
            path: of the report.
            fetch: asks a node.
            prompt_s: seconds until a poll goes on without an answer.
        """
        self._key = key
        self._clock = clock
        self._path = path
        self._fetch = fetch
        self._prompt_s = prompt_s
        self._has_ended = threading.Condition()
        #: UUID of a node -> the question that its agent has not answered in time.
        self._late: dict[str, _Question] = {}
        #: UUID of a node -> its last question with an answer.
        self._last: dict[str, _Question] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether the last poll went on without an answer."""
        return bool(self._late)

    def poll(
        self, places: Mapping[str, Place]
    ) -> tuple[dict[str, Diagnosis], dict[str, str]]:
        """Return diagnoses, and why other nodes have none, by the keys of the places.

        While the answer of a node is late, its answer before counts for some time.

        Raises:
            GenericError, OSError: the key cannot be read.
        """
        key = self._key()
        with self._has_ended:
            asked = self._sorted_out(places)
            for uuid, place in places.items():
                if uuid not in asked:
                    self._wait(asked, _AT_ONCE - 1)
                    asked[uuid] = self._ask(place, key)
            new = {u: each for u, each in asked.items() if u not in self._late}
            self._wait(new, 0)
            return self._results(asked)

    def _sorted_out(self, places: Mapping[str, Place]) -> dict[str, _Question]:
        """Return the questions that need not be asked again; forget others."""
        for known in (self._late, self._last):
            for uuid, question in list(known.items()):
                if places.get(uuid) != question.place:
                    del known[uuid]
        self._late = {
            uuid: question
            for uuid, question in self._late.items()
            if question.ended is None or self._is_of_use(question)
        }
        return dict(self._late)

    def _is_of_use(self, question: _Question) -> bool:
        """Return whether an answer came recently."""
        now = self._clock.monotonic()
        return question.ended is not None and now - question.ended < _KEPT_S

    def _fresh(self, asked: Mapping[str, _Question]) -> list[_Question]:
        """Return the questions without an answer that are not late."""
        now = self._clock.monotonic()
        return [
            each
            for each in asked.values()
            if each.ended is None and now - each.began < self._prompt_s
        ]

    def _wait(self, asked: Mapping[str, _Question], most: int) -> None:
        """Wait until at most some questions have no answer and are not late."""
        while len(fresh := self._fresh(asked)) > most:
            first = min(each.began for each in fresh)
            left_s = first + self._prompt_s - self._clock.monotonic()
            self._has_ended.wait(max(0.0, left_s))

    def _ask(self, place: Place, key: bytes) -> _Question:
        """Ask in a thread of its own: one that is late takes the place of no other."""
        question = _Question(place, self._clock.monotonic())

        def work() -> None:
            answer = self._answer(place, key)
            with self._has_ended:
                question.answer = answer
                question.ended = self._clock.monotonic()
                self._has_ended.notify()

        threading.Thread(target=work, name=f"poll {place.name}", daemon=True).start()
        return question

    def _answer(self, place: Place, key: bytes) -> Diagnosis | str:
        challenge = secrets.token_hex(16)
        try:
            answer = self._fetch(place, challenge, self._path)
            return diagnoses.check(
                *(answer, key, place.name, challenge, self._clock.time()),
                path=self._path,
            )
        except RefusedError as err:
            return str(err)
        except Exception as err:  # noqa: BLE001 - logged, and the node is asked again
            # Without an answer, the node would stay late and not be asked again.
            _log.exception("node %s: its answer cannot be read", place.name)
            return f"its answer cannot be read: {type(err).__name__}"

    def _results(
        self, asked: Mapping[str, _Question]
    ) -> tuple[dict[str, Diagnosis], dict[str, str]]:
        self._late = {u: each for u, each in asked.items() if each.ended is None}
        ended = {u: each for u, each in asked.items() if each.ended is not None}
        self._last |= ended
        good: dict[str, Diagnosis] = {}
        problems: dict[str, str] = {}
        for uuid, question in asked.items():
            used = question
            if uuid in self._late and uuid in self._last:
                before = self._last[uuid]
                used = before if self._is_of_use(before) else question
            if isinstance(used.answer, Diagnosis):
                good[uuid] = used.answer
            else:
                problems[uuid] = used.answer
        return good, problems
