"""Sums over a cluster: what exists, and what is free, used and reserved."""

import msgspec
import numpy as np

from ganeti.decisions.htools.score import components
from ganeti.decisions.htools.state.node_state import ClusterState


class Totals(msgspec.Struct, frozen=True):
    """Sums over all nodes; memory and disk in MiB.

    ``available`` memory and disk are free beyond reserves; ``missing`` is memory that
    nodes use or that is unaccounted for; ``instances`` leaves out forthcoming ones;
    ``shares`` are CPUs in use divided by the ratios of the policies.
    """

    score: float
    instances: int
    memory: float
    disk: float
    cpus: float
    vcpus: float
    spindles: float
    free_memory: float
    available_memory: float
    used_memory: float
    missing_memory: float
    free_disk: float
    available_disk: float
    free_spindles: float
    used_vcpus: float
    shares: float
    most_memory: float
    most_disk: float

    @property
    def used_disk(self) -> float:
        """Disk in use."""
        return self.disk - self.free_disk

    @property
    def used_spindles(self) -> float:
        """Spindles in use."""
        return self.spindles - self.free_spindles


def totals(state: ClusterState) -> Totals:
    """Return the sums of a state."""
    # Memory of nodes that fail N+1 is not available, and no debt of others either.
    memory = np.maximum(0, state.unallocated - state.r_mem)
    # Disk beyond what --min-disk keeps free.
    disk = np.maximum(0, state.f_dsk - state.lo_dsk)
    # A ratio of 0 allows no CPUs, so there is nothing to divide.
    shares = np.divide(
        state.u_cpu,
        state.cpu_ratio,
        out=np.zeros(state.size),
        where=state.cpu_ratio != 0,
    )
    return Totals(
        score=components.value(state),
        instances=sum(not item.forthcoming for item in state.instances),
        memory=components.total(state.t_mem),
        disk=components.total(state.t_dsk),
        cpus=components.total(state.t_cpu),
        vcpus=components.total(state.hi_cpu),
        spindles=components.total(state.spindle_count),
        free_memory=components.total(state.unallocated),
        available_memory=components.total(memory),
        used_memory=components.total(state.i_mem),
        missing_memory=components.total(state.x_mem + state.n_mem),
        free_disk=components.total(state.f_dsk),
        available_disk=components.total(disk),
        free_spindles=components.total(state.f_spin),
        used_vcpus=components.total(state.u_cpu),
        shares=components.total(shares),
        most_memory=float(memory.max(initial=0)),
        most_disk=float(disk.max(initial=0)),
    )
