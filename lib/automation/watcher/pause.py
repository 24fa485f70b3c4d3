"""The pause file: until when the watcher rests."""

import logging
import math
from typing import Final

from ganeti.base import errors
from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths

_log = logging.getLogger(__name__)
_NAME: Final = "watcher.pause"
#: Seconds after its end at which a pause file is removed.
_KEPT_S: Final = 3600.0
#: Bytes; the file has one number.
_MAX_SIZE: Final = 1000


def until(paths: Paths, now: float) -> float | None:
    """Return the end of the present pause, None without a pause.

    A file without a time, or whose time passed long ago, is removed.

    Args:
        paths: of this node.
        now: seconds since 1970.
    """
    path = paths.data(_NAME)
    try:
        end = _time(files.read_file(path, max_size=_MAX_SIZE))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, errors.GenericError) as err:
        _log.warning("%s: removed, wanted a time: %s", path, err)
        files.remove_file(path)
        return None
    if end > now:
        return end
    if now - end > _KEPT_S:
        _log.info("%s: removed, the pause has ended", path)
        files.remove_file(path)
    return None


def _time(data: bytes) -> float:
    end = float(data)
    if not math.isfinite(end):
        raise ValueError(f"found {end}")
    return end
