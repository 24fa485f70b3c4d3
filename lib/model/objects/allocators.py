"""The cluster's default allocators, as the cluster record has them.

``own,hail`` names those of every type of request, in the order of their use.
``allocate=own,hail:relocate=hail`` names them by type; in ``hail:relocate=own``, the
part without a type stands for all other types.
"""

from collections.abc import Mapping, Sequence
from typing import Final

IALLOCATOR_MODE_ALLOC: Final = "allocate"
IALLOCATOR_MODE_RELOC: Final = "relocate"
IALLOC_HAIL: Final = "hail"
#: Means the cluster default.
DEFAULT_IALLOCATOR_SHORTCUT: Final = "."


#: Key of the names for all types that are not named.
OTHERS: Final = ""


def parse(setting: str) -> list[tuple[str, list[str]]]:
    """Return the types of requests with their names, each once per type."""
    out = []
    for part in setting.split(":"):
        kind, _, names = part.rpartition("=")
        cleaned = (name.strip() for name in names.split(","))
        out.append((kind.strip(), [name for name in dict.fromkeys(cleaned) if name]))
    return out


def format_(by_type: Mapping[str, Sequence[str]]) -> str:
    """Return the setting for names by type."""
    return ":".join(
        f"{kind}={','.join(names)}" if kind else ",".join(names)
        for kind, names in by_type.items()
        if kind or names
    )


def chosen(name: str, setting: str, kind: str) -> list[str]:
    """Return the allocators that a name stands for, in order; may be empty.

    Args:
        name: of an allocator, or ``.`` for the default ones.
        setting: of the cluster.
        kind: type of the request, such as ``allocate``.
    """
    if name != DEFAULT_IALLOCATOR_SHORTCUT:
        return [name]
    by_type = dict(parse(setting))
    return by_type.get(kind, by_type.get(OTHERS, []))
