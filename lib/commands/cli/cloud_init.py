"""``--cloud-init``: files of the caller that become private OS parameters.

The options need no quoting of the content, and no command line or log shows it.
"""

import os
import stat
from typing import Any

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.constants.parameters import cloud_init

#: Value of a parameter that removes it.
_REMOVED = "default"


def private_parameters(opts: Any, *, may_remove: bool = False) -> dict[str, Any] | None:
    """Return the private OS parameters of a request, None without any.

    Args:
        opts: options with ``osparams_private`` and ``cloud_init``.
        may_remove: ``NAME=`` without a file removes that file of the seed.

    Raises:
        OpPrereqError: an unknown file of a seed, or one that cannot be read, is too
            large or is not text; or a parameter that is given twice.
    """
    given = dict(opts.osparams_private or {})
    for name, path in opts.cloud_init.items():
        if name not in cloud_init.FILES:
            raise _refusal(
                f"{name}: wanted one of {', '.join(cloud_init.FILES)} and a file, as in"
                " user-data=FILE"
            )
        parameter = f"{cloud_init.PREFIX}{name}"
        if parameter in given:
            raise _refusal(f"{name}: is also given as private OS parameter {parameter}")
        if may_remove and path == "":
            given[parameter] = _REMOVED
        else:
            given[parameter] = _read(name, str(path or ""), cloud_init.FILES[name])
    return given or None


def _read(name: str, path: str, limit: int) -> str:
    try:
        # Not blocked by a pipe without a writer.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as src:
            if not stat.S_ISREG(os.fstat(src.fileno()).st_mode):
                raise _refusal(f"{name}: {path} is not a regular file")
            data = src.read(limit + 1)
    except OSError as err:
        raise _refusal(f"{name}: cannot read {path!r}: {err.strerror}") from err
    if len(data) > limit:
        raise _refusal(f"{name}: {path}: wanted at most {limit} bytes, found more")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise _refusal(f"{name}: {path} is not text in UTF-8") from None


def _refusal(text: str) -> errors.OpPrereqError:
    return errors.OpPrereqError(f"--cloud-init {text}", ecodes.ECODE_INVAL)
