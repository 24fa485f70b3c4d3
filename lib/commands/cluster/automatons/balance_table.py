"""The command table row of ``gnt-cluster balance``."""

from typing import Final

from ganeti.commands.cli import options as o
from ganeti.commands.cli.model import Command, Option

BALANCE: Final = Command(
    "balance",
    "plan the moves that balance the cluster, and apply them",
    options=(
        Option(
            ("--plan",),
            "only show the moves (default)",
            dest="plan",
        ),
        Option(("--apply",), "apply the moves", dest="apply"),
        o.JSON,
        Option(
            ("--explain",),
            "print the gain of each move, why there are no more moves, and which"
            " instances cannot move",
            dest="explain",
        ),
        o.NODE_GROUP,
        o.IALLOCATOR,
        Option(
            ("--max-moves",),
            "largest number of moves; a negative number means no limit",
            dest="max_moves",
            kind="int",
            default=100,
        ),
        Option(
            ("--min-gain",),
            "smallest gain per move when the score is low; see --min-gain-limit",
            dest="min_gain",
            kind="float",
            default=0.01,
        ),
        Option(
            ("--min-gain-limit",),
            "score below which --min-gain applies",
            dest="min_gain_limit",
            kind="float",
            default=0.1,
        ),
        Option(
            ("--evac-mode",),
            "only move instances away from offline or drained nodes",
            dest="evac_mode",
        ),
        Option(
            ("--no-disk-moves",),
            "only fail over and migrate; copy no disks",
            dest="no_disk_moves",
        ),
        Option(
            ("--no-instance-moves",),
            "only change secondary nodes",
            dest="no_instance_moves",
        ),
        Option(
            ("--restricted-migration",),
            "migrate no instances away from nodes that stay online",
            dest="restricted_migration",
        ),
        Option(
            ("--ignore-soft-errors",),
            "allow moves that only soft limits of policies forbid",
            dest="ignore_soft_errors",
        ),
        Option(
            ("--search",),
            "search for pairs of moves when no single move improves the score",
            dest="search",
        ),
        o.YES,
        o.SUBMIT,
        o.PRINT_JOBID,
        o.PRIORITY,
    ),
    run="commands.cluster.automatons.balance:run",
    opcodes=(
        "OP_INSTANCE_FAILOVER",
        "OP_INSTANCE_MIGRATE",
        "OP_INSTANCE_REPLACE_DISKS",
    ),
    exits=((1, "a job failed, or the master refused it"), (13, "declined")),
)
