"""The row of ``gnt-cluster balance``."""

from typing import Final

from ganeti.cli import options as o
from ganeti.cli.model import Command, Option

BALANCE: Final = Command(
    "balance",
    "plan the moves that balance the cluster, and make them",
    options=(
        Option(
            ("--plan",),
            "show the moves and do nothing (the default)",
            dest="plan",
        ),
        Option(("--apply",), "make the moves", dest="apply"),
        o.JSON,
        Option(
            ("--explain",),
            "tell what each move improves, why there are no more, what may not move",
            dest="explain",
        ),
        o.NODE_GROUP,
        o.IALLOCATOR,
        Option(
            ("--max-moves",),
            "at most so many moves, below 0 for any number",
            dest="max_moves",
            kind="int",
            default=100,
        ),
        Option(
            ("--min-gain",),
            "gain that a move must bring once the score is low",
            dest="min_gain",
            kind="float",
            default=0.01,
        ),
        Option(
            ("--min-gain-limit",),
            "score below which --min-gain counts",
            dest="min_gain_limit",
            kind="float",
            default=0.1,
        ),
        Option(
            ("--evac-mode",),
            "only move instances off nodes that are offline or drained",
            dest="evac_mode",
        ),
        Option(
            ("--no-disk-moves",),
            "only failover and migrate, copy no disks",
            dest="no_disk_moves",
        ),
        Option(
            ("--no-instance-moves",),
            "only change secondary nodes",
            dest="no_instance_moves",
        ),
        Option(
            ("--restricted-migration",),
            "migrate nothing off a node that stays online",
            dest="restricted_migration",
        ),
        Option(
            ("--ignore-soft-errors",),
            "go beyond what policies advise against",
            dest="ignore_soft_errors",
        ),
        Option(
            ("--search",),
            "where no single move helps, look for pairs of moves that do",
            dest="search",
        ),
        o.YES,
        o.SUBMIT,
        o.PRINT_JOBID,
        o.PRIORITY,
    ),
    run="client.cluster.balance:run",
    opcodes=(
        "OP_INSTANCE_FAILOVER",
        "OP_INSTANCE_MIGRATE",
        "OP_INSTANCE_REPLACE_DISKS",
    ),
    exits=((1, "a job failed or was refused"), (13, "declined")),
)
