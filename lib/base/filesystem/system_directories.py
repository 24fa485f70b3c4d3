"""Directories of the operating system, in which no disks are kept."""

from pathlib import PurePosixPath
from typing import Final

#: They, and directories below them, never hold disks.
SYSTEM_DIRECTORIES: Final = frozenset(
    {
        "/boot",
        "/dev",
        "/etc",
        "/home",
        "/proc",
        "/root",
        "/sys",
        *(
            f"{prefix}/{name}"
            for prefix in ("", "/usr", "/usr/local")
            for name in ("bin", "lib", "lib32", "lib64", "libx32", "sbin")
        ),
    }
)


def around(path: str) -> str | None:
    """Return the system directory that a normalised path is or is in, if any."""
    plain = PurePosixPath(path)
    if plain in (PurePosixPath(), PurePosixPath("/")):
        return "/"
    return next(
        (name for name in sorted(SYSTEM_DIRECTORIES) if plain.is_relative_to(name)),
        None,
    )
