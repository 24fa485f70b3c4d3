"""``post-upgrade``: what a change from an older release makes necessary once.

``gnt-cluster upgrade`` runs it on the master, with the old version, when all nodes run
the new release. It can be run by hand after ``cfgupgrade`` has imported an old cluster.
"""

import argparse
from collections.abc import Callable
from typing import Final

from ganeti.base import errors
from ganeti.base.filesystem import releases
from ganeti.base.pathutils import Paths
from ganeti.base.process import Runner, SystemRunner
from ganeti.node.services import environment
from ganeti.tools import common

NAME: Final = "post-upgrade"
_TIMEOUT_S: Final = 1500.0
#: Release that brought it -> options of ``gnt-cluster renew-crypto``.
_RENEWALS: Final = (
    ((2, 12, 5), "--new-node-certificates"),
    ((2, 13, 0), "--new-ssh-keys"),
)


def main() -> int:
    """Run the tool."""
    parser = common.parser(NAME, "Does what a change from an older release requires.")
    parser.add_argument("old", metavar="OLD_VERSION", help="X.Y.Z")
    options: argparse.Namespace = parser.parse_args()
    common.start_log(NAME, options)
    return common.run(
        NAME, lambda: work(common.own_paths(), SystemRunner(), options.old, print)
    )


def renewals(old: str) -> list[str]:
    """Return the options for renewals after a change from a release."""
    return [option for since, option in _RENEWALS if releases.key(old) < since]


def work(
    paths: Paths, process: Runner, old: str, feedback: Callable[[str], None]
) -> None:
    """Renew what clusters of the old release do not have.

    Raises:
        OpPrereqError: the version is malformed.
        OpExecError: a renewal failed.
    """
    for option in renewals(old):
        argv = [f"{paths.daemons_dir}/gnt-cluster", "renew-crypto", option, "-f"]
        feedback(" ".join(argv))
        result = process.run(argv, env=environment(paths), timeout_s=_TIMEOUT_S)
        if result.failed:
            raise errors.OpExecError(
                f"{' '.join(argv)} {result.reason}: {result.output.strip():.500}"
            )
