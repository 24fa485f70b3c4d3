"""The text of the OpenAPI document, made by a process that ends.

The tables of opcodes and of queries take 12 MiB, which a daemon would keep for all its
life, and the document is asked for once in a while.
"""

import logging
import os
import sys
import threading
from typing import TYPE_CHECKING, Final

import ganeti
from ganeti.base import errors

if TYPE_CHECKING:
    from collections.abc import Callable

    from ganeti.base.process import Runner

_log = logging.getLogger(__name__)

_COSTLY: Final = "the OpenAPI document is made in the daemon, which costs memory"
#: Seconds that the process may take; it needs less than one of computing.
_LIMIT_S: Final = 60.0
#: Most bytes of the document; it has 180 KiB.
_MAX_SIZE: Final = 4 << 20
_PROGRAM: Final = """\
import sys
sys.path.insert(0, sys.argv[1])
from ganeti.daemons.rapi import openapi
sys.stdout.write(openapi.encoded().decode())
"""


class Document:
    """The document of this release, kept once it was made; for many threads."""

    def __init__(self, make_runner: "Callable[[], Runner]") -> None:
        """Prepare.

        Args:
            make_runner: returns what starts the process; called when one is wanted.
        """
        self._make_runner = make_runner
        self._lock = threading.Lock()
        self._text = b""

    def __call__(self) -> bytes:
        """Return the document as JSON."""
        with self._lock:
            if not self._text:
                self._text = self._made_apart() or made_here()
            return self._text

    def _made_apart(self) -> bytes:
        """Return the text that the process makes, empty if it fails."""
        library = os.path.dirname(next(iter(ganeti.__path__)))
        try:
            result = self._make_runner().run_bounded(
                [sys.executable, "-I", "-c", _PROGRAM, library],
                timeout_s=_LIMIT_S,
                max_output=_MAX_SIZE,
            )
        except errors.CommandError as err:
            _log.warning("%s: %s", _COSTLY, err)
            return b""
        if result.failed:
            _log.warning("%s: %s: %s", _COSTLY, result.reason, result.stderr)
            return b""
        return result.stdout.encode()


def made_here() -> bytes:
    """Return the document as JSON; the tables stay in memory."""
    from ganeti.daemons.rapi import openapi

    return openapi.encoded()
