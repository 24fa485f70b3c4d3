"""Settings of the cluster that the remote API follows."""

import logging
import threading
from typing import Final

from ganeti.base import errors
from ganeti.base.clock import Clock
from ganeti.daemons.rapi.handlers import Master

_log = logging.getLogger(__name__)

#: Seconds for which an answer of the master daemon is used, and of one that failed.
_FRESH_S: Final = 5.0
_REQUIRES: Final = "rapi_require_authentication"


class Settings:
    """Asks the master daemon for settings; for use by many threads."""

    def __init__(self, master: Master, clock: Clock) -> None:
        """Prepare; nothing is asked before the first question."""
        self._master = master
        self._clock = clock
        self._lock = threading.Lock()
        self._asked_at = float("-inf")
        #: Until the master daemon has answered once, nothing is open.
        self._requires = True

    def requires_authentication(self) -> bool:
        """Return whether reading needs credentials, as of the last seconds."""
        with self._lock:
            now = self._clock.monotonic()
            if now - self._asked_at >= _FRESH_S:
                self._asked_at = now
                try:
                    info = self._master.call("QueryClusterInfo", timeout_s=_FRESH_S)
                    # A daemon of an earlier release has no such setting.
                    self._requires = bool(info.get(_REQUIRES, False))
                except errors.GenericError as err:
                    _log.warning("the last known settings remain: %s", err)
            return self._requires
