"""Command line of ``vcluster``."""

import argparse
import contextlib
import json
import os
import pwd
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

from ganeti import _buildconf
from ganeti.base import errors
from ganeti.base.constants import exitcodes, versions
from ganeti.base.process import SystemRunner
from ganeti.base.text import arguments
from ganeti.devel.vcluster import agent, isolation, lifecycle, nodes, serial
from ganeti.devel.vcluster import layout as layout_module
from ganeti.devel.vcluster.interrupts import Interrupts
from ganeti.devel.vcluster.nodes import NodeControl
from ganeti.protocols.ssh import keys

# Report of ``vcluster status``: nodes, processes and paths.


def collect_status(
    layout: layout_module.Layout, control: NodeControl
) -> dict[str, Any]:
    """Return the report that ``status --json`` prints.

    Keys: ``directory``, ``isolated``, ``cluster`` (name, address), ``master`` and
    ``nodes``, a list of objects with name, address, root, powered, ports, sockets,
    files, environment and processes.
    """
    return {
        "directory": layout.directory,
        "isolated": layout.isolated,
        "cluster": {
            "name": layout_module.CLUSTER_HOST,
            "address": layout.cluster_address,
        },
        "master": _current_master(layout),
        "bridge": layout.bridge if layout.isolated else None,
        "nodes": [_node(layout, control, node) for node in layout.nodes],
    }


def _current_master(layout: layout_module.Layout) -> str | None:
    """Return the master according to most nodes."""
    votes: dict[str, int] = {}
    for node in layout.nodes:
        path = layout.host_path(node, "/var/lib/ganeti/ssconf_master_node")
        try:
            with open(path, encoding="utf-8") as stream:
                name = stream.read().strip()
        except OSError:
            continue
        votes[name] = votes.get(name, 0) + 1
    return max(votes, key=lambda name: votes[name]) if votes else None


def _node(
    layout: layout_module.Layout, control: NodeControl, node: layout_module.Node
) -> dict[str, Any]:
    def on_host(path: str) -> str:
        return layout.host_path(node, path)

    ssh_dir = on_host("/root/.ssh")
    root_keys = [keys.root_key_path(ssh_dir, kind) for kind in keys.DEFAULT_BITS]
    return {
        "name": node.name,
        "address": node.address,
        "root": node.root,
        "powered": control.is_powered(node),
        "pid": isolation.holder(layout, node) if layout.isolated else None,
        "ports": {"sshd": layout.ssh_port} | layout_module.PORTS,
        "sockets": {
            "query": on_host("/var/run/ganeti/socket/ganeti-query"),
            "master": on_host("/var/run/ganeti/socket/ganeti-master"),
        },
        "files": {
            "server_pem": on_host("/var/lib/ganeti/server.pem"),
            "client_pem": on_host("/var/lib/ganeti/client.pem"),
            "rapi_pem": on_host("/var/lib/ganeti/rapi.pem"),
            "hmac_key": on_host("/var/lib/ganeti/hmac.key"),
            "known_hosts": on_host("/var/lib/ganeti/known_hosts"),
            "authorized_keys": on_host("/root/.ssh/authorized_keys"),
            "root_keys": [path for path in root_keys if os.path.exists(path)],
            "log_dir": on_host("/var/log/ganeti"),
        },
        "environment": layout.environment(node),
        "processes": [
            {"pid": process.pid, "name": process.name}
            for process in control.processes_on(node)
        ],
    }


def format_status(report: dict[str, Any]) -> str:
    """Return the report as text."""
    master = report["master"]
    mode = "isolated" if report["isolated"] else "simple"
    cluster = f"{report['cluster']['name']} ({report['cluster']['address']})"
    lines = [f"{cluster} in {report['directory']}, {mode}"]
    for node in report["nodes"]:
        names: dict[str, int] = {}
        for process in node["processes"]:
            names[process["name"]] = names.get(process["name"], 0) + 1
        running = ", ".join(
            name if count == 1 else f"{name} x{count}"
            for name, count in sorted(names.items())
        )
        role = "master" if node["name"] == master else ""
        state = "on" if node["powered"] else "OFF"
        lines.append(
            f"{node['name']:24} {node['address']:15} {role:6} {state:3}"
            f" {running or 'nothing runs'}"
        )
    return "\n".join(lines)


_DESCRIPTION: Final = """
Runs a virtual cluster: many nodes as real daemons on this machine.
The directory is -C DIR, or the environment variable VCLUSTER_DIR, or one per user.
"""


def default_directory() -> str:
    """Return the default directory of this user; short, because of socket paths."""
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        user = str(os.getuid())
    return os.environ.get("VCLUSTER_DIR") or f"/tmp/vcluster-{user}"  # noqa: S108


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="vcluster", description=_DESCRIPTION, formatter_class=arguments.Formatter
    )
    parser.add_argument(
        "-C", "--directory", default=default_directory(), help="default %(default)s"
    )
    version = f"vcluster (ganeti) {versions.RELEASE_VERSION}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, text: str, work: Work) -> argparse.ArgumentParser:
        # Commands that vcluster calls itself are not listed in the help.
        listed: dict[str, Any] = {} if text.startswith("internal: ") else {"help": text}
        child = commands.add_parser(
            name, description=text, formatter_class=arguments.Formatter, **listed
        )
        child.set_defaults(work=work)
        return child

    _add_life(add)
    _add_nodes(add)
    return parser


#: Clusters with more nodes do not manage SSH keys by default.
_SSH_SETUP_LIMIT: Final = 5
_CREATE_CLUSTER: Final = "create-cluster"
Work = Callable[[argparse.Namespace], int]
Add = Callable[[str, str, Work], argparse.ArgumentParser]


def _add_life(add: Add) -> None:
    up = add("up", "create machines and a cluster, and start everything", _up)
    inside = add(_CREATE_CLUSTER, "internal: create the cluster", _create_inside)
    up.add_argument(
        "-n", "--nodes", type=int, default=3, help="number of nodes, default 3"
    )
    up.add_argument(
        "--isolated",
        action="store_true",
        help="own network, mounts and processes per node; needs root",
    )
    up.add_argument("--nodes-prefix", default="node", help="names: PREFIX1, PREFIX2 …")
    up.add_argument(
        "--keep-failed",
        action="store_true",
        help="on failure end all processes but keep the directories with the logs",
    )
    up.add_argument(
        "--monitoring",
        action="store_true",
        help="run the monitoring agents and the maintenance daemon, too",
    )
    up.add_argument("--machines-only", action="store_true", help="create no cluster")
    for parser in (up, inside):
        parser.add_argument(
            "--hypervisors",
            help="comma list; default kvm,fake where QEMU is installed, else fake",
        )
        parser.add_argument(
            "--store",
            choices=("file", "etcd"),
            default="file",
            help="where the cluster keeps its state; etcd starts three servers",
        )
        parser.add_argument(
            "--ssh-setup",
            action=argparse.BooleanOptionalAction,
            help="let the cluster manage SSH keys, default for up to 5 nodes",
        )
    down = add("down", "end everything and remove the directories", _down)
    down.add_argument("--keep", action="store_true", help="keep the directories")
    add("status", "show nodes and their processes", _status).add_argument(
        "--json",
        action="store_true",
        help="print JSON, with addresses, ports and files",
    )


def _add_nodes(add: Add) -> None:
    def on_node(name: str, text: str, work: Work) -> argparse.ArgumentParser:
        child = add(name, text, work)
        child.add_argument("node")
        return child

    run = on_node("exec", "run a command on a node", _exec)
    run.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND")
    on_node("shell", "start a shell on a node", _shell)
    kill = on_node("kill", "kill -9 all processes of a node, or one daemon", _kill)
    kill.add_argument("daemon", nargs="?")
    start = on_node("start", "start all daemons of a node, or one", _start)
    start.add_argument("daemon", nargs="?")
    line = add("serial", "show a guest's serial console until a text appears", _serial)
    line.add_argument("instance")
    line.add_argument("--until", default="login: ?$", help="regular expression")
    line.add_argument("--timeout", type=float, default=60.0, metavar="SECONDS")
    on_node("pause", "suspend all processes of a node", _pause)
    on_node("resume", "continue the processes of a paused node", _resume)
    switch = add(
        "power", "switch or show a node's power: on, off, cycle, status", _power
    )
    switch.add_argument("action", choices=("on", "off", "cycle", "status"))
    switch.add_argument("node")
    oob = add("oob", "out-of-band helper: COMMAND NODE, as a cluster calls it", _oob)
    oob.add_argument("action", choices=sorted(nodes.POWER_ACTIONS))
    oob.add_argument("node")
    member = add(
        "etcd", "act on a server of etcd: start, kill, pause, resume, cut, join", _etcd
    )
    actions = ("start", "kill", "pause", "resume", "cut", "join")
    member.add_argument("action", choices=actions)
    member.add_argument("member", type=int, choices=(1, 2, 3))
    _add_drill(add)
    part = add("partition", "cut two lists of nodes off from each other", _partition)
    part.add_argument("left", help="comma list")
    part.add_argument("right", help="comma list")
    add("heal", "undo all partitions", _heal)
    on_node("logs", "show the end of a node's log files", _logs).add_argument(
        "-n", "--lines", type=int, default=20
    )
    add(
        agent.COMMAND,
        "internal: reset nodes and switch the power of isolated ones",
        _agent,
    )
    on_node(isolation.HOLD_COMMAND, "internal: run as a node's first process", _hold)


def _add_drill(add: Add) -> None:
    drill = add("drill", "let nodes die under a guest that proves its runs", _drill)
    drill.add_argument(
        "drills", nargs="*", metavar="DRILL", help="default all; --list shows them"
    )
    drill.add_argument("--list", action="store_true", help="show the drills")
    drill.add_argument(
        "--rounds", type=int, default=1, help="how often to play them, default 1"
    )
    drill.add_argument(
        "--pairs", type=int, default=0, metavar="N", help="play N random pairs instead"
    )
    drill.add_argument(
        "--seed", type=int, default=0, help="of the pairs, default %(default)s"
    )
    drill.add_argument(
        "--goal",
        type=float,
        metavar="SECONDS",
        help="fail if the 95th percentile of the recoveries takes longer",
    )
    drill.add_argument(
        "--json", action="store_true", help="print a JSON document at the end"
    )


def _load(args: argparse.Namespace) -> tuple[layout_module.Layout, NodeControl]:
    layout = layout_module.Layout.load(args.directory)
    return layout, NodeControl(layout, SystemRunner())


def _print(text: str) -> None:
    print(text, flush=True)


def _interrupts(args: argparse.Namespace) -> Interrupts:
    interrupts: Interrupts = args.interrupts
    return interrupts


def _timer(args: argparse.Namespace) -> lifecycle.StepTimer:
    """Return a timer that prints steps; an interrupt ends the command at each."""

    def say(text: str) -> None:
        _interrupts(args).check()
        _print(text)

    return lifecycle.StepTimer(say)


def _up(args: argparse.Namespace) -> int:
    if args.isolated and os.getuid() != 0:
        raise errors.OpPrereqError("--isolated: needs root", "environment_error")
    with (
        lifecycle.exclusive(args.directory, "up"),
        _interrupts(args).once(),
    ):
        if layout_module.Layout.exists(args.directory):
            raise errors.OpPrereqError(
                f"{args.directory}: a virtual cluster exists already, see `vcluster"
                " status`; `vcluster down` removes it",
                "already_exists",
            )
        chosen = lifecycle.reserve_network(args.directory, isolated=args.isolated)
        layout = layout_module.plan(
            args.directory,
            count=args.nodes,
            isolated=args.isolated,
            network=chosen,
            bindir=_buildconf.TOOLSDIR,
            prefix=args.nodes_prefix,
            monitoring=args.monitoring,
        )
        timer = _timer(args)
        process = SystemRunner()
        try:
            ssh_setup = args.machines_only or _wants_ssh_setup(args)
            control = lifecycle.make_machines(
                layout, process, timer, same_keys=not ssh_setup
            )
            if args.store == "etcd":
                _start_etcd(layout, timer)
            if not args.machines_only:
                _create(args, layout, control, timer)
            _interrupts(args).check()
        except BaseException:
            with _without_interrupts():
                lifecycle.down(layout, process, keep=args.keep_failed)
            raise
        _print(f"up after {timer.total_s:.1f} s in {args.directory}")
    return 0


def _start_etcd(layout: layout_module.Layout, timer: lifecycle.StepTimer) -> None:
    from ganeti.devel.vcluster import etcd

    etcd.start_all(layout)
    timer.step(f"{etcd.COUNT} servers of etcd: {etcd.servers(layout)}")


def _store(args: argparse.Namespace, layout: layout_module.Layout) -> str | None:
    """Return the address of the store of the new cluster; None for files."""
    if args.store != "etcd":
        return None
    from ganeti.devel.vcluster import etcd

    return str(etcd.servers(layout))


def _etcd(args: argparse.Namespace) -> int:
    from ganeti.devel.vcluster import etcd

    layout, _control = _load(args)
    number = args.member - 1
    if args.action == "start":
        etcd.start(layout, number)
    elif args.action == "kill":
        etcd.kill(layout, number)
    elif args.action in ("cut", "join"):
        _require_isolated(layout, f"etcd {args.action}")
        act = etcd.cut if args.action == "cut" else etcd.join
        act(layout, number, etcd.everyone_else(layout, number))
    else:
        what = signal.SIGSTOP if args.action == "pause" else signal.SIGCONT
        etcd.signal_member(layout, number, what)
    return 0


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Ignore interrupts during a block, which removes what was started."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _wants_ssh_setup(args: argparse.Namespace) -> bool:
    """Return whether to manage SSH keys: each candidate's key goes to each node."""
    if args.ssh_setup is None:
        return bool(args.nodes <= _SSH_SETUP_LIMIT)
    return bool(args.ssh_setup)


def _create(
    args: argparse.Namespace,
    layout: layout_module.Layout,
    control: NodeControl,
    timer: lifecycle.StepTimer,
) -> None:
    # Imported here because it is slow and only this command needs it.
    with _interrupts(args).deferred():
        from ganeti.devel.vcluster import create

    given = args.hypervisors
    settings = create.Settings(
        hypervisors=tuple(given.split(",")) if given else create.hypervisors(),
        ssh_setup=_wants_ssh_setup(args),
        store=_store(args, layout),
    )
    if not layout.isolated:
        create.create_cluster(layout, SystemRunner(), timer, settings)
        return
    # The first node's daemons run in its namespaces: create the cluster there.
    options = ["--hypervisors", ",".join(settings.hypervisors)]
    options += ["--ssh-setup" if settings.ssh_setup else "--no-ssh-setup"]
    options += ["--store", args.store]
    program = [os.path.join(layout.bindir, "vcluster"), "-C", layout.directory]
    code = control.call(layout.master_node, [*program, _CREATE_CLUSTER, *options], {})
    if code != 0:
        raise errors.OpExecError(
            "the cluster could not be created; see the messages above"
        )


def _create_inside(args: argparse.Namespace) -> int:
    """Create the cluster, in the first node's namespaces."""
    with _interrupts(args).deferred():
        from ganeti.devel.vcluster import create

    layout = layout_module.Layout.load(args.directory)
    settings = create.Settings(
        tuple(args.hypervisors.split(",")), args.ssh_setup, _store(args, layout)
    )
    create.create_cluster(layout, SystemRunner(), _timer(args), settings)
    return 0


def _down(args: argparse.Namespace) -> int:
    if not layout_module.Layout.exists(args.directory):
        _print(f"{args.directory}: no virtual cluster, nothing to do")
        return 0
    with lifecycle.exclusive(args.directory, "down"):
        layout = layout_module.Layout.load(args.directory)
        count = lifecycle.down(layout, SystemRunner(), keep=args.keep)
    _print(f"{args.directory}: down, {count} processes ended")
    return 0


def _status(args: argparse.Namespace) -> int:
    layout, control = _load(args)
    report = collect_status(layout, control)
    if args.json:
        _print(json.dumps(report, indent=1))
    else:
        _print(format_status(report))
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
    _print(f"{args.node}: {count} processes killed")
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
        layout_module.Layout.load(args.directory),
        args.instance,
        until=args.until,
        timeout_s=args.timeout,
        say=_print,
    )
    return 0


def _pause(args: argparse.Namespace) -> int:
    layout, control = _load(args)
    _print(f"{args.node}: {control.pause(layout.node(args.node))} processes paused")
    return 0


def _resume(args: argparse.Namespace) -> int:
    layout, control = _load(args)
    _print(f"{args.node}: {control.resume(layout.node(args.node))} processes resumed")
    return 0


def _power(args: argparse.Namespace) -> int:
    return _print_power(args, args.action)


def _oob(args: argparse.Namespace) -> int:
    return _print_power(args, nodes.POWER_ACTIONS[args.action])


def _print_power(args: argparse.Namespace, action: str) -> int:
    """Switch or show power; print the output of an out-of-band helper."""
    layout, control = _load(args)
    layout.node(args.node)
    if layout.isolated:
        answer = agent.ask(layout, action, args.node)
        sys.stderr.write(answer["stderr"])
        sys.stdout.write(answer["stdout"])
        return int(answer["code"])
    sys.stdout.write(nodes.power_act(layout, control, action, args.node))
    return 0


def _agent(args: argparse.Namespace) -> int:
    layout, control = _load(args)

    def act(action: str, node: str) -> str:
        return nodes.power_act(layout, control, action, node)

    return agent.serve(layout, act)


def _drill(args: argparse.Namespace) -> int:
    with _interrupts(args).deferred():
        from ganeti.devel.drill import runner

    return runner.run_drills(args, lambda: _load(args), _print)


def _partition(args: argparse.Namespace) -> int:
    # Importing netlink takes longer than most commands.
    from ganeti.devel.vcluster import network

    layout, _control = _load(args)
    _require_isolated(layout, "partition")
    left = [layout.node(name) for name in args.left.split(",")]
    right = [layout.node(name) for name in args.right.split(",")]
    for side, others in ((left, right), (right, left)):
        for node in side:
            pid = isolation.require_holder(layout, node)
            network.cut(pid, [other.address for other in others])
    return 0


def _heal(args: argparse.Namespace) -> int:
    from ganeti.devel.vcluster import network

    layout, _control = _load(args)
    _require_isolated(layout, "heal")
    addresses = [node.address for node in layout.nodes]
    for node in layout.nodes:
        pid = isolation.holder(layout, node)
        if pid is not None:
            network.join(pid, [a for a in addresses if a != node.address])
    return 0


def _require_isolated(layout: layout_module.Layout, command: str) -> None:
    if not layout.isolated:
        raise errors.OpPrereqError(
            f"{command}: the nodes of this cluster share the machine's network; create"
            " the cluster with `vcluster up --isolated`",
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
            _print(f"==> {path} <==\n{''.join(tail)}")
    return 0


def _hold(args: argparse.Namespace) -> int:
    layout = layout_module.Layout.load(args.directory)
    return isolation.hold(layout, layout.node(args.node))


def main() -> int:
    """Run a command of vcluster."""
    args = _parser().parse_args()
    args.directory = os.path.abspath(args.directory)
    work: Work = args.work
    try:
        with Interrupts() as args.interrupts:
            return work(args)
    except KeyboardInterrupt:
        print(f"\nvcluster: {args.command}: interrupted", file=sys.stderr)
        return exitcodes.EXIT_FAILURE
    except (errors.GenericError, OSError) as err:
        reason = err if isinstance(err, OSError) or not err.args else err.args[0]
        print(f"vcluster: {reason}", file=sys.stderr)
        return getattr(err, "EXIT_CODE", 1)
