"""Resources, field kinds, result status and filter operators."""

from typing import Final

QR_CLUSTER: Final = "cluster"
QR_EXPORT: Final = "export"
QR_EXTSTORAGE: Final = "extstorage"
QR_FILTER: Final = "filter"
QR_GROUP: Final = "group"
QR_INSTANCE: Final = "instance"
QR_JOB: Final = "job"
QR_LOCK: Final = "lock"
QR_NETWORK: Final = "network"
QR_NODE: Final = "node"
QR_OS: Final = "os"
#: Answered by the queue daemon directly.
QR_VIA_LUXI: Final = (
    "export",
    "filter",
    "group",
    "instance",
    "job",
    "lock",
    "network",
    "node",
)
QFT_ALL: Final = (
    "bool",
    "float",
    "number",
    "other",
    "text",
    "timestamp",
    "unit",
    "unknown",
)
QFT_UNKNOWN: Final = "unknown"
QFT_TEXT: Final = "text"
QFT_BOOL: Final = "bool"
QFT_NUMBER: Final = "number"
QFT_NUMBER_FLOAT: Final = "float"
#: MiB.
QFT_UNIT: Final = "unit"
QFT_TIMESTAMP: Final = "timestamp"
QFT_OTHER: Final = "other"
RS_NORMAL: Final = 0
RS_UNKNOWN: Final = 1
RS_NODATA: Final = 2
RS_UNAVAIL: Final = 3
RS_OFFLINE: Final = 4
#: Status to [verbose text, short text] shown by list commands.
RSS_DESCRIPTION: Final = {
    1: ("(unknown)", "??"),
    2: ("(nodata)", "?"),
    3: ("(unavail)", "-"),
    4: ("(offline)", "*"),
}
QLANG_OP_OR: Final = "|"
QLANG_OP_AND: Final = "&"
QLANG_OP_NOT: Final = "!"
QLANG_OP_TRUE: Final = "?"
QLANG_OP_EQUAL: Final = "=="
QLANG_OP_EQUAL_LEGACY: Final = "="
QLANG_OP_NOT_EQUAL: Final = "!="
QLANG_OP_LT: Final = "<"
QLANG_OP_GT: Final = ">"
QLANG_OP_LE: Final = "<="
QLANG_OP_GE: Final = ">="
QLANG_OP_REGEXP: Final = "=~"
QLANG_OP_CONTAINS: Final = "=[]"
