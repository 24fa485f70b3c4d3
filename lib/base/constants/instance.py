"""Administrative and operational states, reboot types, instance modes."""

from typing import Final

ADMINST_UP: Final = "up"
ADMINST_DOWN: Final = "down"
ADMINST_OFFLINE: Final = "offline"
ADMINST_ALL: Final = ("down", "offline", "up")
ADMIN_STATE_SOURCES: Final = ("admin", "user")
#: Progress of an installation in an instance's record; empty once it has ended.
CREATION_INSTALLING: Final = "installing"
CREATION_INTERRUPTED: Final = "interrupted"
#: The same of the rename script of its operating system.
CREATION_RENAMING: Final = "renaming"
CREATION_RENAME_CUT: Final = "rename-interrupted"
#: Priorities of reservations: memory of ``low`` ones may be taken by a failover.
RESERVATION_LOW: Final = "low"
RESERVATION_NORMAL: Final = "normal"
RESERVATION_HIGH: Final = "high"
RESERVATION_PRIORITIES: Final = (
    RESERVATION_LOW,
    RESERVATION_NORMAL,
    RESERVATION_HIGH,
)
INSTST_RUNNING: Final = "running"
INSTST_ADMINDOWN: Final = "ADMIN_down"
INSTST_ADMINOFFLINE: Final = "ADMIN_offline"
INSTST_NODEOFFLINE: Final = "ERROR_nodeoffline"
INSTST_NODEDOWN: Final = "ERROR_nodedown"
INSTST_WRONGNODE: Final = "ERROR_wrongnode"
INSTST_ERRORUP: Final = "ERROR_up"
INSTST_ERRORDOWN: Final = "ERROR_down"
INSTST_USERDOWN: Final = "USER_down"
INSTST_ALL: Final = (
    "ADMIN_down",
    "ADMIN_offline",
    "ERROR_down",
    "ERROR_nodedown",
    "ERROR_nodeoffline",
    "ERROR_up",
    "ERROR_wrongnode",
    "USER_down",
    "running",
)
INSTANCE_CREATE_MODES: Final = ("create", "import", "remote-import")
REBOOT_TYPES: Final = ("full", "hard", "soft")
INSTANCE_REBOOT_ALLOWED: Final = "reboot"
INSTANCE_COMMUNICATION_NETWORK4: Final = "169.254.0.0/16"
INSTANCE_COMMUNICATION_NETWORK6: Final = "fe80::/10"
INSTANCE_COMMUNICATION_NETWORK_LINK: Final = "communication_rt"
INSTANCE_COMMUNICATION_NETWORK_MODE: Final = "routed"
INSTANCE_COMMUNICATION_NIC_PREFIX: Final = "ganeti:communication:"
INSTANCE_COMMUNICATION_MAC_PREFIX: Final = "52:54:00"

#: Part of the answer of a node that refuses a second script beside one that runs.
OS_SCRIPT_RUNS: Final = "a script of its operating system still runs"
