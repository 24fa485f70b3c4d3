"""Values and errors of the remote API that programs import from the client."""

__all__ = [
    "ECODE_ALL", "ECODE_ENVIRON", "ECODE_EXISTS", "ECODE_FAULT", "ECODE_INVAL",
    "ECODE_NOENT", "ECODE_NORES", "ECODE_NOTUNIQUE", "ECODE_RESOLVER",
    "ECODE_STATE", "ECODE_TEMP_NORES", "GANETI_RAPI_PORT", "GANETI_RAPI_VERSION",
    "HTTP_APP_JSON", "HTTP_DELETE", "HTTP_GET", "HTTP_NOT_FOUND", "HTTP_OK",
    "HTTP_POST", "HTTP_PUT", "INST_CREATE_REQV1", "INST_REINSTALL_REQV1",
    "JOB_STATUS_ALL", "JOB_STATUS_CANCELED", "JOB_STATUS_CANCELING",
    "JOB_STATUS_ERROR", "JOB_STATUS_FINALIZED", "JOB_STATUS_PENDING",
    "JOB_STATUS_QUEUED", "JOB_STATUS_RUNNING", "JOB_STATUS_SUCCESS",
    "JOB_STATUS_WAITING", "JOB_STATUS_WAITLOCK", "NODE_EVAC_ALL", "NODE_EVAC_PRI",
    "NODE_EVAC_RES1", "NODE_EVAC_SEC", "NODE_MIGRATE_REQV1", "NODE_ROLE_DRAINED",
    "NODE_ROLE_MASTER", "NODE_ROLE_MASTER_CANDIDATE", "NODE_ROLE_OFFLINE",
    "NODE_ROLE_REGULAR", "REPLACE_DISK_AUTO", "REPLACE_DISK_CHG",
    "REPLACE_DISK_PRI", "REPLACE_DISK_SECONDARY", "CertificateError", "Error",
    "GanetiApiError",
]  # fmt: skip

GANETI_RAPI_PORT = 5080
GANETI_RAPI_VERSION = 2

HTTP_DELETE = "DELETE"
HTTP_GET = "GET"
HTTP_POST = "POST"
HTTP_PUT = "PUT"
HTTP_OK = 200
HTTP_NOT_FOUND = 404
HTTP_APP_JSON = "application/json"

REPLACE_DISK_PRI = "replace_on_primary"
REPLACE_DISK_SECONDARY = "replace_on_secondary"
REPLACE_DISK_CHG = "replace_new_secondary"
REPLACE_DISK_AUTO = "replace_auto"

NODE_EVAC_PRI = "primary-only"
NODE_EVAC_SEC = "secondary-only"
NODE_EVAC_ALL = "all"

NODE_ROLE_DRAINED = "drained"
NODE_ROLE_MASTER = "master"
NODE_ROLE_MASTER_CANDIDATE = "master-candidate"
NODE_ROLE_OFFLINE = "offline"
NODE_ROLE_REGULAR = "regular"

JOB_STATUS_QUEUED = "queued"
JOB_STATUS_WAITING = "waiting"
#: Older name.
JOB_STATUS_WAITLOCK = JOB_STATUS_WAITING
JOB_STATUS_CANCELING = "canceling"
JOB_STATUS_RUNNING = "running"
JOB_STATUS_CANCELED = "canceled"
JOB_STATUS_SUCCESS = "success"
JOB_STATUS_ERROR = "error"
JOB_STATUS_PENDING = frozenset(
    {JOB_STATUS_QUEUED, JOB_STATUS_WAITING, JOB_STATUS_CANCELING}
)
JOB_STATUS_FINALIZED = frozenset(
    {JOB_STATUS_CANCELED, JOB_STATUS_SUCCESS, JOB_STATUS_ERROR}
)
JOB_STATUS_ALL = frozenset(
    {JOB_STATUS_RUNNING, *JOB_STATUS_PENDING, *JOB_STATUS_FINALIZED}
)

# Features of servers.
INST_CREATE_REQV1 = "instance-create-reqv1"
INST_REINSTALL_REQV1 = "instance-reinstall-reqv1"
NODE_MIGRATE_REQV1 = "node-migrate-reqv1"
NODE_EVAC_RES1 = "node-evac-res1"
#: Not in Ganeti: without it a server does what it was to plan.
PLAN = "plan"

# Codes of errors in results of jobs.
ECODE_RESOLVER = "resolver_error"
ECODE_NORES = "insufficient_resources"
ECODE_TEMP_NORES = "temp_insufficient_resources"
ECODE_INVAL = "wrong_input"
ECODE_STATE = "wrong_state"
ECODE_NOENT = "unknown_entity"
ECODE_EXISTS = "already_exists"
ECODE_NOTUNIQUE = "resource_not_unique"
ECODE_FAULT = "internal_error"
ECODE_ENVIRON = "environment_error"
ECODE_ALL = frozenset(
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


class Error(Exception):
    """Root of this module's errors; by itself, the client is used wrongly."""


class GanetiApiError(Error):
    """The server refused a request, or it could not be reached.

    Attributes:
        code: status of HTTP, or the error number of the transport library; None if
            there is neither.
    """

    def __init__(self, msg: str, code: int | None = None) -> None:
        Error.__init__(self, msg)
        self.code = code


class CertificateError(GanetiApiError):
    """The certificate of the server is not trusted."""
