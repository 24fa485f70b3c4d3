"""OS scripts of instances that ran when an earlier master daemon ended."""

import logging
from typing import Final

from ganeti.base.constants import instance as constants
from ganeti.master.config import Config

_log = logging.getLogger(__name__)

_OWNER: Final = "start of the master daemon"
#: Mark while a script runs -> mark of one that is not known to have ended well.
_AFTER: Final = {
    constants.CREATION_INSTALLING: constants.CREATION_INTERRUPTED,
    constants.CREATION_RENAMING: constants.CREATION_RENAME_CUT,
}


def mark_creations(config: Config) -> None:
    """Mark the instances whose job ended while its OS script ran.

    Call it before jobs run: one that goes on with its work removes the mark at the end.

    Raises:
        StorageError: nothing was changed.
    """
    names = [
        instance.name
        for instance in config.snapshot().instances.values()
        if instance.creation in _AFTER
    ]
    if not names:
        return
    with config.edit(_OWNER) as edit:
        for instance in edit.snapshot.instances.values():
            if instance.creation in _AFTER:
                edit.update(instance.replace(creation=_AFTER[instance.creation]))
    _log.warning("instances whose OS script did not finish: %s", ", ".join(names))
