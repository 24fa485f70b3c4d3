"""Limits that both ends of our HTTP know."""

from typing import Final

#: Limit of each read and write step of a server, in seconds.
STEP_TIMEOUT_S: Final = 10
#: How long a refused peer may take to hang up, in seconds.
CLOSE_TIMEOUT_S: Final = 1
#: Servers keep unused connections for this long, in seconds.
IDLE_TIMEOUT_S: Final = 75
#: Clients use them again for this long only, so that a request and a server's
#: goodbye do not cross.
REUSE_S: Final = IDLE_TIMEOUT_S - 15
#: Largest request body, in bytes: a snapshot of a large cluster fits.
MAX_BODY: Final = 128 * 1024 * 1024
#: Largest answer, in bytes.
MAX_ANSWER: Final = 256 * 1024 * 1024
