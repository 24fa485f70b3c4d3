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
JOB_STATUS_ALL: Final = (
    "canceled",
    "canceling",
    "error",
    "queued",
    "running",
    "success",
    "waiting",
)
#: Can still be cancelled.
JOBS_PENDING: Final = ("canceling", "queued", "waiting")
JOBS_FINALIZED: Final = ("canceled", "error", "success")
OP_STATUS_QUEUED: Final = "queued"
OP_STATUS_WAITING: Final = "waiting"
OP_STATUS_CANCELING: Final = "canceling"
OP_STATUS_RUNNING: Final = "running"
OP_STATUS_CANCELED: Final = "canceled"
OP_STATUS_SUCCESS: Final = "success"
OP_STATUS_ERROR: Final = "error"
OPS_FINALIZED: Final = ("canceled", "error", "success")
OP_PRIO_LOWEST: Final = 19
OP_PRIO_LOW: Final = 10
OP_PRIO_NORMAL: Final = 0
OP_PRIO_HIGH: Final = -10
OP_PRIO_HIGHEST: Final = -20
OP_PRIO_DEFAULT: Final = 0
#: Allowed when submitting.
OP_PRIO_SUBMIT_VALID: Final = (-10, 0, 10)
JOB_NOTCHANGED: Final = "nochange"
#: Key inside an opcode result that submitted jobs.
JOB_IDS_KEY: Final = "jobs"
JOB_ID_TEMPLATE: Final = "\\d+"
JOB_FILE_RE: Final = "^job-(\\d+)$"
JOB_QUEUE_SIZE_HARD_LIMIT: Final = 5000
#: Decimal of octal 0640.
JOB_QUEUE_FILES_PERMS: Final = 416
#: Archive/<id div 10000>/job-<id>.
JSTORE_JOBS_PER_ARCHIVE_DIRECTORY: Final = 10000
JOB_QUEUE_VERSION: Final = 1
#: Default of max_running_jobs.
LUXID_MAXIMAL_RUNNING_JOBS_DEFAULT: Final = 20
#: Default of max_tracked_jobs.
LUXID_MAXIMAL_TRACKED_JOBS_DEFAULT: Final = 25
#: Seconds between forced re-reads of running job files.
LUXID_JOBQUEUE_POLL_INTERVAL: Final = 307
LUXID_JOB_DEATH_DETECTION_RETRIES: Final = 3
#: Microseconds.
LUXID_JOB_DEATH_DELAY: Final = 100000
#: Key of the reason trail.
OPCODE_REASON: Final = "reason"
#: Key of the sequential flag.
OPCODE_SEQUENTIAL: Final = "sequential"
#: Gnt-* commands; followed by :<script>:<command>.
OPCODE_REASON_SRC_CLIENT: Final = "gnt:client"
#: Node daemon.
OPCODE_REASON_SRC_NODED: Final = "gnt:daemon:noded"
#: Followed by :<opcode>.
OPCODE_REASON_SRC_OPCODE: Final = "gnt:opcode"
OPCODE_REASON_SRC_PICKUP: Final = "gnt:daemon:masterd:pickup"
#: Remote API; followed by :<resource>:<method>.
OPCODE_REASON_SRC_RLIB2: Final = "gnt:library:rlib2"
#: Text given with --reason.
OPCODE_REASON_SRC_USER: Final = "gnt:user"
OPCODE_REASON_SRC_WATCHER: Final = "gnt:watcher"
OPCODE_REASON_SOURCES: Final = (
    "gnt:client",
    "gnt:daemon:masterd:pickup",
    "gnt:daemon:noded",
    "gnt:library:rlib2",
    "gnt:opcode",
    "gnt:user",
    "gnt:watcher",
)
#: Log entry kind: text.
ELOG_MESSAGE: Final = "message"
#: Log entry kind: list of texts.
ELOG_MESSAGE_LIST: Final = "message-list"
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
#: Seconds.
UPGRADE_QUEUE_DRAIN_TIMEOUT: Final = 129600
#: Seconds.
UPGRADE_QUEUE_POLL_INTERVAL: Final = 10
OPCODE_REASON_SRC_MAINTD: Final = "gnt:daemon:maintd"
#: Begin of the result of opcodes of a job that a filter rule refused; the uuid follows.
REJECTED_TEXT: Final = "rejected by filter rule"
