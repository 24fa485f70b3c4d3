"""Rows of the command table of ``gnt-cluster`` that are about automatons."""

from typing import Final

from ganeti.commands.cli import options as o
from ganeti.commands.cli.model import Argument, Command, Option

JOURNAL: Final = Command(
    "journal",
    "show what programs did by themselves, or did not do, and why",
    options=(
        Option(
            ("--since",),
            "entries from this time on: a duration such as 2h, or a local time such"
            " as '2026-03-01 22:15'",
            dest="since",
            kind="string",
        ),
        Option(("--node",), "entries about this node", dest="node", kind="string"),
        Option(
            ("--instance",),
            "entries about this instance",
            dest="instance",
            kind="string",
        ),
        Option(
            ("--automaton",),
            "entries of watcher, autorepair, maintd or node-death",
            dest="automaton",
            kind="choice",
            choices=("watcher", "autorepair", "maintd", "node-death"),
        ),
        Option(
            ("--id",),
            "entry with this number, or about this round, repair or incident",
            dest="id",
            kind="string",
        ),
        Option(("--job",), "entries about this job", dest="job", kind="int"),
        Option(
            ("--follow",),
            "print further entries as they come, until interrupted; with --json"
            " one per line",
            dest="follow",
        ),
        o.JSON,
    ),
    run="commands.cluster.automatons.journal:run",
)
AUDIT: Final = Command(
    "audit",
    "show who changed what, or verify that this log is whole",
    options=(
        Option(
            ("--since",),
            "changes from this time on: a duration such as 2h, or a local time such"
            " as '2026-03-01 22:15'",
            dest="since",
            kind="string",
        ),
        Option(
            ("-n", "--number"),
            "only this many of the newest changes",
            dest="number",
            kind="int",
        ),
        Option(
            ("--verify",),
            "check that no line of the log was changed or removed",
            dest="verify",
        ),
        o.JSON,
    ),
    run="commands.cluster.audit:run",
    exits=((1, "the log is not whole, or cannot be read"),),
)
SIMULATE: Final = Command(
    "simulate",
    "show what automation would do in some events, on a copy of the cluster",
    options=(
        Option(
            ("--event",),
            "what happens, after a time if one is given: 'kill node7', '10m power-on"
            " node7'; may be repeated, see the manual page",
            dest="events",
            kind="string",
            repeat=True,
        ),
        Option(
            ("--horizon",),
            "how long to simulate, such as 90m; default 2h",
            dest="horizon",
            kind="string",
            default="2h",
        ),
        Option(
            ("--policy",),
            "other settings of automation, KEY=VALUE,... or a file with one per line;"
            " may be repeated, see the manual page",
            dest="policy",
            kind="string",
            repeat=True,
        ),
        Option(
            ("--seed",),
            "decide otherwise between nodes that are equally good; default 0",
            dest="seed",
            kind="int",
            default=0,
        ),
        o.JSON,
    ),
    run="devel.sim.command:run",
    exits=((1, "wrong input, or automation broke one of its own rules"),),
)
FREEZE: Final = Command(
    "freeze",
    "let the watcher, repairs and the maintenance daemon do nothing by themselves",
    arguments=(Argument("unknown", minimum=0, maximum=None, name="reason"),),
    run="commands.cluster.automatons.automation:freeze",
    exits=((1, "the reason is too long"),),
)
THAW: Final = Command(
    "thaw",
    "end a freeze",
    run="commands.cluster.automatons.automation:thaw",
)
AUTOMATION_LIMITS: Final = Option(
    ("--automation-limits",),
    "moved-share=PERCENT of the instances that programs move by themselves at once,"
    " quiet-time=TIME after more than that, fenced-per-hour=COUNT of dead nodes that"
    " are switched off; -NAME removes a limit",
    dest="automation_limits",
    kind="keyval",
    default={},
)
DUTIES: Final = (
    Option(
        ("--maintenance-interval",),
        "least seconds between two passes of the maintenance daemon over repairs and"
        " balance; default 300",
        dest="maint_round_delay",
        kind="int",
    ),
    Option(
        ("--auto-balance-cluster",),
        "let the maintenance daemon balance the node groups",
        dest="maint_balance",
        kind="bool",
    ),
    Option(
        ("--auto-balance-threshold",),
        "least gain in score of a move by the maintenance daemon; default 0.1",
        dest="maint_balance_threshold",
        kind="float",
    ),
    Option(
        ("--auto-balance-load",),
        "have it consider the present load of CPUs",
        dest="maint_balance_load",
        kind="bool",
    ),
    Option(
        ("--auto-balance-disk-moves",),
        "allow it to copy disks",
        dest="maint_balance_disk_moves",
        kind="bool",
    ),
    Option(
        ("--maintenance-repairs",),
        "let the maintenance daemon repair instances by their tags, instead of the"
        " watcher",
        dest="maint_repairs",
        kind="bool",
    ),
)
NODE_DEATH: Final = Option(
    ("--node-death",),
    "switch nodes off that do not answer any more, and start their instances on other"
    " nodes",
    dest="node_death",
    kind="bool",
)
