"""Values of the remote API that programs import from the client."""

from typing import Final

GANETI_RAPI_PORT: Final = 5080
GANETI_RAPI_VERSION: Final = 2

HTTP_DELETE: Final = "DELETE"
HTTP_GET: Final = "GET"
HTTP_POST: Final = "POST"
HTTP_PUT: Final = "PUT"
HTTP_OK: Final = 200
HTTP_NOT_FOUND: Final = 404
HTTP_APP_JSON: Final = "application/json"

REPLACE_DISK_PRI: Final = "replace_on_primary"
REPLACE_DISK_SECONDARY: Final = "replace_on_secondary"
REPLACE_DISK_CHG: Final = "replace_new_secondary"
REPLACE_DISK_AUTO: Final = "replace_auto"

NODE_EVAC_PRI: Final = "primary-only"
NODE_EVAC_SEC: Final = "secondary-only"
NODE_EVAC_ALL: Final = "all"

NODE_ROLE_DRAINED: Final = "drained"
NODE_ROLE_MASTER: Final = "master"
NODE_ROLE_MASTER_CANDIDATE: Final = "master-candidate"
NODE_ROLE_OFFLINE: Final = "offline"
NODE_ROLE_REGULAR: Final = "regular"

JOB_STATUS_QUEUED: Final = "queued"
JOB_STATUS_WAITING: Final = "waiting"
#: Older name.
JOB_STATUS_WAITLOCK: Final = JOB_STATUS_WAITING
JOB_STATUS_CANCELING: Final = "canceling"
JOB_STATUS_RUNNING: Final = "running"
JOB_STATUS_CANCELED: Final = "canceled"
JOB_STATUS_SUCCESS: Final = "success"
JOB_STATUS_ERROR: Final = "error"
JOB_STATUS_PENDING: Final = frozenset(
    {JOB_STATUS_QUEUED, JOB_STATUS_WAITING, JOB_STATUS_CANCELING}
)
JOB_STATUS_FINALIZED: Final = frozenset(
    {JOB_STATUS_CANCELED, JOB_STATUS_SUCCESS, JOB_STATUS_ERROR}
)
JOB_STATUS_ALL: Final = frozenset(
    {JOB_STATUS_RUNNING, *JOB_STATUS_PENDING, *JOB_STATUS_FINALIZED}
)

# Features of servers.
INST_CREATE_REQV1: Final = "instance-create-reqv1"
INST_REINSTALL_REQV1: Final = "instance-reinstall-reqv1"
NODE_MIGRATE_REQV1: Final = "node-migrate-reqv1"
NODE_EVAC_RES1: Final = "node-evac-res1"

# Codes of errors in results of jobs.
ECODE_RESOLVER: Final = "resolver_error"
ECODE_NORES: Final = "insufficient_resources"
ECODE_TEMP_NORES: Final = "temp_insufficient_resources"
ECODE_INVAL: Final = "wrong_input"
ECODE_STATE: Final = "wrong_state"
ECODE_NOENT: Final = "unknown_entity"
ECODE_EXISTS: Final = "already_exists"
ECODE_NOTUNIQUE: Final = "resource_not_unique"
ECODE_FAULT: Final = "internal_error"
ECODE_ENVIRON: Final = "environment_error"
ECODE_ALL: Final = frozenset(
    {
        ECODE_RESOLVER,
        ECODE_NORES,
        ECODE_TEMP_NORES,
        ECODE_INVAL,
        ECODE_STATE,
        ECODE_NOENT,
        ECODE_EXISTS,
        ECODE_NOTUNIQUE,
        ECODE_FAULT,
        ECODE_ENVIRON,
    }
)
