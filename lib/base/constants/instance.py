"""Administrative and operational states of instances."""

from typing import Final

ADMINST_UP: Final = "up"
ADMINST_DOWN: Final = "down"
ADMINST_OFFLINE: Final = "offline"
#: Progress of an installation in an instance's record; empty once it has ended.
CREATION_INSTALLING: Final = "installing"
CREATION_INTERRUPTED: Final = "interrupted"
#: The same of the rename script of its operating system.
CREATION_RENAMING: Final = "renaming"
CREATION_RENAME_CUT: Final = "rename-interrupted"
#: Priority of reservations whose memory may be taken by a failover.
RESERVATION_LOW: Final = "low"
INSTST_RUNNING: Final = "running"
INSTST_ADMINDOWN: Final = "ADMIN_down"
INSTST_ADMINOFFLINE: Final = "ADMIN_offline"
INSTST_NODEOFFLINE: Final = "ERROR_nodeoffline"
INSTST_NODEDOWN: Final = "ERROR_nodedown"
INSTST_WRONGNODE: Final = "ERROR_wrongnode"
INSTST_ERRORUP: Final = "ERROR_up"
INSTST_ERRORDOWN: Final = "ERROR_down"
INSTST_USERDOWN: Final = "USER_down"

#: Part of the answer of a node that refuses a second script beside one that runs.
OS_SCRIPT_RUNS: Final = "a script of its operating system still runs"
