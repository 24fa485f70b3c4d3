"""The LUXI method that plans balancing; not in Ganeti.

The cluster is the one that a query sees, as ``hbal -L`` would; nothing is locked or
changed. Moves are jobs that the client submits if it wants them.
"""

from typing import Any

import msgspec

from ganeti import errors, query
from ganeti.constants import ecodes
from ganeti.masterd.calls import Later, World, method
from ganeti.query import clusterinfo


class Wanted(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is asked for; every member may be left out.

    Attributes:
        group: name or uuid of the only group to balance.
        max_moves: at most so many, below 0 for any number.
        min_gain: that a move must bring while the score is below ``min_gain_limit``.
        min_gain_limit: see ``min_gain``.
        evacuate: only move what has a node offline or drained.
        disk_moves: disks may be copied.
        instance_moves: instances may change their primary node.
        restricted: nothing migrates off a node that stays online.
        ignore_soft_errors: go beyond what policies advise against.
        static_memory: MiB that a KVM node takes for itself; 0 for what it reports.
        explain: tell reasons.
    """

    group: str | None = None
    max_moves: int = 100
    min_gain: float = 0.01
    min_gain_limit: float = 0.1
    evacuate: bool = False
    disk_moves: bool = True
    instance_moves: bool = True
    restricted: bool = False
    ignore_soft_errors: bool = False
    static_memory: int = 4096
    explain: bool = False


@method("PlanBalance")
def plan_balance(world: World, wanted: Wanted | None = None) -> Later:
    """Plan the moves that balance the cluster; see `Wanted` for the argument."""
    return Later(
        world.planning.submit(_plan, world, wanted or Wanted()), can_cancel=True
    )


def _plan(world: World, wanted: Wanted) -> dict[str, Any]:
    # Imported here: numbers take a while to load, and most masters never plan this.
    import numpy as np

    from ganeti.htools import balance, balancing, queried
    from ganeti.htools.legality import Options
    from ganeti.htools.model import DataError

    want = balancing.Want(
        group=wanted.group,
        goal=balance.Goal(
            min_gain=wanted.min_gain,
            min_gain_limit=wanted.min_gain_limit,
            max_length=wanted.max_moves,
        ),
        options=Options(
            disk_moves=wanted.disk_moves,
            instance_moves=wanted.instance_moves,
            restricted=wanted.restricted,
            force=wanted.ignore_soft_errors,
            evacuate=wanted.evacuate,
        ),
    )
    tables = {
        kind: queried.objects(
            query.query(world.sources(), kind, fields, None).to_dict(), fields, kind
        )
        for kind, fields in queried.FIELDS.items()
    }
    info = clusterinfo.cluster_info(world.config.snapshot())
    answers = queried.Answers(
        "cluster", tables["group"], tables["node"], tables["instance"], info
    )
    try:
        with np.errstate(divide="ignore", invalid="ignore"):
            cluster = queried.read_cluster(answers, static_memory=wanted.static_memory)
            plans = balancing.plan(cluster, want)
    except DataError as err:
        raise errors.OpPrereqError(
            f"cannot plan balancing: {err}", ecodes.ECODE_STATE
        ) from err
    return balancing.data(plans, explain=wanted.explain)
