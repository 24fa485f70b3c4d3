"""Exit codes of commands and daemons."""

from typing import Final

EXIT_SUCCESS: Final = 0
EXIT_FAILURE: Final = 1
#: The user declined; where Ganeti 3 has this code, not EXIT_CONFIRMATION.
EXIT_DECLINED: Final = 2
EXIT_NOTMASTER: Final = 11
EXIT_NODESETUP_ERROR: Final = 12
#: User confirmation needed.
EXIT_CONFIRMATION: Final = 13
#: A query named an unknown field.
EXIT_UNKNOWN_FIELD: Final = 14
