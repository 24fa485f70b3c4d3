"""Guests of this node that have lost a process beside their emulator, in the log.

Each loss is logged once, and once more when it is over. Nothing is repaired: a reboot
of the guest starts the process again, and is the administrator's choice.
"""

import json
import logging
import os
from typing import Final

from ganeti.automation.watcher.effects import Watch
from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.base.text.control_chars import escape

_log = logging.getLogger(__name__)
#: Losses that are in the log, below the state directory.
_STATE: Final = "watcher.lost-processes"
_LARGEST_STATE: Final = 1 << 20


def report(watch: Watch) -> None:
    """Log what has changed since the last run."""
    path = watch.paths.data(_STATE)
    known = _known(path)
    lost = _lost(watch)
    if lost is None or lost == known:
        return
    for text in sorted(lost - known):
        _log.warning("%s", escape(text))
    for text in sorted(known - lost):
        _log.info("over: %s", escape(text))
    try:
        if lost:
            files.write_file(path, json.dumps(sorted(lost)))
        else:
            files.remove_file(path)
    except OSError as err:
        _log.warning("%s: %s", path, err)


def _lost(watch: Watch) -> set[str] | None:
    """Return the losses as lines, None if they are unknown."""
    # Other nodes need not load the driver.
    if not os.path.isdir(f"{watch.paths.run_dir}/kvm-hypervisor/pid"):
        return set()
    from ganeti.node.hypervisor.kvm.devices import helper_processes

    try:
        lost = helper_processes.lost(watch.paths)
    except (errors.GenericError, OSError) as err:
        _log.warning("processes of guests: %s", err)
        return None
    return {
        f"instance {name}: {each.text}" for name, rows in lost.items() for each in rows
    }


def _known(path: str) -> set[str]:
    try:
        rows = json.loads(files.read_file(path, max_size=_LARGEST_STATE))
    except FileNotFoundError:
        return set()
    except (OSError, ValueError, errors.GenericError) as err:
        _log.warning("%s: %s", path, err)
        return set()
    known = rows if isinstance(rows, list) else []
    return {row for row in known if isinstance(row, str)}
