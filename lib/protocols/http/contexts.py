"""The TLS context of a server whose certificate may be replaced while it runs."""

import logging
import os
import threading
from collections.abc import Callable, Sequence

from OpenSSL import SSL

from ganeti.base import errors
from ganeti.base.filesystem import files

_log = logging.getLogger(__name__)


class ReloadedContext:
    """A context that is made again when one of its files changes.

    Connections that exist keep theirs. If the new files cannot be used, the last
    context stays: a node with a broken disk must still obey the master.
    """

    def __init__(self, make: Callable[[], SSL.Context], paths: Sequence[str]) -> None:
        """Make the first context.

        Args:
            make: returns a context of the present files.
            paths: the files, which are replaced atomically.

        Raises:
            X509CertError: the files cannot be used.
        """
        self._make = make
        self._paths = paths
        self._lock = threading.Lock()
        self._seen = self._look()
        self._context = make()

    def __call__(self) -> SSL.Context:
        """Return the context for a new connection."""
        with self._lock:
            seen = self._look()
            if seen is not None and seen != self._seen:
                self._seen = seen
                try:
                    self._context = self._make()
                    _log.info("loaded the certificate %s", self._paths[0])
                except (errors.X509CertError, OSError) as err:
                    _log.error("keeping the last certificate: %s", err)
            return self._context

    def _look(self) -> tuple[tuple[int, ...], ...] | None:
        """Return the identity of the files, None if they cannot be examined."""
        try:
            return tuple(
                (*files.version(path), os.stat(path).st_mode) for path in self._paths
            )
        except OSError:
            return None
