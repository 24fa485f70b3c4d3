"""Sources of the collectors: files of the kernel, tasks of the helper, confd."""

import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants.protocols import confd
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths
from ganeti.node.collectors import block_devices
from ganeti.protocols.confd.client import ConfdClient

_log = logging.getLogger(__name__)
#: Largest file of the kernel that is read.
_MAX_FILE: Final = 8 << 20
_PATIENCE_S: Final = 5.0


@dataclasses.dataclass(frozen=True)
class Sources:
    """Sources of one node.

    Attributes:
        paths: of this node.
        ask: does a task of `ganeti.node.collectors.helper`, with an argument.
        connect: returns a client of confd.
        diagnose_name: returns the present name of the diagnose command.
        hypervisors: returns the enabled hypervisors.
    """

    paths: Paths
    ask: Callable[[str, str], Any]
    connect: Callable[[], ConfdClient]
    diagnose_name: Callable[[], str]
    hypervisors: Callable[[], Sequence[str]]

    def read(self, path: str) -> str:
        """Return the content of a file of the kernel."""
        return files.read_file(path, max_size=_MAX_FILE).decode(errors="replace")

    def instances(self) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
        """Return the primary and secondary instances of this node.

        Raises:
            ConfdClientError: there is no answer.
        """
        answer = self._confd(confd.CONFD_REQ_NODE_INSTANCES, self.paths.hostname)
        if not isinstance(answer, list) or len(answer) != 2:
            raise errors.ConfdClientError("confd: no two lists of instances")
        primaries, secondaries = (
            [row for row in rows if isinstance(row, Mapping)]
            for rows in answer
            if isinstance(rows, list)
        )
        return primaries, secondaries

    def volume_owners(self) -> dict[tuple[str, str], str]:
        """Return the instance of each logical volume; none if confd is silent."""
        owners: dict[tuple[str, str], str] = {}
        try:
            for instance in [row for rows in self.instances() for row in rows]:
                name = str(instance.get("name"))
                disks = self._confd(confd.CONFD_REQ_INSTANCE_DISKS, name)
                if isinstance(disks, list):
                    owners |= block_devices.volumes_of(name, disks)
        except (errors.GenericError, OSError) as err:
            _log.info("instances of the logical volumes: %s", err)
        return owners

    def minor_owners(self) -> dict[int, str]:
        """Return the instance of each DRBD minor; none if confd is silent."""
        try:
            rows = self._confd(confd.CONFD_REQ_NODE_DRBD, self.paths.hostname)
        except (errors.GenericError, OSError) as err:
            _log.info("instances of the DRBD devices: %s", err)
            return {}
        return minor_owners(rows)

    def _confd(self, kind: int, query: Any) -> Any:
        result = self.connect().ask(kind, query, timeout_s=_PATIENCE_S)
        if not result.is_ok or result.reply is None:
            raise errors.ConfdClientError("no answer of confd")
        return result.reply.answer


def minor_owners(rows: Any) -> dict[int, str]:
    """Return the instance of each minor in an answer of confd."""
    return {
        row[1]: str(row[2])
        for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, list) and len(row) >= 3 and isinstance(row[1], int)
    }
