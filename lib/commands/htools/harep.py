"""``harep``: repair instances of failed nodes, within the limits of their tags.

``ganeti.automation.autorepair`` does the work, for the watcher as well; this module
parses options and prints.
"""

import os
import sys
import uuid
from typing import Final

from ganeti.automation import autorepair
from ganeti.base import clock, errors, pathutils
from ganeti.base.constants import versions
from ganeti.commands.htools import loading, sources
from ganeti.commands.htools.loading import ProgramError
from ganeti.commands.htools.options import ParsedOptions

NAME: Final = "harep"
_HEADING: Final = "Instance status count"
#: Seconds that another run of harep or of the watcher may take.
_LOCK_WAIT_S: Final = 60.0


class _Printer:
    """Messages on the standard output, and errors on the error output."""

    def detail(self, text: str) -> None:
        print(text)

    def info(self, text: str) -> None:
        print(text)

    def warning(self, text: str) -> None:
        self._report("Warning", text)

    def error(self, text: str) -> None:
        self._report("Error", text)

    @staticmethod
    def _report(word: str, text: str) -> None:
        sys.stdout.flush()
        sys.stderr.write(f"{word}: {text}\n")


def main() -> int:
    """Run the program."""
    return loading.main(NAME, _run, sys.argv[1:])


def _run(parsed: ParsedOptions) -> int:
    if parsed["jd"] < 0:
        raise ProgramError(f"job delay: wanted 0 or more, found {parsed['jd']:g}")
    if parsed["dry"]:
        return _repair(parsed)
    paths = pathutils.from_environ(os.environ)
    try:
        with autorepair.exclusive(paths, timeout_s=_LOCK_WAIT_S):
            return _repair(parsed)
    except errors.LockError as err:
        raise ProgramError(
            "another run of harep or of the watcher repairs instances; try again when"
            f" it has ended: {err.args[0]}"
        ) from err


def _repair(parsed: ParsedOptions) -> int:
    settings = autorepair.RunSettings(
        source=NAME,
        reason=parsed["reason"] or f"{NAME} {versions.RELEASE_VERSION} called",
        comment=f"automated repairs by {NAME} {versions.RELEASE_VERSION}",
        job_delay_s=parsed["jd"],
        dry_run=parsed["dry"],
    )
    with sources.connect(parsed["L"] or "") as client:
        run = autorepair.RepairRun(
            client, clock.SystemClock(), settings, _Printer(), lambda: str(uuid.uuid4())
        )
        count = run.all()
    rule = "-" * len(_HEADING)
    print(f"{rule}\n{_HEADING}\n{rule}")
    for state in sorted(count):
        print(f"{state}: {count[state]}")
    return 1 if run.has_failed else 0


if __name__ == "__main__":
    sys.exit(main())
