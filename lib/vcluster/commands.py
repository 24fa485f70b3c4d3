"""The command line of ``vcluster``."""

import argparse
import json
import os
import pwd
import sys
from collections.abc import Callable
from typing import Any, Final

from ganeti import _buildconf, errors
from ganeti.constants import versions
from ganeti.process import SystemRunner
from ganeti.vcluster import agent, isolation, lifecycle, serial, status
from ganeti.vcluster import layout as lay
from ganeti.vcluster.nodes import NodeControl

_DESCRIPTION: Final = """
Runs a virtual cluster: many nodes as real daemons on this machine.
The directory is -C DIR, or VCLUSTER_DIR of the environment, or one of your own.
"""


def default_directory() -> str:
    """Return the directory of a user's own virtual cluster; short, for sockets."""
    user = pwd.getpwuid(os.getuid()).pw_name
    return os.environ.get("VCLUSTER_DIR") or f"/tmp/vcluster-{user}"  # noqa: S108


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="vcluster", description=_DESCRIPTION)
    parser.add_argument(
        "-C", "--directory", default=default_directory(), help="default %(default)s"
    )
    version = f"vcluster (ganeti) {versions.RELEASE_VERSION}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, text: str, work: Work) -> argparse.ArgumentParser:
        # Those that vcluster calls itself are not listed for people.
        listed: dict[str, Any] = {} if text.startswith("internal: ") else {"help": text}
        child = commands.add_parser(name, description=text, **listed)
        child.set_defaults(work=work)
        return child

    _add_life(add)
    _add_nodes(add)
    return parser


#: Larger clusters leave SSH keys to the administrator, unless asked otherwise.
_SSH_SETUP_LIMIT: Final = 5
_FOUND: Final = "found-cluster"
#: Commands of out-of-band helpers and what they are here.
_OOB: Final = {
    "power-on": "on",
    "power-off": "off",
    "power-cycle": "cycle",
    "power-status": "status",
    "health": "health",
}
Work = Callable[[argparse.Namespace], int]
Add = Callable[[str, str, Work], argparse.ArgumentParser]


def _add_life(add: Add) -> None:
    up = add("up", "make machines, a cluster, and start everything", _up)
    inside = add(_FOUND, "internal: make the cluster", _found_inside)
    up.add_argument("-n", "--nodes", type=int, default=3, help="how many, default 3")
    up.add_argument(
        "--isolated",
        action="store_true",
        help="a network, mounts and processes of each node's own; needs root",
    )
    up.add_argument("--nodes-prefix", default="node", help="names: PREFIX1, PREFIX2 …")
    up.add_argument(
        "--keep-failed",
        action="store_true",
        help="when it fails, end what runs but keep the directories with the logs",
    )
    up.add_argument("--machines-only", action="store_true", help="make no cluster")
    for parser in (up, inside):
        parser.add_argument(
            "--hypervisors",
            help="comma list; default kvm,fake where QEMU is installed, else fake",
        )
        parser.add_argument(
            "--ssh-setup",
            action=argparse.BooleanOptionalAction,
            help="let the cluster manage SSH keys, default for up to 5 nodes",
        )
    down = add("down", "end everything and remove the directories", _down)
    down.add_argument("--keep", action="store_true", help="keep the directories")
    add("status", "show nodes and what runs there", _status).add_argument(
        "--json", action="store_true", help="addresses, ports and files too"
    )


def _add_nodes(add: Add) -> None:
    def on_node(name: str, text: str, work: Work) -> argparse.ArgumentParser:
        child = add(name, text, work)
        child.add_argument("node")
        return child

    run = on_node("exec", "run a command on a node", _exec)
    run.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND")
    on_node("shell", "start a shell on a node", _shell)
    kill = on_node("kill", "kill -9 all that runs on a node, or one daemon", _kill)
    kill.add_argument("daemon", nargs="?")
    start = on_node("start", "start all daemons of a node, or one", _start)
    start.add_argument("daemon", nargs="?")
    line = add("serial", "show a guest's serial console until a text appears", _serial)
    line.add_argument("instance")
    line.add_argument("--until", default="login: ?$", help="regular expression")
    line.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS")
    on_node("pause", "stop all processes of a node where they are", _pause)
    on_node("resume", "let a paused node go on", _resume)
    power = add("power", "power of a node: on, off, cycle, status", _power)
    power.add_argument("action", choices=("on", "off", "cycle", "status"))
    power.add_argument("node")
    oob = add("oob", "out-of-band helper: COMMAND NODE, as a cluster calls it", _oob)
    oob.add_argument("action", choices=sorted(_OOB))
    oob.add_argument("node")
    part = add("partition", "cut two lists of nodes off from each other", _partition)
    part.add_argument("left", help="comma list")
    part.add_argument("right", help="comma list")
    add("heal", "undo all partitions", _heal)
    on_node("logs", "show the end of a node's log files", _logs).add_argument(
        "-n", "--lines", type=int, default=20
    )
    add(
        agent.COMMAND,
        "internal: reset nodes, switch the power of isolated ones",
        _agent,
    )
    on_node(isolation.HOLD_COMMAND, "internal: be a node's first process", _hold)


def _load(args: argparse.Namespace) -> tuple[lay.Layout, NodeControl]:
    layout = lay.Layout.load(args.directory)
    return layout, NodeControl(layout, SystemRunner())


def _say(text: str) -> None:
    print(text, flush=True)


def _up(args: argparse.Namespace) -> int:
    if args.isolated and os.getuid() != 0:
        raise errors.OpPrereqError("--isolated: needs root", "environment_error")
    with lifecycle.exclusive(args.directory, "up"):
        if lay.Layout.exists(args.directory):
            raise errors.OpPrereqError(
                f"{args.directory}: there is a virtual cluster already, see `vcluster"
                " status`; `vcluster down` ends it",
                "already_exists",
            )
        chosen = lifecycle.reserve_network(args.directory, isolated=args.isolated)
        layout = lay.plan(
            args.directory,
            count=args.nodes,
            isolated=args.isolated,
            network=chosen,
            bindir=_buildconf.TOOLSDIR,
            prefix=args.nodes_prefix,
        )
        watch = lifecycle.StepTimer(_say)
        process = SystemRunner()
        try:
            ssh_setup = args.machines_only or _wants_ssh_setup(args)
            control = lifecycle.make_machines(
                layout, process, watch, same_keys=not ssh_setup
            )
            if not args.machines_only:
                _found(args, layout, control, watch)
        except BaseException:
            lifecycle.down(layout, process, keep=args.keep_failed)
            raise
        _say(f"up after {watch.total_s:.1f} s in {args.directory}")
    return 0


def _wants_ssh_setup(args: argparse.Namespace) -> bool:
    """Tell whether to manage SSH keys; each candidate's key goes to each node."""
    if args.ssh_setup is None:
        return bool(args.nodes <= _SSH_SETUP_LIMIT)
    return bool(args.ssh_setup)


def _found(
    args: argparse.Namespace,
    layout: lay.Layout,
    control: NodeControl,
    watch: lifecycle.StepTimer,
) -> None:
    # Only this command needs all of it, and it takes a while to load.
    from ganeti.vcluster import create

    given = args.hypervisors
    settings = create.Settings(
        hypervisors=tuple(given.split(",")) if given else create.hypervisors(),
        ssh_setup=_wants_ssh_setup(args),
    )
    if not layout.isolated:
        create.create_cluster(layout, SystemRunner(), watch, settings)
        return
    # The first node's daemons live in its namespaces: found the cluster in there.
    words = ["--hypervisors", ",".join(settings.hypervisors)]
    words += ["--ssh-setup" if settings.ssh_setup else "--no-ssh-setup"]
    program = [os.path.join(layout.bindir, "vcluster"), "-C", layout.directory]
    code = control.call(layout.master_node, [*program, _FOUND, *words], {})
    if code != 0:
        raise errors.OpExecError("the cluster could not be made")


def _found_inside(args: argparse.Namespace) -> int:
    """Make the cluster, in the first node's namespaces."""
    from ganeti.vcluster import create

    layout = lay.Layout.load(args.directory)
    settings = create.Settings(tuple(args.hypervisors.split(",")), args.ssh_setup)
    create.create_cluster(layout, SystemRunner(), lifecycle.StepTimer(_say), settings)
    return 0


def _down(args: argparse.Namespace) -> int:
    if not lay.Layout.exists(args.directory):
        _say(f"{args.directory}: no virtual cluster, nothing to do")
        return 0
    with lifecycle.exclusive(args.directory, "down"):
        layout = lay.Layout.load(args.directory)
        count = lifecycle.down(layout, SystemRunner(), keep=args.keep)
    _say(f"{args.directory}: down, {count} processes ended")
    return 0


def _status(args: argparse.Namespace) -> int:
    layout, control = _load(args)
    report = status.collect(layout, control)
    if args.json:
        _say(json.dumps(report, indent=1))
    else:
        _say(status.format_table(report))
    return 0


def _exec(args: argparse.Namespace) -> int:
    layout, control = _load(args)
    words = args.words[1:] if args.words[:1] == ["--"] else args.words
    if not words:
        raise errors.OpPrereqError("exec: wanted a command, found none", "wrong_input")
    sys.stdout.flush()
    return control.call(layout.node(args.node), words, dict(os.environ))


def _shell(args: argparse.Namespace) -> int:
    layout, control = _load(args)
    node = layout.node(args.node)
    extra = dict(os.environ) | {"PS1": f"{node.short}# "}
    return control.call(node, ["/bin/bash", "--norc", "-i"], extra)


def _kill(args: argparse.Namespace) -> int:
    layout, control = _load(args)
    count = control.kill(layout.node(args.node), args.daemon)
    _say(f"{args.node}: {count} processes killed")
    return 0


def _start(args: argparse.Namespace) -> int:
    layout, control = _load(args)
    node = layout.node(args.node)
    if args.daemon is None:
        warning = control.power_on(node)
        if warning:
            sys.stderr.write(f"vcluster: warning: {warning}\n")
    else:
        control.start_daemon(node, args.daemon)
    return 0


def _serial(args: argparse.Namespace) -> int:
    serial.listen(
        lay.Layout.load(args.directory),
        args.instance,
        until=args.until,
        timeout_s=args.timeout,
        say=_say,
    )
    return 0


def _pause(args: argparse.Namespace) -> int:
    layout, control = _load(args)
    _say(f"{args.node}: {control.pause(layout.node(args.node))} processes paused")
    return 0


def _resume(args: argparse.Namespace) -> int:
    layout, control = _load(args)
    _say(f"{args.node}: {control.resume(layout.node(args.node))} processes go on")
    return 0


def _power(args: argparse.Namespace) -> int:
    return _print_power(args, args.action)


def _oob(args: argparse.Namespace) -> int:
    return _print_power(args, _OOB[args.action])


def _print_power(args: argparse.Namespace, action: str) -> int:
    """Switch power or tell about it; prints what an out-of-band helper has to."""
    layout, control = _load(args)
    layout.node(args.node)
    if layout.isolated:
        answer = agent.ask(layout, action, args.node)
        sys.stderr.write(answer["stderr"])
        sys.stdout.write(answer["stdout"])
        return int(answer["code"])
    sys.stdout.write(_act_on_power(layout, control, action, args.node))
    return 0


def _act_on_power(
    layout: lay.Layout, control: NodeControl, action: str, name: str
) -> str:
    node = layout.node(name)
    if action == "status":
        return json.dumps({"powered": control.is_powered(node)}) + "\n"
    if action == "health":
        state = "OK" if control.is_powered(node) else "CRITICAL"
        return json.dumps([["Power", state]]) + "\n"
    if action in ("off", "cycle"):
        control.power_off(node)
    if action in ("on", "cycle"):
        control.power_on(node)
    return ""


def _agent(args: argparse.Namespace) -> int:
    layout, control = _load(args)

    def act(action: str, node: str) -> str:
        return _act_on_power(layout, control, action, node)

    return agent.serve(layout, act)


def _partition(args: argparse.Namespace) -> int:
    # Loading netlink takes longer than most commands.
    from ganeti.vcluster import network

    layout, _control = _load(args)
    _require_isolated(layout, "partition")
    left = [layout.node(name) for name in args.left.split(",")]
    right = [layout.node(name) for name in args.right.split(",")]
    for some, others in ((left, right), (right, left)):
        for node in some:
            pid = isolation.require_holder(layout, node)
            network.cut(pid, [other.address for other in others])
    return 0


def _heal(args: argparse.Namespace) -> int:
    from ganeti.vcluster import network

    layout, _control = _load(args)
    _require_isolated(layout, "heal")
    addresses = [node.address for node in layout.nodes]
    for node in layout.nodes:
        pid = isolation.holder(layout, node)
        if pid is not None:
            network.join(pid, [a for a in addresses if a != node.address])
    return 0


def _require_isolated(layout: lay.Layout, command: str) -> None:
    if not layout.isolated:
        raise errors.OpPrereqError(
            f"{command}: nodes of this cluster share this machine's network; make it"
            " with `vcluster up --isolated`",
            "wrong_state",
        )


def _logs(args: argparse.Namespace) -> int:
    layout, _control = _load(args)
    node = layout.node(args.node)
    directory = layout.host_path(node, "/var/log/ganeti")
    for name in sorted(os.listdir(directory)):
        path = os.path.join(directory, name)
        if os.path.isfile(path) and os.path.getsize(path):
            with open(path, encoding="utf-8", errors="replace") as stream:
                tail = stream.readlines()[-args.lines :]
            _say(f"==> {path} <==\n{''.join(tail)}")
    return 0


def _hold(args: argparse.Namespace) -> int:
    layout = lay.Layout.load(args.directory)
    return isolation.hold(layout, layout.node(args.node))


def main() -> int:
    """Run a command of vcluster."""
    args = _parser().parse_args()
    args.directory = os.path.abspath(args.directory)
    work: Work = args.work
    try:
        return work(args)
    except (errors.GenericError, OSError) as err:
        reason = err if isinstance(err, OSError) or not err.args else err.args[0]
        print(f"vcluster: {reason}", file=sys.stderr)
        return getattr(err, "EXIT_CODE", 1)
