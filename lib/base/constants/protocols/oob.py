"""Out-of-band commands and status words."""

from typing import Final

OOB_POWER_ON: Final = "power-on"
OOB_POWER_OFF: Final = "power-off"
OOB_POWER_CYCLE: Final = "power-cycle"
OOB_POWER_STATUS: Final = "power-status"
OOB_HEALTH: Final = "health"
OOB_COMMANDS: Final = ("health", "power-cycle", "power-off", "power-on", "power-status")
#: Key of the power-status answer object.
OOB_POWER_STATUS_POWERED: Final = "powered"
OOB_STATUS_OK: Final = "OK"
OOB_STATUS_WARNING: Final = "WARNING"
OOB_STATUS_CRITICAL: Final = "CRITICAL"
OOB_STATUS_UNKNOWN: Final = "UNKNOWN"
OOB_STATUSES: Final = ("CRITICAL", "OK", "UNKNOWN", "WARNING")
#: Error of a helper that did not end in time.
OOB_TIMED_OUT: Final = (
    "OOB program execution timeout exceeded, OOB program execution aborted"
)
#: Helpers that run at the same time. One takes 10 MiB, and waits most of its time.
OOB_AT_ONCE: Final = 128
#: Value of the node parameter ``oob_program``: no helper, whatever could be inherited.
OOB_OPT_OUT: Final = "!"
#: Longest name of a health item, in characters.
OOB_ITEM_CHARS: Final = 200
