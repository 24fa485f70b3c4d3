"""``command`` and ``copyfile``: over SSH to some or all nodes."""

import os
import shlex
from collections.abc import Mapping
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import exitcodes
from ganeti.base.errors import refusal
from ganeti.commands.cli.context import CommandContext
from ganeti.commands.cli.output.listing import online_nodes

_RULER: Final = "-" * 48
_FIELDS: Final = ("pip", "sip", "ndp/ssh_port")
_DEFAULT_PORT: Final = 22
#: Permissions that a copied file keeps.
_MODE_BITS: Final = 0o777


def _nodes(ctx: CommandContext) -> tuple[list[dict[str, Any]], str, str]:
    """Return the selected nodes, and the names of cluster and master."""
    cluster, master = ctx.call("QueryConfigValues", ["cluster_name", "master_node"])
    nodes = online_nodes(ctx, ctx.opts.nodes, group=ctx.opts.nodegroup, fields=_FIELDS)
    return nodes, cluster, master


def connect(
    ctx: CommandContext, node: Mapping[str, Any], cluster: str, address: str
) -> Any:
    """Log in on a node.

    Args:
        ctx: the command.
        node: has the fields ``name`` and ``ndp/ssh_port``.
        cluster: name of the cluster.
        address: of the node.

    Raises:
        SshError: the node cannot be reached, or refuses the login.
    """
    from ganeti.protocols.ssh import account, client

    return client.Client(
        node["name"],
        node["ndp/ssh_port"] or _DEFAULT_PORT,
        client.cluster_identity(ctx.paths, cluster),
        address=address,
        environment=account.node_environment(ctx.paths, node["name"]),
    )


def run_command(ctx: CommandContext) -> None:
    """Run a shell command on nodes, on the master last; print its output."""
    nodes, cluster, master = _nodes(ctx)
    command = " ".join(ctx.args)
    for node in sorted(nodes, key=lambda item: item["name"] == master):
        code, output = _run_on(ctx, node, cluster, command)
        if ctx.opts.failure_only and code == 0:
            continue
        ctx.out(_RULER)
        if ctx.opts.show_machine_names:
            for line in output.splitlines():
                ctx.out(f"{node['name']}: {line}")
        else:
            ctx.out(f"node: {node['name']}")
            # Scripts know the blank line after an output that ends with a newline.
            ctx.out(output)
        ctx.out(f"return code = {code}")


def _run_on(
    ctx: CommandContext, node: dict[str, Any], cluster: str, command: str
) -> tuple[int | str, str]:
    try:
        with connect(ctx, node, cluster, node["pip"]) as shell:
            result = shell.run(["sh", "-c", command])
    except errors.GenericError as err:
        return 255, f"{err}\n"  # the exit code of ssh when it cannot connect
    code = result.code if result.code is not None else f"signal {result.signal}"
    return code, result.stdout + result.stderr


def run_copyfile(ctx: CommandContext) -> int:
    """Copy a file of the master to the same path on other nodes."""
    path = os.path.abspath(ctx.args[0])
    try:
        with open(path, "rb") as stream:
            data = stream.read()
            mode = os.fstat(stream.fileno()).st_mode & _MODE_BITS
    except OSError as err:
        raise refusal(f"cannot read {path}: {err.strerror}") from err
    from ganeti.protocols.ssh import account

    nodes, cluster, master = _nodes(ctx)
    field = "sip" if ctx.opts.use_replication_network else "pip"
    for node in nodes:
        if node["name"] == master:
            continue
        try:
            with connect(ctx, node, cluster, node[field]) as shell:
                shell.put_file(
                    account.path_on(ctx.paths, node["name"], path), data, mode=mode
                )
        except errors.GenericError as err:
            port = node["ndp/ssh_port"] or _DEFAULT_PORT
            ctx.err(
                f"Copy of file {shlex.quote(path)} to node {node['name']}:{port} failed"
            )
            ctx.err(f"  {err}")
    return exitcodes.EXIT_SUCCESS
