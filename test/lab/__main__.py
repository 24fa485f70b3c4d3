"""Boot machines with LVM and DRBD under QEMU, and do to them what happens to real ones.

They run Debian's stock kernel, this machine's files and this tree as `make install` puts it.
Needs root, and once autotools/setup-env --lab. The first machine is lab1; what a machine
has written survives its power cycles, and `down` deletes it.
"""

import argparse
import json
import os
import subprocess
import sys

from lab import lab as labs
from lab import network, product
from lab.product import LabError


def main():
    """Run one command; return the exit code."""
    args = _parser().parse_args()
    try:
        return args.run(args) or 0
    except LabError as err:
        print(f"lab: {err}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Aborted.", file=sys.stderr)
        return 1


def _parser():
    parser = argparse.ArgumentParser(prog="tools/lab", description=__doc__)
    parser.add_argument(
        "-C",
        "--directory",
        default=labs.DIRECTORY,
        help="of the lab, default %(default)s",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    up = commands.add_parser("up", help="make machines and start them")
    up.add_argument(
        "-n", "--count", type=int, default=3, choices=range(1, 10), metavar="N"
    )
    up.add_argument("--memory", type=int, default=512, metavar="MIB", help="of each")
    up.add_argument("--disks", type=int, default=2, help="of each, for volume groups")
    up.add_argument(
        "--disk-size", type=int, default=24576, metavar="MIB", help="of a disk"
    )
    up.add_argument(
        "--xen", action="store_true", help="start Xen; needs --memory 1400 or more"
    )
    up.set_defaults(run=_up)

    down = commands.add_parser("down", help="power off and delete everything")
    down.set_defaults(run=lambda args: labs.Lab(args.directory).down())

    status = commands.add_parser("status", help="print what is up, cut and failed")
    status.add_argument("--json", action="store_true")
    status.set_defaults(run=_status)

    run = commands.add_parser("exec", help="run a command on a machine")
    run.add_argument("machine")
    run.add_argument("argv", nargs=argparse.REMAINDER, metavar="COMMAND")
    run.set_defaults(run=_exec)

    shell = commands.add_parser("shell", help="log in to a machine")
    shell.add_argument("machine")
    shell.set_defaults(run=_shell)

    power = commands.add_parser(
        "power", help="turn a machine off and on, as its plug does"
    )
    power.add_argument("machine")
    power.add_argument("action", choices=("on", "off", "cycle"))
    power.set_defaults(run=lambda args: _lab(args).power(args.machine, args.action))

    cut = commands.add_parser("cut", help="drop a machine's packets")
    cut.add_argument("machine")
    cut.add_argument("--peer", metavar="MACHINE", help="only between these two")
    cut.add_argument(
        "--direction",
        choices=network.DIRECTIONS,
        default="both",
        help="seen from the machine",
    )
    cut.set_defaults(
        run=lambda args: _lab(args).cut(args.machine, args.peer, args.direction)
    )

    join = commands.add_parser("join", help="undo cuts, of all machines by default")
    join.add_argument("machine", nargs="?")
    join.set_defaults(run=lambda args: _lab(args).join(args.machine))

    fail = commands.add_parser("disk-fail", help="let a disk return errors")
    fail.add_argument("machine")
    fail.add_argument("disk", type=int, help="0 is /dev/vdb, 1 is /dev/vdc")
    fail.add_argument("--only", choices=("read", "write"), help="errors of one kind")
    fail.add_argument("--mend", action="store_true", help="end them again")
    fail.set_defaults(run=_disk_fail)

    install = commands.add_parser(
        "install", help="install this tree, without starting any"
    )
    install.set_defaults(run=lambda _args: product.install() and None)
    return parser


def _lab(args):
    return labs.Lab(args.directory)


def _up(args):
    lab = labs.up(
        args.directory, count=args.count, memory_mib=args.memory, disks=args.disks,
        disk_mib=args.disk_size, xen=args.xen,
    )  # fmt: skip
    names = ", ".join(machine.name for machine in lab.machines)
    print(
        f"Started {names}. tools/lab shell lab1 logs in; tools/lab down removes them."
    )


def _status(args):
    status = _lab(args).status()
    if args.json:
        print(json.dumps(status, indent=2))
        return
    for machine in status["machines"]:
        print(f"{machine['name']}  {machine['address']:<12} {machine['power']}")
    for cut in status["cuts"]:
        peer = cut["peer"] or "all others"
        print(f"cut: {cut['machine']} and {peer}, direction {cut['direction']}")
    for entry in status["failed_disks"]:
        kinds = " and ".join(entry["errors"])
        print(f"failed: disk {entry['disk']} of {entry['machine']}, each {kinds}")


def _exec(args):
    command = " ".join(labs.quote(word) for word in args.argv)
    machine = _lab(args).machine(args.machine)
    return subprocess.run([*machine.ssh(), command], check=False).returncode


def _shell(args):
    argv = _lab(args).machine(args.machine).ssh("-t")
    os.execvp(argv[0], argv)


def _disk_fail(args):
    kinds = [args.only] if args.only else ["read", "write"]
    _lab(args).fail_disk(args.machine, args.disk, [] if args.mend else kinds)


if __name__ == "__main__":
    sys.exit(main())
