"""Rows of ``gnt-cluster`` on automatons, placement and renewal; `table` lists them."""

from typing import Final

from ganeti.commands.cli import options as o
from ganeti.commands.cli.model import Argument, Command, Option, option

JOURNAL: Final = Command(
    "journal",
    "show what programs did by themselves, or did not do, and why",
    options=(
        option(
            "--since",
            "entries from this time on: a duration such as 2h, or a local time such"
            " as '2026-03-01 22:15'",
            "string",
        ),
        option("--node", "entries about this node", "string"),
        option("--instance", "entries about this instance", "string"),
        option(
            "--automaton",
            "entries of watcher, autorepair, maintd or node-death",
            "choice",
            choices=("watcher", "autorepair", "maintd", "node-death"),
        ),
        option(
            "--id",
            "entry with this number, or about this round, repair or incident",
            "string",
        ),
        option("--job", "entries about this job", "int"),
        option(
            "--follow",
            "print further entries as they come, until interrupted; with --json"
            " one per line",
        ),
        o.JSON,
    ),
    run="commands.cluster.history:show_journal",
)
MONITOR: Final = Command(
    "monitor",
    "print what happens in the cluster, one line per event, until interrupted",
    options=(
        option(
            "--type",
            "only events of these kinds, with commas between them: object, job,"
            " job-log, journal, node-death, incident or freeze",
            "string",
        ),
        o.JSON,
    ),
    run="commands.cluster.monitor:run",
    exits=(
        (0, "interrupted"),
        (1, "unknown kind, or the master daemon does not answer any more"),
    ),
)
AUDIT: Final = Command(
    "audit",
    "show who changed what, or verify that this log is whole",
    options=(
        option(
            "--since",
            "changes from this time on: a duration such as 2h, or a local time such"
            " as '2026-03-01 22:15'",
            "string",
        ),
        option("-n --number", "only this many of the newest changes", "int"),
        option("--verify", "check that no line of the log was changed or removed"),
        o.JSON,
    ),
    run="commands.cluster.history:audit",
    exits=((1, "the log is not whole, or cannot be read"),),
)
STATUS: Final = Command(
    "status",
    "show the state of the cluster on one screen, with what is wrong and what to do",
    options=(o.COLOR, o.JSON),
    run="commands.cluster.status:run",
    exits=(
        (0, "all is well"),
        (1, "there are warnings"),
        (2, "something is critical, or the master daemon does not answer"),
    ),
)
SIMULATE: Final = Command(
    "simulate",
    "show what automation would do in some events, on a copy of the cluster",
    options=(
        option(
            "--event",
            "what happens, after a time if one is given: 'kill node7', '10m power-on"
            " node7'; may be repeated, see the manual page",
            "string",
            dest="events",
            repeat=True,
        ),
        option(
            "--horizon",
            "how long to simulate, such as 90m; default 2h",
            "string",
            default="2h",
        ),
        option(
            "--policy",
            "other settings of automation, KEY=VALUE,... or a file with one per line;"
            " may be repeated, see the manual page",
            "string",
            repeat=True,
        ),
        option(
            "--seed",
            "decide otherwise between nodes that are equally good; default 0",
            "int",
            default=0,
        ),
        o.JSON,
    ),
    run="commands.cluster.commands:simulate",
    exits=((1, "wrong input, or automation broke one of its own rules"),),
)
SESSIONS: Final = Command(
    "sessions",
    "list the sessions of users of the remote API, or end some at once",
    arguments=(
        Argument("choice", choices=("list", "revoke")),
        Argument("unknown", minimum=0, maximum=None, name="id"),
    ),
    options=(
        option("--user", "only the sessions of this user", "string"),
        o.NO_HEADERS,
        o.SEPARATOR,
        o.JSON,
    ),
    run="commands.cluster.sessions:sessions",
    exits=((1, "unknown action or session, or --json without list"),),
)
FREEZE: Final = Command(
    "freeze",
    "let the watcher, repairs and the maintenance daemon do nothing by themselves",
    arguments=(Argument("unknown", minimum=0, maximum=None, name="reason"),),
    run="commands.cluster.automation:freeze",
    exits=((1, "the reason is too long"),),
)
THAW: Final = Command(
    "thaw",
    "end a freeze",
    run="commands.cluster.automation:thaw",
)
AUTOMATION_LIMITS: Final = option(
    "--automation-limits",
    "moved-share=PERCENT of the instances that programs move by themselves at once,"
    " quiet-time=TIME after more than that, fenced-per-hour=COUNT of dead nodes that"
    " are switched off; -NAME removes a limit",
    "keyval",
    default={},
)
DUTIES: Final = (
    option(
        "--maintenance-interval",
        "least seconds between two passes of the maintenance daemon over repairs and"
        " balance; default 300",
        "int",
        dest="maint_round_delay",
    ),
    option(
        "--auto-balance-cluster",
        "let the maintenance daemon balance the node groups",
        "bool",
        dest="maint_balance",
    ),
    option(
        "--auto-balance-threshold",
        "least gain in score of a move by the maintenance daemon; default 0.1",
        "float",
        dest="maint_balance_threshold",
    ),
    option(
        "--auto-balance-load",
        "have it consider the present load of CPUs",
        "bool",
        dest="maint_balance_load",
    ),
    option(
        "--auto-balance-disk-moves",
        "allow it to copy disks",
        "bool",
        dest="maint_balance_disk_moves",
    ),
    option(
        "--maintenance-repairs",
        "let the maintenance daemon repair instances by their tags, instead of the"
        " watcher",
        "bool",
        dest="maint_repairs",
    ),
)
NODE_DEATH: Final = option(
    "--node-death",
    "switch nodes off that do not answer any more, and start their instances on other"
    " nodes",
    "bool",
)


BALANCE: Final = Command(
    "balance",
    "plan the moves that balance the cluster, and apply them",
    options=(
        option("--plan", "only show the moves (default)"),
        option("--apply", "apply the moves"),
        o.JSON,
        option(
            "--explain",
            "print the gain of each move, why there are no more moves, and which"
            " instances cannot move",
        ),
        o.NODE_GROUP,
        o.IALLOCATOR,
        option(
            "--max-moves",
            "largest number of moves; a negative number means no limit",
            "int",
            default=100,
        ),
        option(
            "--min-gain",
            "smallest gain per move when the score is low; see --min-gain-limit",
            "float",
            default=0.01,
        ),
        option(
            "--min-gain-limit",
            "score below which --min-gain applies",
            "float",
            default=0.1,
        ),
        option("--evac-mode", "only move instances away from offline or drained nodes"),
        option("--no-disk-moves", "only fail over and migrate; copy no disks"),
        option("--no-instance-moves", "only change secondary nodes"),
        option(
            "--restricted-migration",
            "migrate no instances away from nodes that stay online",
        ),
        option(
            "--ignore-soft-errors",
            "allow moves that only soft limits of policies forbid",
        ),
        option(
            "--search",
            "search for pairs of moves when no single move improves the score",
        ),
        o.YES,
        o.SUBMIT,
        o.PRINT_JOBID,
        o.PRIORITY,
    ),
    run="commands.cluster.balance:run",
    opcodes=(
        "OP_INSTANCE_FAILOVER",
        "OP_INSTANCE_MIGRATE",
        "OP_INSTANCE_REPLACE_DISKS",
    ),
    exits=((1, "a job failed, or the master refused it"), (13, "declined")),
)


def _file(name: str, dest: str, text: str) -> Option:
    return Option((name,), text, dest=dest, kind="string")


RENEW_CRYPTO: Final = Command(
    "renew-crypto",
    "replace certificates, keys and secrets",
    options=(
        option(
            "--new-cluster-certificate",
            "create a new node daemon server certificate and all client certificates",
            dest="new_cluster_cert",
            default=False,
        ),
        option(
            "--new-rapi-certificate",
            "create a new self-signed RAPI certificate",
            dest="new_rapi_cert",
        ),
        _file("--rapi-certificate", "rapi_cert", "PEM file with key and certificate"),
        option("--new-confd-hmac-key", "create a new confd HMAC key", default=False),
        o.FORCE,
        option(
            "--new-cluster-domain-secret",
            "create a new random cluster domain secret",
            default=False,
        ),
        _file(
            "--cluster-domain-secret",
            "cluster_domain_secret",
            "file with the new cluster domain secret",
        ),
        option(
            "--new-spice-certificate",
            "create a new self-signed SPICE certificate and CA",
            dest="new_spice_cert",
        ),
        _file(
            "--spice-certificate", "spice_cert", "PEM file with the SPICE certificate"
        ),
        _file(
            "--spice-ca-certificate",
            "spice_cacert",
            "PEM file with the CA certificate that signed the SPICE certificate",
        ),
        option(
            "--new-node-certificates",
            "create new client certificates on all nodes",
            dest="new_node_cert",
            default=False,
        ),
        option("--new-ssh-keys", "create new SSH keys on all nodes", default=False),
        option(
            "--new-ssh-host-keys",
            "give each node new SSH host keys of its own",
            default=False,
        ),
        option(
            "--without-master",
            "run on another master candidate, because the master is lost and the"
            " certificates have ended",
        ),
        option(
            "--lost-candidates",
            "comma-separated names of master candidates that are lost for good: with"
            " --without-master, go on without their copies and mark them offline",
            "string",
        ),
        option(
            "--no-ssh-key-check",
            "do not verify the SSH host keys of nodes",
            clears="ssh_key_check",
        ),
        o.VERBOSE,
        option("--ssh-key-bits", "length of the SSH key", "int"),
        option(
            "--ssh-key-type",
            "type of the SSH key",
            "choice",
            choices=("dsa", "ecdsa", "rsa"),
        ),
        *o.PLANNED,
    ),
    run="commands.cluster.renew_crypto:run",
    opcodes=("OP_CLUSTER_RENEW_CRYPTO",),
    exits=((1, "conflicting options, unreadable PEM, declined or failure"),),
)

SEARCH: Final = Command(
    "search",
    "find objects by name, UUID, tag, address, operating system or job id",
    arguments=(Argument("unknown", name="text"),),
    options=(
        option("--limit", "list at most this number of objects", "int", default=20),
        *o.TABLE,
        o.JSON,
    ),
    run="commands.cluster.commands:search",
    exits=((0, "match found"), (1, "no match")),
)
