"""The check of the cluster's default allocators, see `objects.allocators`."""

import os
from collections.abc import Sequence
from typing import Final, get_args

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.text import messages
from ganeti.master.iallocator import builtin, requests
from ganeti.model.objects import allocators

#: Types of requests, in the order of the normal form of the setting.
TYPES: Final = tuple(str(kind.type) for kind in get_args(requests.Request))


def checked(setting: str, directories: Sequence[str]) -> str:
    """Return a setting in normal form: no spaces, each name once per type.

    Args:
        setting: see `ganeti.model.objects.allocators`; empty for none.
        directories: where the programs are.

    Raises:
        OpPrereqError: a type or an allocator does not exist, or a type occurs twice.
    """
    parts = allocators.parse(setting)
    by_type = dict(parts)
    for kind in messages.repeated(kind for kind, _names in parts):
        raise _refused(f"{kind or 'a list for all other types'} is given twice")
    for kind in by_type:
        if kind not in (allocators.OTHERS, *TYPES):
            raise _refused(
                f"unknown type of request {kind!r:.60};"
                f" {messages.known_names(kind, TYPES)}"
            )
    known = {builtin.NAME, *_programs(directories)}
    for name in (name for names in by_type.values() for name in names):
        if name not in known:
            raise _refused(
                f"{name:.60}: no such program in {', '.join(directories)};"
                f" {messages.known_names(name, known)}"
            )
    order = (allocators.OTHERS, *TYPES)
    return allocators.format_(
        {kind: by_type[kind] for kind in order if kind in by_type}
    )


def _programs(directories: Sequence[str]) -> list[str]:
    return [
        name
        for directory in directories
        if os.path.isdir(directory)
        for name in os.listdir(directory)
        if os.path.isfile(path := os.path.join(directory, name))
        and os.access(path, os.X_OK)
    ]


def _refused(text: str) -> errors.OpPrereqError:
    return errors.OpPrereqError(f"default_iallocator: {text}", ecodes.ECODE_INVAL)
