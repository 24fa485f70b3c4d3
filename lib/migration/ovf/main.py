"""The command line of ``ovfconverter``."""

import argparse
import os
from collections.abc import Callable, Sequence
from typing import Any, Final

from ganeti import _buildconf
from ganeti.base import errors
from ganeti.base.process import SystemRunner
from ganeti.base.text import arguments
from ganeti.commands.cli import values
from ganeti.migration.ovf import conversion
from ganeti.tools import common

NAME: Final = "ovfconverter"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool."""
    options = build_parser().parse_args(argv)
    common.start_log(NAME, options)
    work = _import if options.command == "import" else _export
    return common.run(NAME, lambda: work(options))


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of both commands."""
    parser = common.parser(
        NAME, "Converts packages in the Open Virtualization Format from and to exports."
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, explanation, add in (
        ("import", "make an export of a package", _add_import),
        ("export", "make a package of an export", _add_export),
    ):
        one = commands.add_parser(
            name, help=explanation, formatter_class=arguments.Formatter
        )
        one.add_argument("file", metavar="FILE")
        one.add_argument("-n", "--name", help="name of the instance")
        one.add_argument("--output-dir", metavar="DIR", help="directory of the result")
        add(one.add_argument)
    return parser


def _parsed(function: Callable[[str], Any]) -> Callable[[str], Any]:
    def parse(text: str) -> Any:
        try:
            return function(text)
        except errors.GenericError as err:
            raise argparse.ArgumentTypeError(str(err)) from err

    return parse


def _add_import(add: Callable[..., Any]) -> None:
    pairs = _parsed(values.parse_keyval)
    named = _parsed(values.parse_ident_keyval)
    add("-B", "--backend-parameters", type=pairs, metavar="KEY=VALUE,...")
    add("--disk", type=named, action="append", default=[], metavar="N:size=SIZE")
    add("-t", "--disk-template", metavar="TEMPLATE")
    add("-H", "--hypervisor-parameters", type=named, metavar="NAME:KEY=VALUE,...")
    add("--net", type=named, action="append", default=[], metavar="N:KEY=VALUE,...")
    add("--no-nics", action="store_true", help="the instance gets no NIC")
    add("-o", "--os-type", metavar="OS")
    add("-O", "--os-parameters", type=pairs, metavar="KEY=VALUE,...")
    add("--tags", metavar="TAG,...")


def _add_export(add: Callable[..., Any]) -> None:
    add("--compress", action="store_true", help="compress the disks with gzip")
    add("--external", action="store_true", help="add no section of Ganeti")
    add("-f", "--format", choices=("raw", "cow", "vmdk"), required=True)
    add("--ova", action="store_true", help="make one file of all")


def _top(options: argparse.Namespace) -> str:
    if options.output_dir:
        return os.path.abspath(str(options.output_dir))
    return common.own_paths().at(_buildconf.EXPORT_DIR)


def _import(options: argparse.Namespace) -> None:
    path = conversion.import_package(
        SystemRunner(), options.file, _top(options), _overrides(options)
    )
    print(path)


def _export(options: argparse.Namespace) -> None:
    form = conversion.Form(
        options.format, options.compress, options.external, options.ova
    )
    made = conversion.export_package(
        SystemRunner(), options.file, _top(options), form, options.name
    )
    print("\n".join(made))


def _overrides(options: argparse.Namespace) -> conversion.Overrides:
    hypervisor, hvparams = options.hypervisor_parameters or (None, None)
    sizes = conversion.indexed(options.disk, "--disk")
    for index, given in sizes.items():
        if set(given) != {"size"}:
            raise errors.OpPrereqError(
                f"--disk {index}: wanted size=SIZE, found"
                f" {','.join(given) or 'nothing'}"
            )
    tags = options.tags
    return conversion.Overrides(
        name=options.name,
        os=options.os_type,
        disk_template=options.disk_template,
        hypervisor=hypervisor,
        tags=None if tags is None else tuple(t for t in tags.split(",") if t),
        nics=conversion.nics_of(options.net, none=options.no_nics),
        disks={index: values.parse_size(v["size"]) for index, v in sizes.items()},
        hvparams=_texts(hvparams),
        backend=_texts(options.backend_parameters),
        osparams=_texts(options.os_parameters),
    )


def _texts(given: dict[str, Any] | None) -> dict[str, str] | None:
    if not given:
        return None
    return {key: str(value) for key, value in given.items()}
