"""The command line of ``lvmstrap``."""

import argparse
import json
import os
from collections.abc import Sequence
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes, versions
from ganeti.base.process import Runner, SystemRunner
from ganeti.base.text import arguments, control_chars
from ganeti.commands.cli.output import table
from ganeti.migration.lvmstrap.creation import Creation
from ganeti.migration.lvmstrap.disks import Disk, Disks
from ganeti.migration.lvmstrap.kernel import Kernel, SystemKernel
from ganeti.node.storage import lvm
from ganeti.tools import common

NAME: Final = "lvmstrap"
_GROUP: Final = "xenvg"
_COLUMNS: Final = (
    table.Column("Name"),
    table.Column("Size[M]", "number"),
    table.Column("Used"),
    table.Column("Mount"),
    table.Column("LVM?"),
    table.Column("Info"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool."""
    options = parse(argv)
    common.start_log(NAME, options)
    return common.run(NAME, lambda: work(options, SystemRunner(), SystemKernel()))


def work(options: argparse.Namespace, process: Runner, kernel: Kernel) -> None:
    """Show disks or make the group, as the options say.

    Raises:
        OpPrereqError: this cannot be done here, and nothing has changed.
        OpExecError: making the group failed.
        StorageError: LVM or a program that looks at disks is missing or fails.
    """
    if os.geteuid() != 0:
        raise errors.OpPrereqError("run this as root", ecodes.ECODE_STATE)
    machine = Disks(process, kernel, allow_removable=options.allow_removable)
    if options.command == "diskinfo":
        print(_shown(machine.look(options.disks), as_json=options.json))
        return
    if options.vg_name in lvm.volume_groups(process):
        raise errors.OpPrereqError(
            f"volume group {options.vg_name}: exists on this machine; choose another"
            " name with -g, or extend it with vgextend",
            ecodes.ECODE_EXISTS,
        )
    chosen = _chosen(machine, options.disks)
    creation = Creation(
        process, machine, options.vg_name, use_partitions=options.use_sfdisk
    )
    made = creation.run(chosen)
    names = ",".join(disk.name for disk in chosen)
    print(f"Done! VG: size {made.size_mib / 1024:.2f} GiB, disks: {names}")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the options; a wrong use ends the program with exit code 2."""
    parser = argparse.ArgumentParser(
        prog=NAME,
        description="Shows the disks of this machine, or makes a volume group of them.",
        formatter_class=arguments.Formatter,
    )
    add = parser.add_argument
    add("command", choices=("diskinfo", "create"), metavar="diskinfo|create")
    add("--alldisks", action="store_true", help="use every free disk")
    add("-d", "--disks", type=_names, default=[], metavar="DISK,...", help="disks")
    add("-r", "--allow-removable", action="store_true", help="also removable disks")
    add("-g", "--vg-name", type=_group, default=_GROUP, metavar="NAME", help="group")
    add("--use-sfdisk", action="store_true", help="make a partition on each disk")
    add("--json", action="store_true", help="print JSON (diskinfo)")
    add("-v", "--verbose", action="store_true", help="log each step")
    version = f"{NAME} (ganeti) {versions.RELEASE_VERSION}"
    add("--version", action="version", version=version)
    parser.set_defaults(debug=False)
    options = parser.parse_args(argv)
    if options.command == "diskinfo":
        return options
    if options.json:
        parser.error("--json belongs to diskinfo")
    if bool(options.disks) == options.alldisks:
        parser.error("create wants either --disks or --alldisks")
    return options


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names) or not text.isprintable():
        raise argparse.ArgumentTypeError(f"wanted names of disks, found {text!r}")
    return names


def _group(text: str) -> str:
    if not lvm.is_name(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no name of a volume group")
    return text


def _chosen(machine: Disks, words: Sequence[str]) -> list[Disk]:
    """Return the disks to use: those named, all of them free, or all free ones."""
    looked_at = machine.look(words)
    used = [disk for disk in looked_at if disk.reasons]
    if words and used:
        text = "; ".join(control_chars.escape(disk.problem) for disk in used)
        raise errors.OpPrereqError(text, ecodes.ECODE_STATE)
    free = [disk for disk in looked_at if not disk.reasons]
    if not free:
        texts = [control_chars.escape(disk.problem) for disk in used]
        raise errors.OpPrereqError(
            "; ".join(["this machine has no free disk", *texts]), ecodes.ECODE_NORES
        )
    return free


def _shown(disks: Sequence[Disk], *, as_json: bool) -> str:
    if as_json:
        return json.dumps([_object(disk) for disk in disks], indent=2)
    rows = [
        (
            disk.name,
            str(disk.size_mib),
            _yes_no(bool(disk.reasons)),
            control_chars.escape(",".join(disk.mounts)) or "-",
            _yes_no(disk.is_lvm),
            control_chars.escape(disk.info),
        )
        for disk in disks
    ]
    cells = [[row[index] for row in rows] for index in range(len(_COLUMNS))]
    return table.render(_COLUMNS, cells, separator=None, headers=True, pad_header=True)


def _yes_no(value: bool) -> str:
    return "yes" if value else "no"


def _object(disk: Disk) -> dict[str, Any]:
    return {
        "name": disk.name,
        "path": disk.path,
        "size": disk.size_mib,
        "used": bool(disk.reasons),
        "mounts": list(disk.mounts),
        "lvm": disk.is_lvm,
        "info": disk.info,
    }
