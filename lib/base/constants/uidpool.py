"""Limits of the user-id pool."""

from typing import Final

UIDPOOL_UID_MIN: Final = 0
UIDPOOL_UID_MAX: Final = 4294967295
