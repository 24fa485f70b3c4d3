"""Instance policies: the sizes and ratios that a group or a cluster accepts.

Values only; ``json_reader`` reads them from requests, ``text`` from files.
"""

import enum
from typing import Final

import msgspec

#: Templates in the order of the built-in policy.
TEMPLATES: Final = (
    "diskless",
    "file",
    "sharedfile",
    "plain",
    "blockdev",
    "drbd",
    "rbd",
    "ext",
    "gluster",
)


class AllocPolicy(enum.StrEnum):
    """How willingly a group takes new instances."""

    PREFERRED = "preferred"
    LAST_RESORT = "last_resort"
    UNALLOCABLE = "unallocable"


class Spec(msgspec.Struct, frozen=True):
    """Size of an instance in a policy; memory and disk in MiB."""

    memory: int
    cpus: int
    disk: int
    disks: int
    nics: int
    spindles: int


class Policy(msgspec.Struct, frozen=True):
    """The instances that a group or cluster accepts."""

    std: Spec
    ranges: tuple[tuple[Spec, Spec], ...]
    templates: tuple[str, ...]
    vcpu_ratio: float
    spindle_ratio: float

    def flaw(self) -> str:
        """Return the contradiction in the policy as text; empty if there is none."""
        for low, high in self.ranges:
            for field in Spec.__struct_fields__:
                least, most = getattr(low, field), getattr(high, field)
                if least > most:
                    return f"{field}: minimum {least}, maximum {most}"
        return ""


_SMALLEST: Final = Spec(128, 1, 1024, 1, 1, 1)
#: Policy of a cluster that sets none.
DEFAULT_POLICY: Final = Policy(
    std=_SMALLEST,
    ranges=((_SMALLEST, Spec(32768, 8, 1048576, 16, 8, 12)),),
    templates=TEMPLATES,
    vcpu_ratio=4.0,
    spindle_ratio=32.0,
)
