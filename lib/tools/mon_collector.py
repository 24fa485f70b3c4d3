"""``mon-collector``: print one report of the monitoring agent, collected now."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import msgspec

from ganeti.base import errors
from ganeti.base.constants import daemons, exitcodes, versions
from ganeti.base.constants.protocols import confd, mond
from ganeti.base.filesystem import files
from ganeti.base.net import netutils
from ganeti.base.pathutils import Paths, from_environ
from ganeti.base.text import arguments
from ganeti.base.text.control_chars import escape
from ganeti.model import serializer
from ganeti.node.collectors import block_devices, collector_table, helper, reports
from ganeti.node.collectors.sources import Sources, minor_owners
from ganeti.protocols import ssconf
from ganeti.protocols.confd import ConfdClient
from ganeti.protocols.confd.client import Result

T = TypeVar("T")

NAME: Final = "mon-collector"
_CONFD: Final = "ganeti-confd"
_PATIENCE_S: Final = 5.0
#: Collectors whose data is an average over time, which only the agent has.
_ONLY_IN_AGENT: Final = frozenset(row.name for row in mond.COLLECTORS if row.is_average)
_BY_NAME: Final = {
    item.name: item
    for item in collector_table.COLLECTORS
    if item.name not in _ONLY_IN_AGENT
}
_DISKSTATS: Final = collector_table.PROC_DISKSTATS
_DRBD: Final = collector_table.PROC_DRBD
#: Kind of the argument of an option, for shell completion.
_KINDS: Final = {"address": "host", "port": "integer"}


class _Command(argparse.ArgumentParser):
    """The parser of one collector, which knows how shells complete its options."""

    def __init__(self, **more: Any) -> None:
        self._known: list[argparse.Action] = []
        super().__init__(**more)
        _add_version(self)
        self.add_argument("--help-completion", action="store_true", help="for shells")

    def add_argument(self, *names: Any, **more: Any) -> argparse.Action:
        """Add an option."""
        action = super().add_argument(*names, **more)
        self._known.append(action)
        return action

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, or print the options and the kinds of their arguments."""
        options, rest = super().parse_known_args(args, namespace)
        is_asked = options.help_completion
        del options.help_completion
        if is_asked:
            for action in self._known:
                kind = _KINDS.get(action.dest, "file")
                names = ",".join(action.option_strings)
                print(names, "none" if action.nargs == 0 else kind)
            self.exit()
        return options, rest


def _add_version(parser: argparse.ArgumentParser) -> None:
    """Add the option that shows the version."""
    version = f"{NAME} (ganeti) {versions.RELEASE_VERSION}"
    parser.add_argument("--version", action="version", version=version)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser: one command per collector."""
    parser = argparse.ArgumentParser(prog=NAME, formatter_class=arguments.Formatter)
    _add_version(parser)
    commands = parser.add_subparsers(
        dest="name", metavar="COLLECTOR", required=True, parser_class=_Command
    )
    by_name = {
        name: commands.add_parser(
            name, help=item.row.text, formatter_class=arguments.Formatter
        )
        for name, item in _BY_NAME.items()
    }
    add = by_name[mond.DATA_COLLECTOR_DISK_STATS].add_argument
    add("-f", "--file", metavar="FILE", help=f"file to read, not {_DISKSTATS}")
    add = by_name[mond.DATA_COLLECTOR_DRBD].add_argument
    add("-s", "--drbd-status", metavar="FILE", help=f"file to read, not {_DRBD}")
    add("-p", "--drbd-pairing", metavar="FILE", help="read this answer of confd")
    add = by_name[mond.DATA_COLLECTOR_LV].add_argument
    add("-f", "--file", metavar="FILE", help="read this output of lvs")
    add("-i", "--instances", metavar="FILE", help="JSON pairs: instance, disks")
    for name in (mond.DATA_COLLECTOR_LV, mond.DATA_COLLECTOR_INST_STATUS):
        add = by_name[name].add_argument
        add("-a", "--address", help="confd to ask; default: the master candidates")
        add("-p", "--port", type=int, help="port of confd")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool."""
    options = build_parser().parse_args(argv)
    row = _BY_NAME[options.name].row
    try:
        data = _data(options, from_environ(os.environ))
    except (errors.GenericError, OSError, ValueError) as err:
        print(f"{NAME}: {options.name}: {escape(str(err))}", file=sys.stderr)
        return exitcodes.EXIT_FAILURE
    report = reports.report(options.name, row.category, row.kind, data, time.time())
    print(msgspec.json.encode(report).decode())
    return exitcodes.EXIT_SUCCESS


def _data(options: argparse.Namespace, paths: Paths) -> Any:
    name = options.name
    if name == mond.DATA_COLLECTOR_DISK_STATS and options.file:
        return _parsed(options.file, block_devices.parse_counters)
    sources = _sources(options, paths)
    if name == mond.DATA_COLLECTOR_DRBD and (
        options.drbd_status or options.drbd_pairing
    ):
        pairing = options.drbd_pairing
        owners = (
            minor_owners(_parsed(pairing, serializer.load))
            if pairing
            else sources.minor_owners()
        )
        return _parsed(
            options.drbd_status or _DRBD,
            lambda text: block_devices.parse_drbd(text, owners),
        )
    if name == mond.DATA_COLLECTOR_LV and (options.file or options.instances):
        return _volumes(options, sources)
    collect = _BY_NAME[name].code.collect
    assert collect is not None
    return collect(sources)


def _volumes(options: argparse.Namespace, sources: Sources) -> Any:
    owners = (
        _parsed(options.instances, _owners)
        if options.instances
        else sources.volume_owners()
    )
    if options.file:
        return _parsed(
            options.file, lambda text: block_devices.parse_volumes(text, owners)
        )
    return block_devices.parse_volumes(sources.ask("volumes", ""), owners)


def _owners(text: str) -> dict[tuple[str, str], str]:
    owners: dict[tuple[str, str], str] = {}
    try:
        pairs = msgspec.convert(
            serializer.load(text), list[tuple[dict[str, Any], list[dict[str, Any]]]]
        )
    except msgspec.ValidationError as err:
        raise ValueError(
            f"wanted a list of pairs, an instance and the list of its disks: {err}"
        ) from err
    for instance, disks in pairs:
        owners |= block_devices.volumes_of(str(instance.get("name")), disks)
    return owners


def _parsed(path: str, parse: Callable[[str], T]) -> T:
    """Return the parsed text of a file; an error of the parser names the file."""
    text = _text(path)
    try:
        return parse(text)
    except (errors.GenericError, ValueError) as err:
        raise ValueError(f"{path}: {err}") from err


def _text(path: str) -> str:
    # Also the standard input, such as /dev/stdin.
    with open(path, "rb") as src:
        data = src.read(files.MAX_READ + 1)
    if len(data) > files.MAX_READ:
        raise ValueError(f"{path}: larger than {files.MAX_READ} bytes")
    return data.decode(errors="replace")


def _sources(options: argparse.Namespace, paths: Paths) -> Sources:
    def connect() -> ConfdClient:
        address, port = (
            getattr(options, "address", None),
            getattr(options, "port", None),
        )
        if address:
            peers = [netutils.lookup(address, paths)]
        else:
            peers = ssconf.SimpleStore(paths).master_candidates_ips()
        default = daemons.DAEMONS[_CONFD].port or 0
        return ConfdClient(
            files.read_file(paths.hmac_key),
            peers,
            port=port or netutils.service_port(_CONFD, default, "udp"),
        )

    def diagnose_name() -> str:
        pointer = "/cluster/diagnose_data_collector_filename"
        result: Result = connect().ask(
            confd.CONFD_REQ_CONFIG_QUERY, pointer, timeout_s=_PATIENCE_S
        )
        answer = result.reply.answer if result.reply and result.is_ok else ""
        return answer if isinstance(answer, str) else ""

    return Sources(
        paths,
        lambda task, text: helper.run_task(paths, task, text),
        connect,
        diagnose_name,
        ssconf.SimpleStore(paths).hypervisor_list,
    )
