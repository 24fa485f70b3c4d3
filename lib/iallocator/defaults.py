"""The cluster's default allocators: one name, or several separated by commas."""

import os
from collections.abc import Sequence
from typing import Final

from ganeti.iallocator import builtin

#: Name that stands for all default allocators.
DEFAULT_NAME: Final = "."


def chosen(name: str, setting: str) -> list[str]:
    """Return the allocators that a name stands for, in order; may be empty."""
    return names(setting) if name == DEFAULT_NAME else [name]


def names(setting: str) -> list[str]:
    """Return the names in the order of their use, each once; may be empty."""
    parts = [name.strip() for name in setting.split(",")]
    return [name for name in dict.fromkeys(parts) if name]


def tidied(setting: str) -> str:
    """Return a setting in normal form: names without spaces, each once."""
    return ",".join(names(setting))


def absent(setting: str, directories: Sequence[str]) -> list[str]:
    """Return the names that are neither built in nor a program in a directory."""
    return [
        name
        for name in names(setting)
        if name != builtin.NAME
        and not any(_is_program(directory, name) for directory in directories)
    ]


def _is_program(directory: str, name: str) -> bool:
    path = os.path.join(directory, name)
    return os.sep not in name and os.path.isfile(path) and os.access(path, os.X_OK)
