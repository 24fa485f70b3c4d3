"""``xen-console-wrapper``: connect a terminal to the console of a guest of Xen.

Runs on the guest's node, usually over SSH by ``gnt-instance console``. A guest that was
started paused is resumed after a moment, so that its first output is visible. Control-]
leaves the console; the guest continues.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, NoReturn

from ganeti.base import clock, errors, pathutils, process
from ganeti.base.constants import exitcodes, versions
from ganeti.base.text import arguments
from ganeti.node.hypervisor.base import NodeEffects
from ganeti.node.hypervisor.xen import migration, xl
from ganeti.node.hypervisor.xen.files import Files

NAME: Final = "xen-console-wrapper"
#: Seconds before a paused guest is resumed.
_UNPAUSE_AFTER_S: Final = 3.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog=NAME,
        description="Connect to the console of a Xen instance on this node.",
        epilog="Control-] leaves the console.",
        formatter_class=arguments.Formatter,
    )
    version = f"{NAME} (ganeti) {versions.RELEASE_VERSION}"
    parser.add_argument("--version", action="version", version=version)
    parser.add_argument("command", choices=(xl.PROGRAM,), help="program of Xen")
    parser.add_argument("instance", help="name of the instance")
    options = parser.parse_args(argv)
    effects = NodeEffects(
        pathutils.from_environ(os.environ), process.SystemRunner(), clock.SystemClock()
    )
    try:
        if is_paused(effects, options.instance):
            _in_background(lambda: _unpause_later(effects, options.instance))
        sys.stdout.write(f"Connecting to {options.instance}, Control-] leaves.\r\n")
        sys.stdout.flush()
        _become([xl.PROGRAM, "console", options.instance])
    except (errors.GenericError, OSError) as err:
        print(f"{NAME}: {err}", file=sys.stderr)
    return exitcodes.EXIT_FAILURE


def is_paused(effects: NodeEffects, name: str) -> bool:
    """Return whether a guest waits for its console.

    Raises:
        HypervisorError: it does not run here.
    """
    xl.domain(name)
    rows = xl.guests(xl.domains(xl.check(effects, "Xen", "list")))
    for row in rows:
        if row.name == name and not row.has_ended:
            return row.is_paused
    raise errors.HypervisorError(f"instance {name}: not running here")


def _unpause_later(effects: NodeEffects, name: str) -> None:
    time.sleep(_UNPAUSE_AFTER_S)
    unpause(effects, name, lambda text: print(text, end="\r\n", file=sys.stderr))


def unpause(effects: NodeEffects, name: str, say: Callable[[str], None]) -> None:
    """Resume a guest, unless somebody has done so, or it waits in a migration.

    It could run on two nodes then, or with a memory that does not fit its disks.

    Raises:
        HypervisorError: it does not run any more, or xl fails.
    """
    guest = Files(effects.paths, name)
    has_left = migration.status(guest).status == "completed"
    if migration.is_running(guest) or has_left or migration.arrival(guest):
        return
    if is_paused(effects, name):
        say(f"Instance {name} is paused, unpausing")
        xl.check(effects, f"instance {name}", "unpause", name)


def _in_background(work: Callable[[], None]) -> None:
    """Do work in a child; errors are not shown, as the guest may have ended."""
    if os.fork():
        return
    try:
        work()
    except errors.GenericError:
        os._exit(exitcodes.EXIT_FAILURE)
    os._exit(exitcodes.EXIT_SUCCESS)


def _become(argv: Sequence[str]) -> NoReturn:
    """Go on as another program."""
    environment = {**os.environ, "PATH": process.SAFE_PATH}
    os.execvpe(argv[0], list(argv), environment)  # noqa: S606
