"""``command`` and ``copyfile``: over SSH to some nodes or all."""

from typing import Final

_RULER: Final = "-" * 48
