"""Timeouts that both ends of a protocol know, in seconds."""

from typing import Final

#: Connect, seconds.
LUXI_DEF_CTMO: Final = 30
#: Read/write, seconds.
LUXI_DEF_RWTO: Final = 180
#: Longest WaitForJobChange, seconds.
LUXI_WFJC_TIMEOUT: Final = 89
#: Seconds.
LUXI_CANCEL_JOB_TIMEOUT: Final = 44
WCONFD_DEF_CTMO: Final = 10
WCONFD_DEF_RWTO: Final = 60
RPC_CONNECT_TIMEOUT: Final = 5
RPC_TMO_URGENT: Final = 60
RPC_TMO_FAST: Final = 300
RPC_TMO_NORMAL: Final = 900
RPC_TMO_SLOW: Final = 3600
RPC_TMO_4HRS: Final = 14400
RPC_TMO_1DAY: Final = 86400
RPC_ENCODING_NONE: Final = 0
RPC_ENCODING_ZLIB_BASE64: Final = 1
#: Longest time that a user may state: 100 years. Later times have no date on some
#: platforms.
LONGEST_S: Final = 100 * 366 * 86400
#: Seconds between idle notices in clients.
CLI_WFJC_FREQUENCY: Final = 20
DEFAULT_WFJC_TIMEOUT: Final = 60
TCP_PING_TIMEOUT: Final = 10
CHILD_LINGER_TIMEOUT: Final = 5.0
#: Seconds.
WCONFD_DEATHDETECTION_INTERVALL: Final = 311
DISK_REMOVE_RETRY_TIMEOUT: Final = 30
DISK_REMOVE_RETRY_INTERVAL: Final = 3
