"""``console``: connect to an instance's console, by SSH or by the node daemon."""

import contextlib
import os
import shlex
import shutil
import subprocess
from typing import Any, Final

from ganeti.base import errors, terminal
from ganeti.base.constants import ecodes, exitcodes
from ganeti.commands.cli import local
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output import listing
from ganeti.protocols.ssh import host_keys

_FIELDS: Final = ["console", "oper_state", "pnode"]
_VNC_BASE_PORT: Final = 5900
#: Exit status of ssh if it could not connect, or lost the connection.
_NO_SSH: Final = 255
#: Added to the number of the signal that ended a program.
_SIGNALED: Final = 128
#: Address family numbers as ssconf files hold them.
_AF_INET6: Final = "10"


def run(ctx: CommandContext) -> int:
    """Connect to a console, or print the command or address."""
    name = ctx.args[0]
    if _wants_relay(ctx):
        return _relay(ctx, name)
    (cluster_name,) = ctx.call("QueryConfigValues", ["cluster_name"])
    (row,) = listing.named(ctx, "instance", _FIELDS, [name])
    console = row["console"]
    if not console:
        if row["oper_state"]:
            raise errors.OpExecError(f"console of instance {name} is not available")
        if row["oper_state"] is None:
            raise errors.OpExecError(
                f"instance {name}: its node {row['pnode']} does not answer, so whether"
                " it runs is unknown"
            )
        raise errors.OpExecError(
            f"instance {name} is not running, so it has no console"
        )
    hosts = host_keys.read_known_hosts(ctx.paths.data("known_hosts"))
    node = row["pnode"]
    is_recorded = any(node in names for names, _key in hosts)
    return _SHOW[console["kind"]](ctx, console, node if is_recorded else cluster_name)


def _wants_relay(ctx: CommandContext) -> bool:
    """Return whether an option asks for the relay. Raises OpPrereqError."""
    opts = ctx.opts
    if opts.ssh and (opts.relay or opts.watch or opts.take_over):
        raise errors.OpPrereqError(
            "console: --ssh excludes --relay, --watch and --take-over",
            ecodes.ECODE_INVAL,
        )
    wants = bool(opts.relay or opts.watch or opts.take_over)
    if wants and opts.show_command:
        raise errors.OpPrereqError(
            "console: --relay, --watch and --take-over have no command to show",
            ecodes.ECODE_INVAL,
        )
    return wants


def _relay(ctx: CommandContext, name: str) -> int:
    from ganeti.commands.instance import relayed

    return relayed.serial(ctx, name)


def _message(ctx: CommandContext, console: dict[str, Any], _: str) -> int:
    ctx.out(console["message"])
    return exitcodes.EXIT_SUCCESS


def _vnc(ctx: CommandContext, console: dict[str, Any], _: str) -> int:
    host, port = console["host"], console["port"]
    display = console.get("display", port - _VNC_BASE_PORT)
    ctx.out(
        f"Instance {console['instance']} has VNC listening on {host}:{port}"
        f" (display {display}), URL <vnc://{host}:{port}/>"
    )
    return exitcodes.EXIT_SUCCESS


def _spice(ctx: CommandContext, console: dict[str, Any], _: str) -> int:
    ctx.out(
        f"Instance {console['instance']} has SPICE listening on"
        f" {console['host']}:{console['port']}"
    )
    return exitcodes.EXIT_SUCCESS


def _ssh(ctx: CommandContext, console: dict[str, Any], alias: str) -> int:
    argv = ssh_command(ctx, console, alias)
    if ctx.opts.show_command:
        ctx.out(shlex.join(argv))
        return exitcodes.EXIT_SUCCESS
    name, host = console["instance"], console["host"]
    program = shutil.which(argv[0])
    if program is None:
        if ctx.opts.ssh:
            raise errors.OpExecError("console: cannot find the program ssh")
        return _instead(ctx, name, "this machine has no program ssh")
    if not ctx.effects.stdin.isatty():
        # On a remote terminal, the end of the input would be a key for the guest.
        argv = [word for word in argv if word != "-t"]
        argv.insert(1, "-T")
    if ctx.opts.ssh:
        # ssh needs the terminal for itself, so it replaces this process.
        os.execv(program, argv)  # noqa: S606
    with terminal.kept(0):
        code = _exit_status([program, *argv[1:]])
    # Without a terminal, a part of the input may have been sent already.
    if code == _NO_SSH and ctx.effects.stdin.isatty():
        return _instead(ctx, name, f"SSH to {host} does not work")
    return code


def _exit_status(argv: list[str]) -> int:
    """Run a program that has the terminal; return its exit status as a shell does."""
    with subprocess.Popen(argv) as child:
        try:
            while True:
                # The program has got an interrupt, too, and decides.
                with contextlib.suppress(KeyboardInterrupt):
                    code = child.wait()
                    return code if code >= 0 else _SIGNALED - code
        finally:
            child.terminate()


def _instead(ctx: CommandContext, name: str, why: str) -> int:
    """Say why the console goes through the relay, and connect."""
    ctx.err(f"{why}; connecting through the node daemon")
    return _relay(ctx, name)


def ssh_command(ctx: CommandContext, console: dict[str, Any], alias: str) -> list[str]:
    """Return the ssh command line of a console.

    Args:
        ctx: the command.
        console: the console, as the master describes it.
        alias: name of the host in known_hosts: the node, or the cluster if the host
            keys of the node are not recorded.
    """
    options = {
        "EscapeChar": "none",
        "HashKnownHosts": "no",
        "GlobalKnownHostsFile": ctx.paths.data("known_hosts"),
        "UserKnownHostsFile": "/dev/null",
        "CheckHostIp": "no",
        "ConnectTimeout": "10",
        "HostKeyAlias": alias,
        "Port": str(console.get("port") or 22),
        "BatchMode": "yes",
        "StrictHostKeyChecking": "yes",
    }
    if ctx.paths.is_virtual:
        # ssh reads keys from the home directory; a virtual node has them elsewhere.
        options["IdentityFile"] = _own_key(ctx)
    argv = ["ssh", *(f"-o{key}={value}" for key, value in options.items())]
    command = console["command"]
    text = command if isinstance(command, str) else shlex.join(command)
    user = console.get("user") or "root"
    family = "-6" if _is_ipv6(ctx) else "-4"
    return [*argv, family, "-t", "-t", f"{user}@{console['host']}", text]


def _own_key(ctx: CommandContext) -> str:
    kinds = ("rsa", "ecdsa", "dsa")
    paths = [f"{ctx.paths.root_ssh_dir}/id_{kind}" for kind in kinds]
    return next((path for path in paths if os.path.exists(path)), paths[0])


def _is_ipv6(ctx: CommandContext) -> bool:
    try:
        return local.read_ssconf(ctx.paths, "primary_ip_family") == _AF_INET6
    except errors.OpPrereqError:
        return False  # without the file, it is an old cluster with IPv4


_SHOW: Final = {"msg": _message, "vnc": _vnc, "spice": _spice, "ssh": _ssh}
