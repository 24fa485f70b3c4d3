"""Job and opcode status words, priorities and queue limits."""

from typing import Final

JOB_STATUS_QUEUED: Final = "queued"
#: Waiting for locks.
JOB_STATUS_WAITING: Final = "waiting"
JOB_STATUS_CANCELING: Final = "canceling"
JOB_STATUS_RUNNING: Final = "running"
JOB_STATUS_CANCELED: Final = "canceled"
JOB_STATUS_SUCCESS: Final = "success"
JOB_STATUS_ERROR: Final = "error"
#: Can still be cancelled.
JOBS_PENDING: Final = ("canceling", "queued", "waiting")
JOBS_FINALIZED: Final = ("canceled", "error", "success")
OP_PRIO_LOWEST: Final = 19
OP_PRIO_LOW: Final = 10
OP_PRIO_NORMAL: Final = 0
OP_PRIO_HIGH: Final = -10
OP_PRIO_HIGHEST: Final = -20
OP_PRIO_DEFAULT: Final = 0
#: Key inside an opcode result that submitted jobs.
JOB_IDS_KEY: Final = "jobs"
#: Followed by :<opcode>.
OPCODE_REASON_SRC_OPCODE: Final = "gnt:opcode"
OPCODE_REASON_SRC_WATCHER: Final = "gnt:watcher"
#: Log entry kind: text.
ELOG_MESSAGE: Final = "message"
#: Log entry kind: remote import data.
ELOG_REMOTE_IMPORT: Final = "remote-import"
#: Log entry kind: queue test.
ELOG_JQUEUE_TEST: Final = "jqueue-test"
#: Log entry kind: one line about the progress of a step; for terminals only.
ELOG_PROGRESS: Final = "progress"
#: Log entry kind: delay test socket.
ELOG_DELAY_TEST: Final = "delay-test"
#: Log entry kind: an allocator's choice with its reasons, see `ganeti.master.iallocator`.
ELOG_PLACEMENT: Final = "placement"
#: Kinds that no other implementation knows.
ELOG_ADDED: Final = frozenset({ELOG_PROGRESS, ELOG_PLACEMENT})
OPCODE_REASON_SRC_MAINTD: Final = "gnt:daemon:maintd"
#: Begin of the result of opcodes of a job that a filter rule refused; the uuid follows.
REJECTED_TEXT: Final = "rejected by filter rule"
