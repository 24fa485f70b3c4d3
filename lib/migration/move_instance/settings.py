"""Command line of ``move-instance``."""

import argparse
import dataclasses
from collections.abc import Mapping
from typing import Any, Final, NoReturn

from ganeti.base import errors
from ganeti.base.constants import disks, versions
from ganeti.base.constants.protocols import export
from ganeti.base.net import netutils
from ganeti.base.text import arguments
from ganeti.commands.cli import values
from ganeti.protocols.rapi import api

NAME: Final = "move-instance"
#: Most bytes of a file with a password.
_MAX_PASSWORD: Final = 1024
_HIGHEST_PORT: Final = 65535


@dataclasses.dataclass(frozen=True)
class Cluster:
    """How to reach the remote API of a cluster.

    Attributes:
        name: name or address of the master.
        port: of the server.
        ca_file: certificates that are trusted.
        username: empty for none.
        password: of the user.
    """

    name: str
    port: int
    ca_file: str
    username: str = ""
    password: str = dataclasses.field(default="", repr=False)


@dataclasses.dataclass(frozen=True)
class Target:
    """Requested properties of the new instances; empty for those of the source.

    Attributes:
        name: for a single instance.
        primary: node, for a single instance.
        secondary: node, for a single instance.
        template: disk template.
        iallocator: chooses the nodes.
        beparams: backend parameters to change.
        hypervisor: name of another hypervisor.
        hvparams: parameters of it to change.
        osparams: parameters of the OS to change.
        nics: parameters to change, by index.
    """

    name: str = ""
    primary: str = ""
    secondary: str = ""
    template: str = ""
    iallocator: str = ""
    beparams: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    hypervisor: str = ""
    hvparams: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    osparams: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    nics: Mapping[int, Mapping[str, Any]] = dataclasses.field(default_factory=dict)

    def misfit(self, template: str) -> str:
        """Return why the nodes do not fit a disk template, empty if they do.

        Args:
            template: of the new instance.
        """
        if not self.primary or template not in disks.DTS_INT_MIRROR:
            return ""
        if not self.secondary:
            return (
                f"disk template {template} needs --dest-secondary-node beside"
                " --dest-primary-node, or an allocator (-I)"
            )
        if self.secondary == self.primary:
            return (
                f"disk template {template} needs two nodes, found {self.primary} twice"
            )
        return ""


@dataclasses.dataclass(frozen=True)
class Settings:
    """The options of a run.

    Attributes:
        source: the cluster with the instances.
        destination: the cluster that gets them.
        instances: their names.
        target: requested properties.
        compress: compression tool of both clusters.
        parallel: number of instances that are moved at once.
        tries: first tries that take only free locks.
        delay_s: seconds between these.
        keeps: leave the instances in the source cluster.
        verbose: print the messages of all jobs.
        debug: log the requests.
    """

    source: Cluster
    destination: Cluster
    instances: tuple[str, ...]
    target: Target
    compress: str
    parallel: int = 1
    tries: int = 0
    delay_s: int = 30
    keeps: bool = False
    verbose: bool = False
    debug: bool = False


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the options."""
    parser = argparse.ArgumentParser(
        prog=NAME,
        description="Move instances from one cluster to another, by the remote APIs of"
        " both; see move-instance(8).",
        formatter_class=arguments.Formatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    version = f"{NAME} (ganeti) {versions.RELEASE_VERSION}"
    add("--version", action="version", version=version)
    add("-d", "--debug", action="store_true", help="log the requests")
    add("-v", "--verbose", action="store_true", help="print the messages of all jobs")
    _add_cluster(parser, "src", "source")
    _add_cluster(parser, "dest", "destination")
    _add_target(parser)
    _add_course(parser)
    add("source", metavar="SOURCE_CLUSTER", help="name or address of its master")
    add("destination", metavar="DEST_CLUSTER", help="name or address of its master")
    add("instances", nargs="+", metavar="INSTANCE", help="instances to move")
    return parser


def _add_target(parser: argparse.ArgumentParser) -> None:
    """Add the options that change properties of the new instances."""
    add = parser.add_argument
    one = ", for one instance"
    add("--dest-instance-name", metavar="NAME", default="", help=f"new name{one}")
    add("--dest-primary-node", metavar="NODE", default="", help=f"primary node{one}")
    add("--dest-secondary-node", metavar="NODE", default="", help=f"secondary{one}")
    add(
        "--dest-disk-template",
        metavar="TEMPLATE",
        default="",
        choices=disks.DISK_TEMPLATES,
        help="disk template, that of the source by default",
    )
    add("-I", "--iallocator", metavar="NAME", default="", help="chooses the nodes")
    add(
        "-B",
        "--backend-parameters",
        metavar="KEY=VALUE,...",
        default="",
        help="backend parameters to change",
    )
    add(
        "-H",
        "--hypervisor-parameters",
        metavar="HYPERVISOR:KEY=VALUE,...",
        default="",
        help="hypervisor, and its parameters to change",
    )
    add(
        "-O",
        "--os-parameters",
        metavar="KEY=VALUE,...",
        default="",
        help="parameters of the operating system to change",
    )
    add(
        "--net",
        metavar="INDEX:KEY=VALUE,...",
        action="append",
        default=[],
        help="parameters of a NIC to change; may be repeated",
    )


def _add_course(parser: argparse.ArgumentParser) -> None:
    """Add the options that say how instances are moved."""
    add = parser.add_argument
    add(
        "--compress",
        metavar="TOOL",
        default=export.IEC_NONE,
        help="compression tool of both clusters, default none",
    )
    add(
        "-p",
        "--parallel",
        type=int,
        default=1,
        metavar="NUMBER",
        help="instances that are moved at once, default 1",
    )
    add(
        "--opportunistic-tries",
        type=int,
        default=0,
        metavar="NUMBER",
        help="first tries that use only nodes which no other job has locked",
    )
    add(
        "--opportunistic-delay",
        type=int,
        metavar="SECONDS",
        help="time between these tries, default 30",
    )
    add("--keep-source-instance", action="store_true", help="do not remove the source")


def _add_cluster(parser: argparse.ArgumentParser, prefix: str, name: str) -> None:
    """Add the options that say how to reach a cluster."""
    is_source = prefix == "src"
    default = "" if is_source else ", that of the source by default"
    port = api.GANETI_RAPI_PORT
    parser.add_argument(
        f"--{prefix}-rapi-port",
        type=int,
        default=port,
        metavar="PORT",
        help=f"port of the remote API of the {name} cluster, default {port}",
    )
    parser.add_argument(
        f"--{prefix}-ca-file",
        required=is_source,
        metavar="FILE",
        help=f"certificates that are trusted for the {name} cluster{default}",
    )
    parser.add_argument(
        f"--{prefix}-username",
        metavar="NAME",
        help=f"user of the {name} cluster{default}",
    )
    parser.add_argument(
        f"--{prefix}-password-file",
        metavar="FILE",
        help=f"file with the password of this user{default}",
    )


def parse(parser: argparse.ArgumentParser, options: argparse.Namespace) -> Settings:
    """Return the settings; end the program with code 2 if an option is wrong."""

    def refuse(text: str) -> NoReturn:
        parser.error(text)

    try:
        names = tuple(netutils.normalize_host_name(name) for name in options.instances)
        options.dest_instance_name = (
            options.dest_instance_name
            and netutils.normalize_host_name(options.dest_instance_name)
        )
    except errors.OpPrereqError as err:
        refuse(err.args[0])
    _check_names(options, names, refuse)
    _check_numbers(options, refuse)
    if options.iallocator and options.dest_primary_node:
        refuse("--dest-primary-node and -I exclude each other")
    if options.dest_secondary_node and not options.dest_primary_node:
        refuse("--dest-secondary-node needs --dest-primary-node")
    if options.opportunistic_tries and options.dest_primary_node:
        refuse("--opportunistic-tries needs an allocator, not --dest-primary-node")
    try:
        target = _target(options)
        source = _cluster(options, "src", options.source)
        destination = _cluster(options, "dest", options.destination)
    except (errors.GenericError, values.BadValueError) as err:
        refuse(str(err.args[0] if err.args else err))
    if problem := target.misfit(target.template):
        refuse(problem)
    return Settings(
        source=source,
        destination=destination,
        instances=names,
        target=target,
        compress=options.compress,
        parallel=options.parallel,
        tries=options.opportunistic_tries,
        delay_s=30
        if options.opportunistic_delay is None
        else options.opportunistic_delay,
        keeps=options.keep_source_instance,
        verbose=options.verbose,
        debug=options.debug,
    )


def _check_names(
    options: argparse.Namespace, names: tuple[str, ...], refuse: Any
) -> None:
    if doubles := sorted({name for name in names if names.count(name) > 1}):
        refuse(f"instance {doubles[0]} is given twice")
    if len(names) > 1:
        for option in ("instance-name", "primary-node", "secondary-node"):
            if getattr(options, f"dest_{option.replace('-', '_')}"):
                refuse(f"--dest-{option} wants one instance, found {len(names)}")
    is_one = options.source == options.destination and (
        options.src_rapi_port == options.dest_rapi_port
    )
    if is_one and (options.dest_instance_name or names[0]) in names:
        refuse(
            "source and destination are one cluster, so the new instance needs another"
            " name (--dest-instance-name)"
        )


def _check_numbers(options: argparse.Namespace, refuse: Any) -> None:
    if options.parallel < 1:
        refuse(f"--parallel: wanted 1 or more, found {options.parallel}")
    if options.opportunistic_tries < 0:
        refuse(
            f"--opportunistic-tries: wanted 0 or more, found"
            f" {options.opportunistic_tries}"
        )
    if options.opportunistic_delay is not None:
        if not options.opportunistic_tries:
            refuse("--opportunistic-delay needs --opportunistic-tries")
        if options.opportunistic_delay < 0:
            refuse(
                "--opportunistic-delay: wanted 0 or more seconds, found"
                f" {options.opportunistic_delay}"
            )
    for option in ("src", "dest"):
        port = getattr(options, f"{option}_rapi_port")
        if not 1 <= port <= _HIGHEST_PORT:
            refuse(f"--{option}-rapi-port: wanted a port, found {port}")


def _target(options: argparse.Namespace) -> Target:
    """Return the requested properties. Raises GenericError."""
    hypervisor, hvparams = values.parse_ident_keyval(options.hypervisor_parameters)
    if not isinstance(hvparams, dict):
        raise errors.ParameterError(f"-H: {hypervisor} cannot be removed here")
    return Target(
        name=options.dest_instance_name,
        primary=options.dest_primary_node,
        secondary=options.dest_secondary_node,
        template=options.dest_disk_template,
        iallocator=options.iallocator,
        beparams=values.parse_keyval(options.backend_parameters),
        hypervisor=hypervisor,
        hvparams=hvparams,
        osparams=values.parse_keyval(options.os_parameters),
        nics=_nics(options.net),
    )


def _nics(given: list[str]) -> dict[int, dict[str, Any]]:
    """Return the parameters of NICs by index. Raises ParameterError."""
    nics: dict[int, dict[str, Any]] = {}
    for text in given:
        index, parameters = values.parse_ident_keyval(text)
        if not (index.isdecimal() and len(index) <= 2 and isinstance(parameters, dict)):
            raise errors.ParameterError(
                f"--net: wanted INDEX:KEY=VALUE with an index from 0, found {text!r}"
            )
        if int(index) in nics:
            raise errors.ParameterError(f"--net: NIC {int(index)} is given twice")
        nics[int(index)] = parameters
    return nics


def _cluster(options: argparse.Namespace, prefix: str, name: str) -> Cluster:
    """Return how to reach a cluster; the destination takes over what it lacks.

    Raises:
        ParameterError: a file cannot be read, or a user has no password.
    """

    def option(end: str) -> str:
        own = getattr(options, f"{prefix}_{end}")
        return own or getattr(options, f"src_{end}") or ""

    user, file = option("username"), option("password_file")
    if bool(user) != bool(file):
        wanted = "a file with its password" if user else "a user for the password"
        raise errors.ParameterError(
            f"{name}: wanted {wanted} (--{prefix}-username, --{prefix}-password-file)"
        )
    path = option("ca_file")
    try:
        with open(path, "rb"):
            pass
    except OSError as err:
        raise errors.ParameterError(
            f"--{prefix}-ca-file: {path}: {err.strerror}"
        ) from err
    password = _password(file, f"--{prefix}-password-file") if file else ""
    port = getattr(options, f"{prefix}_rapi_port")
    return Cluster(name, port, path, user, password)


def _password(path: str, what: str) -> str:
    """Return the first line of a file. Raises ParameterError."""
    try:
        with open(path, encoding="utf-8") as stream:
            line = stream.readline(_MAX_PASSWORD + 2).rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as err:
        reason = getattr(err, "strerror", None) or "is not text"
        raise errors.ParameterError(f"{what}: {path}: {reason}") from err
    if not 0 < len(line) <= _MAX_PASSWORD:
        raise errors.ParameterError(
            f"{what}: {path}: wanted a password of 1 to {_MAX_PASSWORD} characters in"
            f" its first line, found {len(line)}"
        )
    return line
