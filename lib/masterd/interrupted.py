"""Installations of instances that ended with an earlier master daemon."""

import logging
from typing import Final

from ganeti.config import Config
from ganeti.constants.instance import CREATION_INSTALLING, CREATION_INTERRUPTED

_log = logging.getLogger(__name__)

_OWNER: Final = "start of the master daemon"


def mark_creations(config: Config) -> None:
    """Mark the instances whose job ended while its OS script ran.

    Call it before jobs run: one that goes on with an installation removes the mark at
    the end.

    Raises:
        StorageError: nothing was changed.
    """
    names = [
        instance.name
        for instance in config.snapshot().instances.values()
        if instance.creation == CREATION_INSTALLING
    ]
    if not names:
        return
    with config.edit(_OWNER) as edit:
        for instance in edit.snapshot.instances.values():
            if instance.creation == CREATION_INSTALLING:
                edit.update(instance.replace(creation=CREATION_INTERRUPTED))
    _log.warning("instances whose installation did not finish: %s", ", ".join(names))
