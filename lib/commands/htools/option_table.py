"""All options of the placement programs, by the key of their values."""

from collections.abc import Sequence
from typing import Final

from ganeti.commands.htools import options
from ganeti.commands.htools.options import Option
from ganeti.decisions.htools.model.cluster import STATIC_KVM_MIB
from ganeti.decisions.htools.model.policy import TEMPLATES

_YES_NO: Final = "choices=yes,no"


def _flag(key: str, names: str, text: str) -> Option:
    return Option(key, tuple(names.split()), text)


def _file(key: str, names: str, text: str, completion: str = "file") -> Option:
    return Option(key, tuple(names.split()), text, str, "FILE", completion=completion)


_SOURCES: Final = (
    _file("t", "-t --text-data", "read the cluster from a text FILE"),
    Option(
        "sim",
        ("--simulate",),
        "simulate a cluster: policy,nodes,disk,memory,cpus[,spindles[,exclusive]]",
        str,
        "SPEC",
        many=True,
        completion="string",
    ),
    Option(
        "m",
        ("-m", "--master"),
        "read the cluster by REST from an ADDRESS or file://DIRECTORY",
        str,
        "ADDRESS",
        completion="host",
    ),
    Option(
        "L",
        ("-L", "--luxi"),
        "read the cluster from the master daemon on this node",
        str,
        "SOCKET",
        optional=True,
        completion="file",
    ),
    _file("I", "-I --ialloc-src", "read the cluster from an allocator's request"),
    _file("U", "-U --dynu-file", "read the utilisation of instances from a FILE"),
    _flag("nodyn", "--ignore-dynu", "treat the utilisation of all instances as zero"),
    Option(
        "mond",
        ("--mond",),
        "query the monitoring daemons for the utilisation",
        options.yes_no,
        "yes|no",
        optional=True,
        default=False,
        completion=_YES_NO,
    ),
    _file("mondd", "--mond-data", "read answers of monitoring daemons from a FILE"),
    _flag("mondx", "--mond-xen", "use the load that Xen reports per instance"),
    _flag("mondk", "--mond-kvm-rss", "use the resident memory of each KVM process"),
    Option(
        "mw",
        ("--mem-weight",),
        "weight of an instance of average resident memory",
        options.real("memory weight", least=0),
        "FACTOR",
        default=1.0,
        completion="float",
    ),
    _flag("idle", "--idle-default", "instances without utilisation data count as idle"),
    _flag(
        "monde",
        "--exit-on-missing-mond-data",
        "stop when a node's monitoring data is missing",
    ),
    Option(
        "skm",
        ("--static-kvm-node-memory",),
        "MiB that a KVM node needs itself; 0: the reported value",
        options.whole("static node memory", least=0),
        "N",
        default=STATIC_KVM_MIB,
        completion="integer",
    ),
    Option(
        "O",
        ("-O", "--offline"),
        "treat a node as offline",
        str,
        "NODE",
        many=True,
        completion="onenode",
    ),
)
_OUTPUT: Final = (
    Option(
        "p",
        ("-p", "--print-nodes"),
        "print the nodes, before and after",
        str,
        "FIELDS",
        optional=True,
    ),
    _flag("pi", "--print-instances", "print the instances, before and after"),
    Option(
        "C",
        ("-C", "--print-commands"),
        "print the commands of the plan, or write them to a FILE",
        str,
        "FILE",
        optional=True,
    ),
    _file("S", "-S --save", "write the states of the cluster to FILE.*", "none"),
    Option("v", ("-v", "--verbose"), "more output", counted=True),
    Option("q", ("-q", "--quiet"), "less output", counted=True),
    Option(
        "mr",
        ("--machine-readable",),
        "print lines KEY=VALUE",
        options.yes_no,
        "yes|no",
        optional=True,
        default=False,
        completion=_YES_NO,
    ),
    _flag("nh", "--no-headers", "print no header line"),
    _flag("pm", "--print-moves", "print the new nodes of instances"),
    Option(
        "d",
        ("-d", "--output-dir"),
        "write the files to a DIRECTORY",
        str,
        "DIRECTORY",
        default=".",
        completion="dir",
    ),
)
_MOVES: Final = (
    _flag("E", "-E --evac-mode", "only move instances off nodes that are offline"),
    _flag("rm", "--restricted-migration", "never migrate off a node that stays online"),
    Option("G", ("-G", "--group"), "node group", str, "ID", completion="onegroup"),
    Option(
        "l",
        ("-l", "--max-length"),
        "at most N moves or allocations",
        options.whole("max solution length"),
        "N",
        default=-1,
        completion="integer",
    ),
    Option(
        "e",
        ("-e", "--min-score"),
        "distance to the ideal score that is good enough",
        options.real("min score"),
        "X",
        default=1e-9,
        completion="float",
    ),
    Option(
        "maxcpu",
        ("--max-cpu",),
        "most virtual CPUs per physical CPU, on all nodes",
        options.ratio,
        "RATIO",
        completion="float",
    ),
    Option(
        "mindisk",
        ("--min-disk",),
        "fraction of each node's disk to keep free",
        options.share("min free disk space"),
        "RATIO",
        default=0.0,
        completion="float",
    ),
    Option(
        "g",
        ("-g", "--min-gain"),
        "least gain of a move",
        options.real("min gain"),
        "X",
        default=0.01,
        completion="float",
    ),
    Option(
        "mgl",
        ("--min-gain-limit",),
        "score below which the least gain applies",
        options.real("min gain limit"),
        "SCORE",
        default=0.1,
        completion="float",
    ),
    _flag("ndm", "--no-disk-moves", "only failover and migrate"),
    Option(
        "adm",
        ("--avoid-disk-moves",),
        "a move that copies disks must gain FACTOR times as much as others",
        options.real("disk moves avoiding factor", least=0),
        "FACTOR",
        completion="float",
    ),
    _flag("search", "--search", "where no move helps, try pairs of moves"),
    _flag("nim", "--no-instance-moves", "only change secondary nodes"),
    Option(
        "sel",
        ("--select-instances",),
        "only these instances move",
        options.names,
        "NAMES",
        default=(),
        completion="manyinstances",
    ),
    Option(
        "exi",
        ("--exclude-instances",),
        "these instances do not move",
        options.names,
        "NAMES",
        default=(),
        completion="manyinstances",
    ),
    Option(
        "ext",
        ("--exclusion-tags",),
        "prefixes of tags that keep instances apart",
        options.names,
        "TAG,...",
        default=(),
        completion="string",
    ),
    _flag(
        "ise",
        "--ignore-soft-errors",
        "ignore soft errors: policies, N+1, exclusion tags",
    ),
    _flag("nosim", "--no-simulation", "do not try to balance"),
)
_SUBMIT: Final = (
    _flag("X", "-X --exec", "submit the jobs of the plan (needs -L)"),
    _flag("fjg", "--first-job-group", "only the first set of jobs"),
    Option("reason", ("--reason",), "reason of the jobs", str, "REASON"),
    Option(
        "prio",
        ("--priority",),
        "priority of the jobs",
        options.priority,
        "low|normal|high",
        completion="choices=low,normal,high",
    ),
    Option(
        "jd",
        ("--job-delay",),
        "seconds that jobs wait before they begin",
        options.real("job delay"),
        "SECONDS",
        default=10.0,
        completion="float",
    ),
    _flag("dry", "--dry-run", "only print the actions"),
)
_CAPACITY: Final = (
    _flag("nocap", "--no-capacity-checks", "do not test for global N+1 redundancy"),
    Option(
        "rest",
        ("--restrict-allocation-to",),
        "place new instances only on these nodes",
        options.names,
        "NODE,...",
        completion="manynodes",
    ),
    Option(
        "dt",
        ("--disk-template",),
        "disk template of the new instances",
        options.template,
        "TEMPLATE",
        completion=f"choices={','.join(TEMPLATES)}",
    ),
    Option(
        "su",
        ("--spindle-use",),
        "spindles each new instance uses",
        options.whole("spindle-use", least=0),
        "N",
        completion="float",
    ),
    _flag(
        "indep",
        "--independent-groups",
        "a group that fails N+1 does not stop the others",
    ),
    _flag("acc", "--accept-existing-errors", "continue although nodes fail N+1"),
    Option(
        "std",
        ("--standard-alloc",),
        "size of all new instances",
        options.size("standard"),
        "DISK,RAM,CPU[,SPINDLES]",
        completion="string",
    ),
    Option(
        "tier",
        ("--tiered-alloc",),
        "initial size, made smaller step by step",
        options.size("tiered"),
        "DISK,RAM,CPU[,SPINDLES]",
        completion="string",
    ),
    Option(
        "minr",
        ("--minimal-resources",),
        "switch nodes on if one has room for fewer than FACTOR instances",
        options.real("minimal resources", least=0),
        "FACTOR",
        default=2.0,
        completion="float",
    ),
    Option(
        "tgtr",
        ("--target-resources",),
        "keep room for FACTOR instances on each node",
        options.real("target resources", least=0),
        "FACTOR",
        default=2.0,
        completion="float",
    ),
)
_MAINTENANCE: Final = (
    _flag("offm", "--offline-maintenance", "instances are stopped, not moved"),
    Option(
        "nt",
        ("--node-tags",),
        "only nodes with one of these tags",
        options.names,
        "TAG,...",
        completion="string",
    ),
    _flag("fe", "--full-evacuation", "move secondary nodes off as well"),
    _flag(
        "snr", "--skip-non-redundant", "leave out nodes with non-redundant instances"
    ),
    _flag("inr", "--ignore-non-redundant", "ignore non-redundant instances"),
    _flag("f", "-f --force", "continue without a known master node"),
    _flag("oso", "--one-step-only", "only the first group, one node per line"),
)
_EXPLAIN: Final = (
    _flag(
        "explain", "--explain", "print the reasons for refused nodes on standard error"
    ),
    _flag("json", "--json", "explain as one JSON document"),
)
#: All options.
OPTIONS: Final = {
    option.key: option
    for option in (
        *_SOURCES,
        *_OUTPUT,
        *_MOVES,
        *_SUBMIT,
        *_CAPACITY,
        *_MAINTENANCE,
        *_EXPLAIN,
    )
}
#: Program -> keys of its options.
PROGRAMS: Final = {
    "hail": "p S t sim v nodyn ise nocap rest mond mondx skm explain json",
    "harep": "L jd reason dry",
    "hbal": (
        "p pi C t E rm m L I X fjg reason G l v q O skm e maxcpu mindisk g mgl "
        "ndm sel nim ise U nodyn mond mondd monde mondx mondk mw idle ext exi S "
        "prio adm search"
    ),
    "hcheck": (
        "t ndm U nodyn E exi ext I nim L mr maxcpu l mindisk g mgl e ise nosim "
        "O q m sel nocap v"
    ),
    "hinfo": "p pi t m L I v q O nodyn mond mondd skm",
    "hroller": "L m t I O offm v q nh nt S G pm fe snr inr f oso skm",
    "hscan": "p d L v nh skm",
    "hspace": (
        "p t dt su sim m L I v q indep acc O nocap mr maxcpu l mindisk std tier "
        "S skm explain json"
    ),
    "hsqueeze": "L t X minr tgtr S C v nh skm",
}


def options_of(keys: Sequence[str]) -> list[Option]:
    """Return the options with some keys."""
    return [OPTIONS[key] for key in keys]
