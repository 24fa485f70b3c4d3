"""Command line of ``burnin``."""

import argparse
import dataclasses
from typing import Any, Final, NoReturn

from ganeti.base import errors
from ganeti.base.constants import disks, versions
from ganeti.base.constants.parameters import hvparams
from ganeti.base.text import arguments
from ganeti.commands.cli import values

NAME: Final = "burnin"
REBOOT_TYPES: Final = ("hard", "soft", "full")
TEMPLATES: Final = ("diskless", "file", "sharedfile", "plain", "drbd", "ext", "rbd")
#: Names of the steps that an option ``--no-NAME`` leaves out, with the texts of these.
LEFT_OUT: Final = {
    "replace1": "do not replace disks on the same nodes",
    "replace2": "do not change the secondary nodes",
    "failover": "do not fail over",
    "migrate": "do not migrate",
    "move": "do not move",
    "importexport": "do not export and import",
    "startstop": "do not stop and start",
    "reinstall": "do not reinstall",
    "reboot": "do not reboot",
    "renamesame": "do not rename to the present name",
    "activate-disks": "do not activate and deactivate disks",
    "add-disks": "do not add and remove disks",
    "add-nics": "do not add and remove NICs",
    "confd": "do not ask confd",
}


@dataclasses.dataclass(frozen=True)
class Settings:
    """The options of a run.

    Attributes:
        instances: full names of the instances to create.
        os_name: the OS, with a variant if it has some.
        disk_sizes: MiB per disk; empty for diskless.
        growth: MiB to add per disk, 0 for none.
        memory: smallest and largest memory in MiB.
        vcpus: number of virtual CPUs.
        template: disk template.
        nodes: names as given; empty for all that are online.
        iallocator: chooses nodes; empty for none.
        left_out: steps to leave out, see `LEFT_OUT`.
        reboot_types: kinds of reboots, in order.
        has_nics: create the instances with a NIC.
        rename: spare name; empty for no rename.
        is_parallel: all instances at once in each step.
        net_timeout_s: how long to wait for a guest.
        http_check: ask guests by HTTP for their names.
        keeps: leave the instances at the end.
        hypervisor: empty for the default.
        osparams: parameters of the OS.
        ip_check: see gnt-instance(8).
        name_check: see gnt-instance(8).
        early_release: of locks and old volumes when disks are replaced.
    """

    instances: tuple[str, ...]
    os_name: str
    disk_sizes: tuple[int, ...]
    growth: tuple[int, ...]
    memory: tuple[int, int]
    vcpus: int
    template: str
    nodes: tuple[str, ...] = ()
    iallocator: str = ""
    left_out: frozenset[str] = frozenset()
    reboot_types: tuple[str, ...] = REBOOT_TYPES
    has_nics: bool = True
    rename: str = ""
    is_parallel: bool = False
    net_timeout_s: int = 15
    http_check: bool = False
    keeps: bool = False
    hypervisor: str = ""
    osparams: dict[str, Any] = dataclasses.field(default_factory=dict)
    ip_check: bool = True
    name_check: bool = True
    early_release: bool = False


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = argparse.ArgumentParser(
        prog=NAME,
        description="Try the operations of a cluster with new instances; see"
        " burnin(8). Run it on the master.",
        formatter_class=arguments.Formatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    version = f"{NAME} (ganeti) {versions.RELEASE_VERSION}"
    add("--version", action="version", version=version)
    add("-d", "--debug", action="count", default=0, help="debug level of the jobs")
    add("-v", "--verbose", action="store_true", help="print the messages of jobs")
    add("-o", "--os", required=True, help="OS to install")
    add("--disk-size", default="1G", help="size of each disk, with commas")
    add("--disk-growth", default="128m", help="growth of each disk, with commas")
    add("--mem-size", help="memory of an instance, smallest and largest")
    add("--maxmem-size", default="256", help="largest memory, default 256")
    add("--minmem-size", default="128", help="smallest memory, default 128")
    add("--vcpu-count", type=int, default=3, help="virtual CPUs, default 3")
    for name, text in LEFT_OUT.items():
        add(
            f"--no-{name}",
            action="append_const",
            dest="left_out",
            const=name,
            help=text,
        )
    kinds = ",".join(REBOOT_TYPES)
    add("--reboot-types", default=kinds, help=f"default: {kinds}")
    add("--no-nics", action="store_true", help="create instances without NICs")
    add("--rename", metavar="NAME", default="", help="spare name, for one instance")
    add("-t", "--disk-template", choices=TEMPLATES, default="drbd", metavar="TEMPLATE")
    add("-n", "--nodes", default="", help="nodes, with commas; default: all online")
    add("-I", "--iallocator", default="", help="allocator that chooses nodes")
    add("-p", "--parallel", action="store_true", help="all instances at once")
    add("--net-timeout", type=int, default=15, help="seconds to wait for a guest")
    add("-C", "--http-check", action="store_true", help="ask guests for their names")
    add("-K", "--keep-instances", action="store_true", help="do not remove them")
    add("-H", "--hypervisor", choices=hvparams.HYPER_TYPES, metavar="HYPERVISOR")
    add("-O", "--os-parameters", default="", help="key=value, with commas")
    add("--no-ip-check", action="store_true", help="addresses may be in use")
    add("--no-name-check", action="store_true", help="names need not resolve")
    add("--early-release", action="store_true", help="release locks early")
    add("--reason", default="", help="reason, kept with the jobs")
    add("instances", nargs="+", metavar="INSTANCE", help="instances to create")
    return parser


def parse(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Settings:
    """Return the settings; end the program with code 2 if an option is wrong."""

    def refuse(text: str) -> NoReturn:
        parser.error(text)

    # The form in which the cluster keeps names.
    names = tuple(name.rstrip(".").lower() for name in options.instances)
    if doubles := sorted({name for name in names if names.count(name) > 1}):
        refuse(f"instance {doubles[0]} is given twice")
    if options.rename and len(names) > 1:
        refuse(f"--rename wants one instance, found {len(names)}")
    if options.nodes and options.iallocator:
        refuse("-n and -I exclude each other")
    for option, number in (
        ("--vcpu-count", options.vcpu_count),
        ("--net-timeout", options.net_timeout),
    ):
        if number < 1:
            refuse(f"{option}: wanted 1 or more, found {number}")
    try:
        sizes, growth = _disks(options)
        memory = _memory(options)
        osparams = values.parse_keyval(options.os_parameters)
    except (errors.GenericError, values.BadValueError) as err:
        refuse(str(err))
    return Settings(
        instances=names,
        os_name=options.os,
        disk_sizes=sizes,
        growth=growth,
        memory=memory,
        vcpus=options.vcpu_count,
        template=options.disk_template,
        nodes=_words(options.nodes),
        iallocator=options.iallocator,
        left_out=frozenset(options.left_out or ()),
        reboot_types=_reboot_types(options.reboot_types, refuse),
        has_nics=not options.no_nics,
        rename=options.rename.rstrip(".").lower(),
        is_parallel=options.parallel,
        net_timeout_s=options.net_timeout,
        http_check=options.http_check,
        keeps=options.keep_instances,
        hypervisor=options.hypervisor or "",
        osparams=osparams,
        # An address can only be checked where the name gives one.
        ip_check=not (options.no_ip_check or options.no_name_check),
        name_check=not options.no_name_check,
        early_release=options.early_release,
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _disks(options: argparse.Namespace) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return sizes and growth in MiB.

    Raises:
        BadValueError: a size is malformed or not positive, or the numbers differ.
    """
    sizes = tuple(map(values.parse_size, _words(options.disk_size)))
    growth = tuple(map(values.parse_size, _words(options.disk_growth)))
    if options.disk_template == disks.DT_DISKLESS:
        return (), ()
    if not sizes or 0 in sizes:
        raise values.BadValueError(
            f"--disk-size: wanted sizes above 0, found {options.disk_size!r}"
        )
    if len(growth) != len(sizes):
        raise values.BadValueError(
            f"--disk-growth: wanted {len(sizes)} values, one per --disk-size, found"
            f" {len(growth)}"
        )
    return sizes, growth


def _memory(options: argparse.Namespace) -> tuple[int, int]:
    """Return smallest and largest memory in MiB.

    Raises:
        BadValueError: a size is malformed, or the smallest one is above the largest.
    """
    low = values.parse_size(options.mem_size or options.minmem_size)
    high = values.parse_size(options.mem_size or options.maxmem_size)
    if not 0 < low <= high:
        raise values.BadValueError(
            f"memory: wanted a smallest size from 1 to {high} MiB, found {low}"
        )
    return low, high


def _reboot_types(text: str, refuse: Any) -> tuple[str, ...]:
    kinds = _words(text)
    unknown = [kind for kind in kinds if kind not in REBOOT_TYPES]
    if unknown or not kinds:
        wanted = ", ".join(REBOOT_TYPES)
        refuse(f"--reboot-types: wanted some of {wanted}, found {text!r}")
    return kinds
