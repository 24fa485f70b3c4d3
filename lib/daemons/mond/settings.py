"""Settings of the cluster for its agents: collectors, their intervals, heartbeats.

confd answers; without an answer the last one stays in force, so a node keeps reporting
while the master is down.
"""

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import disks
from ganeti.base.constants.protocols import confd, mond
from ganeti.protocols.confd.client import ConfdClient

_log = logging.getLogger(__name__)

_MICROSECONDS: Final = 1_000_000
_DIAGNOSE_POINTER: Final = "/cluster/diagnose_data_collector_filename"
_DEATH_POINTER: Final = "/cluster/node_death"
_TEMPLATES_POINTER: Final = "/cluster/enabled_disk_templates"
#: Limits of an interval in seconds, whatever the configuration says.
_SHORTEST_S: Final = 0.5
_LONGEST_S: Final = 86400.0
#: Seconds to wait for confd.
_PATIENCE_S: Final = 5.0


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the cluster.

    Attributes:
        inactive: collectors that are switched off.
        intervals: seconds between two collections, by name.
        diagnose: name of the diagnose command, empty for none.
        heartbeats: kinds of shared storage that get heartbeats; none while the cluster
            does not handle deaths of nodes.
    """

    inactive: frozenset[str] = frozenset()
    intervals: Mapping[str, float] = dataclasses.field(default_factory=dict)
    diagnose: str = ""
    heartbeats: tuple[str, ...] = ()

    def interval_s(self, name: str) -> float:
        """Return the interval of a collector."""
        return self.intervals.get(name, float(mond.MOND_TIME_INTERVAL))


def parse(
    collectors: Any, diagnose: Any, node_death: Any = None, templates: Any = None
) -> Settings:
    """Return the settings in answers of confd; what is malformed is left out."""
    inactive, intervals = set(), {}
    rows = collectors if isinstance(collectors, Mapping) else {}
    for name, row in rows.items():
        if not isinstance(row, Mapping):
            continue
        if row.get("active") is False:
            inactive.add(name)
        micros = row.get("interval")
        if isinstance(micros, int) and micros > 0:
            seconds = micros / _MICROSECONDS
            intervals[name] = min(max(seconds, _SHORTEST_S), _LONGEST_S)
    name = diagnose if isinstance(diagnose, str) else ""
    return Settings(frozenset(inactive), intervals, name, _kinds(node_death, templates))


def _kinds(node_death: Any, templates: Any) -> tuple[str, ...]:
    if node_death is not True or not isinstance(templates, Sequence):
        return ()
    return tuple(kind for kind in disks.DTS_SHARED_DIRS if kind in templates)


class Follower:
    """Reads the settings again and again. `present` is for all threads."""

    def __init__(self, connect: Callable[[], ConfdClient]) -> None:
        """Begin with the defaults.

        Args:
            connect: returns a client of the present candidates with the present key.
        """
        self._connect = connect
        self.present = Settings()
        self._shown = ""

    def refresh(self) -> bool:
        """Ask confd; keep the settings and return false if there is no answer."""
        try:
            client = self._connect()
            collectors = _answer(client, confd.CONFD_REQ_DATA_COLLECTORS, None)
            others = [
                _answer(client, confd.CONFD_REQ_CONFIG_QUERY, pointer)
                for pointer in (_DIAGNOSE_POINTER, _DEATH_POINTER, _TEMPLATES_POINTER)
            ]
        except (errors.GenericError, OSError) as err:
            self._show(f"settings stay as they were: {err}")
            return False
        before, self.present = self.present, parse(collectors, *others)
        self._show("settings are those of the cluster")
        if before.diagnose != self.present.diagnose:
            _log.info("diagnose command: %s", self.present.diagnose or "none")
        if before.heartbeats != self.present.heartbeats:
            kinds = ", ".join(self.present.heartbeats)
            _log.info("heartbeats on shared storage: %s", kinds or "none")
        return True

    def _show(self, text: str) -> None:
        """Log a state once."""
        if text != self._shown:
            _log.info("%s", text)
            self._shown = text


def _answer(client: ConfdClient, kind: int, query: Any) -> Any:
    result = client.ask(kind, query, timeout_s=_PATIENCE_S)
    if result.reply is None:
        raise errors.ConfdClientError("no answer of confd")
    if not result.is_ok:
        # The path does not exist in the configuration of an older master.
        if kind == confd.CONFD_REQ_CONFIG_QUERY:
            return None
        raise errors.ConfdClientError(f"confd: error {result.reply.answer!r:.80}")
    return result.reply.answer
