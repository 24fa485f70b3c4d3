"""Lock timing; the names are in ganeti.master.locking."""

from typing import Final

#: Taken shared by most opcodes, exclusively by a few.
BGL: Final = "BGL"
#: Seconds over which timeouts grow.
LOCK_ATTEMPTS_TIMEOUT: Final = 1800
#: Seconds.
LOCK_ATTEMPTS_MAXWAIT: Final = 75.0
#: Seconds.
LOCK_ATTEMPTS_MINWAIT: Final = 5.0
