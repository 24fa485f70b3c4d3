"""Pinning of a guest's virtual processors."""

import os
from typing import Final

from ganeti.base import errors
from ganeti.base.constants.parameters import hypervisors as hypervisor_constants
from ganeti.base.text import hv_syntax
from ganeti.node.hypervisor.kvm.qmp import Qmp

_ALL: Final = hypervisor_constants.CPU_PINNING_ALL


def assign(mask: str, vcpus: int) -> list[frozenset[int] | None]:
    """Return the processors of each virtual processor; a single part applies to all.

    Raises:
        HypervisorError: the mask has a wrong number of parts.
    """
    try:
        return hv_syntax.masks("kvm", mask, vcpus)
    except errors.ParseError as err:
        raise errors.HypervisorError(str(err)) from err


def pin(qmp: Qmp, name: str, mask: str) -> None:
    """Bind a guest's virtual processors to processors of the node.

    Raises:
        HypervisorError: the mask does not fit guest or node.
    """
    if mask == _ALL:
        return
    rows = sorted(qmp.execute("query-cpus-fast"), key=lambda row: row["cpu-index"])
    for row, cpus in zip(rows, assign(mask, len(rows)), strict=True):
        if cpus is None:
            continue
        try:
            os.sched_setaffinity(row["thread-id"], cpus)
        except OSError as err:
            raise errors.HypervisorError(
                f"instance {name}: cannot pin virtual processor {row['cpu-index']} to"
                f" {sorted(cpus)}: {err.strerror}"
            ) from err
