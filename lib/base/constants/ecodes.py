"""Codes of OpPrereqError, which show who can correct the request."""

from typing import Final

#: The machine or network is not as needed.
ECODE_ENVIRON: Final = "environment_error"
#: Object exists already.
ECODE_EXISTS: Final = "already_exists"
#: Bad or missing argument.
ECODE_INVAL: Final = "wrong_input"
#: Object does not exist.
ECODE_NOENT: Final = "unknown_entity"
#: Not enough resources (memory, disk, nodes).
ECODE_NORES: Final = "insufficient_resources"
#: Name, address, mac and so on is in use.
ECODE_NOTUNIQUE: Final = "resource_not_unique"
#: Name does not resolve.
ECODE_RESOLVER: Final = "resolver_error"
#: Object is in the wrong state.
ECODE_STATE: Final = "wrong_state"
#: Not enough resources now, retry may help; the operation may be retried with more
#: locks.
ECODE_TEMP_NORES: Final = "temp_insufficient_resources"
