"""One step of an upgrade on one node, for the program ``upgrade-node``.

Releases call the program of each other, so names and meaning of the steps, and of the
members of `Report`, stay as they are. Each step can be repeated.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from ganeti import _buildconf
from ganeti.base.errors import refusal
from ganeti.base.filesystem import files, releases
from ganeti.base.pathutils import Paths
from ganeti.base.process import Runner
from ganeti.node.services import Services
from ganeti.store import features, schema
from ganeti.store.database import Database

NAME: Final = "upgrade-node"
#: Place of the program in the directory of a release.
PLACE: Final = f"tools/{NAME}"
#: Seconds to wait for the end of another step: daemons may take long to start.
_TURN_S: Final = 300.0


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A node's answer.

    Attributes:
        release: that of the program.
        in_use: the release in use on the node.
        store: version of the store that the program writes.
        features: forms of the store that the program reads.
    """

    release: str
    in_use: str = ""
    store: int = 0
    features: tuple[str, ...] = ()


def run_step(
    paths: Paths,
    process: Runner,
    message: Mapping[str, Any],
    layout: releases.Layout,
) -> Report:
    """Run one step on this node.

    Args:
        paths: of this node.
        process: runs daemons' programs.
        message: ``step``, a key of `STEPS`; ``store``, a version of the store, for
            the step ``convert``.
        layout: the installed releases.

    Raises:
        OpPrereqError: the step is unknown, or a key is missing.
        GenericError: the step failed; it can be repeated.
        OSError: a link cannot be written.
    """
    step = STEPS.get(message.get("step", ""))
    if step is None:
        raise refusal(f"input: wanted a step ({', '.join(STEPS)})")
    # A step whose caller was killed may still run here.
    with files.locked(f"{paths.lock_dir}/{NAME}.lock", timeout_s=_TURN_S):
        step(Here(paths, Services(paths, process), layout), message)
    return Report(
        release=_buildconf.RELEASE_VERSION,
        in_use=releases.in_use(layout),
        store=schema.VERSION,
        features=tuple(sorted(features.KNOWN)),
    )


class Here:
    """This node; each method but the first is a step."""

    def __init__(
        self, paths: Paths, services: Services, layout: releases.Layout
    ) -> None:
        self._paths = paths
        self._services = services
        self._layout = layout

    def look(self, _message: Mapping[str, Any]) -> None:
        """Change nothing."""

    def stop(self, _message: Mapping[str, Any]) -> None:
        """Stop all daemons."""
        self._services.stop_all()

    def use(self, _message: Mapping[str, Any]) -> None:
        """Put the release of this program in use."""
        releases.use(self._layout, _buildconf.RELEASE_VERSION)

    def convert(self, message: Mapping[str, Any]) -> None:
        """Bring this node's store to a version, up or down.

        Raises:
            OpPrereqError: no version is given.
            ConfigurationError: the store is damaged, or the way is impossible.
        """
        text = str(message.get("store", ""))
        if not text.isdecimal():
            raise refusal(f"input: store: wanted a number, found {text!r:.20}")
        if not os.path.exists(self._paths.store_db):
            return
        # Opening brings it to the version of this release.
        db = Database(self._paths.store_db, create=False)
        try:
            if int(text) < schema.VERSION:
                db.file.downgrade(int(text))
        finally:
            db.close()

    def start(self, message: Mapping[str, Any]) -> None:
        """Start all daemons of this release.

        A watcher may have started those of another release.
        """
        self.stop(message)
        self.use(message)
        self._services.start_all()


#: Function by step.
STEPS: Final[dict[str, Callable[[Here, Mapping[str, Any]], None]]] = {
    "look": Here.look,
    "stop": Here.stop,
    "use": Here.use,
    "convert": Here.convert,
    "start": Here.start,
}
