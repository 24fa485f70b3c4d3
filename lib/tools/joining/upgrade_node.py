"""``upgrade-node``: one step of an upgrade on one node, for ``gnt-cluster upgrade``.

Runs on each node, over SSH or on the master directly, with the step on its input, and
prints what it found as one JSON object.
"""

import sys
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from ganeti.base.filesystem import releases
from ganeti.base.pathutils import Paths
from ganeti.base.process import SystemRunner
from ganeti.bootstrap.upgrade import node
from ganeti.tools import common

_INPUT: Final[dict[str, common.Check]] = {
    "step": common.is_text,
    "store": common.is_text,
}


def main() -> int:
    """Run the tool."""

    def act(paths: Paths, message: Mapping[str, Any], dry_run: bool) -> None:
        if not dry_run:
            layout = releases.Layout.of_build()
            report = node.run_step(paths, SystemRunner(), message, layout)
            sys.stdout.write(msgspec.json.encode(report).decode() + "\n")

    return common.run_with_message(
        node.NAME, "Runs one step of an upgrade on this node.", _INPUT, act
    )
