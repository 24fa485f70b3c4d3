"""Counters of block devices from /proc/diskstats. Pure."""

from typing import Any, Final

#: Members in the order of the kernel's fields; newer kernels have more fields, see
#: Documentation/admin-guide/iostats.rst of the kernel.
_MEMBERS: Final = (
    *("readsNum", "mergedReads", "secRead", "timeRead", "writes", "mergedWrites"),
    *("secWritten", "timeWrite", "ios", "timeIO", "wIOmillis"),
)


def parse(text: str) -> list[dict[str, Any]]:
    """Return the counters of each device.

    Raises:
        ValueError: a line has another form.
    """
    rows = []
    for line in text.splitlines():
        words = line.split()
        if not words:
            continue
        if len(words) < len(_MEMBERS) + 3:  # major, minor, name
            raise ValueError(f"line of {len(words)} words: {line[:80]!r}")
        counters = [int(word) for word in words[3 : len(_MEMBERS) + 3]]
        device = {"major": int(words[0]), "minor": int(words[1]), "name": words[2]}
        rows.append(device | dict(zip(_MEMBERS, counters, strict=True)))
    return rows
