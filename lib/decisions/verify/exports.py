"""Checks of the export directories of nodes.

An export that is being made is written to all the time, so the node does not count it.
"""

from collections.abc import Mapping
from typing import Final

from ganeti import _buildconf
from ganeti.decisions.verify.report import Report
from ganeti.model import objects

_TEXTS: Final = {
    "unfinished": "was not finished, and nothing has written to it for an hour; remove"
    " it there",
    "foreign": "is no export; if nobody needs it, remove it there",
}


def judge(
    report: Report,
    snapshot: objects.Snapshot,
    remains: Mapping[str, Mapping[str, str]],
) -> None:
    """Warn of what is in export directories beside complete exports.

    Args:
        report: collects the findings.
        snapshot: the configuration.
        remains: node uuid -> name -> ``unfinished`` or ``foreign``; other kinds, which
            a node of a later release may report, are ignored.
    """
    for uuid in sorted(remains, key=lambda uuid: snapshot.nodes[uuid].name):
        for name, kind in sorted(remains[uuid].items()):
            report.error_if(
                kind in _TEXTS,
                "ENODEORPHANLV",
                snapshot.nodes[uuid].name,
                f"{_buildconf.EXPORT_DIR}/{name} {_TEXTS.get(kind)}",
                warn_only=True,
            )
