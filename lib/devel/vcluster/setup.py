"""``vcluster-setup``: directories and scripts for a virtual cluster created by hand.

Creates nodes at the documented paths; the caller creates the cluster. ``vcluster up``
does everything at once.
"""

import argparse
import os
import shlex
import sys
from typing import Final

from ganeti import _buildconf
from ganeti.base import errors
from ganeti.base.constants import ecodes, versions
from ganeti.base.filesystem import files
from ganeti.base.net import netutils
from ganeti.base.pathutils import HOSTNAME_ENV, ROOTDIR_ENV
from ganeti.base.text import arguments
from ganeti.devel.vcluster import layout, node_directories
from ganeti.tools import common

NAME: Final = "vcluster-setup"
MAX_NODES: Final = 90
MAX_INSTANCES: Final = 155
_FIRST_NODE: Final = 10
_FIRST_INSTANCE: Final = 100
_FULL_PREFIX: Final = 32
_EEXIST: Final = 17
_MARK: Final = "# virtual Ganeti cluster in "


def main() -> int:
    """Run the tool."""
    options = _parse()
    return common.run(NAME, lambda: set_up(options))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=NAME,
        description="Creates virtual nodes.",
        formatter_class=arguments.Formatter,
    )
    add = parser.add_argument
    version = f"{NAME} (ganeti) {versions.RELEASE_VERSION}"
    add("--version", action="version", version=version)
    add("directory", help="directory of the cluster")
    add("-c", dest="nodes", type=int, default=5, help="number of nodes")
    add("-i", dest="instances", type=int, default=10, help="number of instance names")
    add("-p", dest="prefix", default="192.0.2", help="first three octets of addresses")
    add("-n", dest="device", default="eth0", help="network interface")
    add("-I", dest="init", default="", help="init script, default daemon-util")
    add("-E", dest="no_hosts", action="store_true", help="leave /etc/hosts alone")
    add("-N", dest="no_network", action="store_true", help="set up no addresses")
    return parser.parse_args()


def set_up(options: argparse.Namespace) -> None:
    """Create the nodes of the options; existing files are kept.

    Raises:
        OpPrereqError: an option is invalid.
        GenericError: addresses or hosts cannot be set up.
    """
    _check(options)
    directory = os.path.abspath(options.directory)
    prefix = options.prefix
    nodes = [
        layout.Node(
            f"node{number}",
            f"{prefix}.{_FIRST_NODE + number - 1}",
            os.path.join(directory, f"node{number}"),
        )
        for number in range(1, options.nodes + 1)
    ]
    hosts = _hosts_text(nodes, prefix, options.instances)
    os.makedirs(directory, exist_ok=True)
    files.write_file(os.path.join(directory, "hosts"), hosts, mode=0o644)
    for node in nodes:
        make_node(node, hosts)
    _write_scripts(directory, nodes, options.init)
    if not options.no_network:
        _add_addresses(options.device, [f"{prefix}.1", *(n.address for n in nodes)])
    if not options.no_hosts:
        _add_hosts(netutils.HOSTS_FILE, directory, hosts)


def _check(options: argparse.Namespace) -> None:
    for what, actual, limit in (
        ("nodes", options.nodes, MAX_NODES),
        ("instance names", options.instances, MAX_INSTANCES),
    ):
        if not 0 <= actual <= limit:
            raise errors.OpPrereqError(
                f"number of {what}: wanted at most {limit}, found {actual}",
                ecodes.ECODE_INVAL,
            )
    if not netutils.is_address(f"{options.prefix}.1") or ":" in options.prefix:
        raise errors.OpPrereqError(
            "address prefix: wanted three octets such as 192.0.2, found"
            f" {options.prefix!r}",
            ecodes.ECODE_INVAL,
        )


def _hosts_text(nodes: list[layout.Node], prefix: str, instances: int) -> str:
    lines = [f"{prefix}.1 cluster"]
    lines += [f"{node.address} {node.name}" for node in nodes]
    lines += [
        f"{prefix}.{_FIRST_INSTANCE + number - 1} instance{number}"
        for number in range(1, instances + 1)
    ]
    return "".join(f"{line}\n" for line in lines)


def make_node(node: layout.Node, hosts: str) -> None:
    """Create a node's tree and its ``cmd`` wrapper."""
    for path, mode in node_directories.DIRECTORIES:
        files.make_dir(f"{node.root}{path}", mode)
    wrapper = (
        f"#!/bin/sh\n# Runs a command on {node.name}.\n"
        f"export {ROOTDIR_ENV}={shlex.quote(node.root)}\n"
        f"export {HOSTNAME_ENV}={node.name}\n"
        f"export PATH={shlex.quote(_buildconf.SBINDIR)}:"
        f"{shlex.quote(_buildconf.BINDIR)}:"
        f'{shlex.quote(_buildconf.TOOLSDIR)}:"$PATH"\nexec "$@"\n'
    )
    for path, text, mode in (
        ("cmd", wrapper, 0o755),
        ("etc/hosts", hosts, 0o644),
        ("etc/default/ganeti", layout.defaults_text(node.address), 0o644),
        ("etc/ganeti/file-storage-paths", node_directories.storage_paths(), 0o600),
    ):
        files.write_file(os.path.join(node.root, path), text, mode=mode)


def _write_scripts(directory: str, nodes: list[layout.Node], init: str) -> None:
    def command_of(action: str) -> str:
        return f"{shlex.quote(init)} {action}" if init else f"daemon-util {action}-all"

    status = (
        f"{shlex.quote(init)} status"
        if init
        else "sh -c 'for d in $(daemon-util list-start-daemons); do"
        ' daemon-util check $d && echo "$d runs" || echo "$d is down"; done\''
    )
    for name, commands in (
        ("start-all", [command_of("start")]),
        ("stop-all", [command_of("stop")]),
        ("restart-all", [command_of("stop"), command_of("start")]),
        ("status-all", [status]),
        ("watcher-all", ["ganeti-watcher"]),
    ):
        lines = ["#!/bin/sh", "result=0"]
        for command in commands:
            for node in nodes:
                runner = shlex.quote(os.path.join(node.root, "cmd"))
                lines += [f"echo {node.name}", f"{runner} {command} || result=1"]
        lines.append("exit $result")
        path = os.path.join(directory, name)
        files.write_file(path, "\n".join(lines) + "\n", mode=0o755)


def _add_addresses(device: str, addresses: list[str]) -> None:
    """Add addresses to an interface, each with its own label."""
    with netutils.netlink_route() as ip:
        links = ip.link_lookup(ifname=device)
        if not links:
            raise errors.GenericError(
                f"network interface {device}: not found on this machine; choose"
                " one with -n"
            )
    for number, address in enumerate(addresses):
        try:
            with netutils.netlink_route() as ip:
                ip.addr(
                    "add",
                    index=links[0],
                    address=address,
                    prefixlen=_FULL_PREFIX,
                    label=f"{device}:{number}",
                )
        except OSError as err:
            if err.errno != _EEXIST:
                raise errors.GenericError(
                    f"address {address}: cannot be added to {device}: {err.strerror}"
                ) from err


def _add_hosts(path: str, directory: str, hosts: str) -> None:
    """Add the hosts to the machine's hosts file; replace those of an earlier run."""
    mark = f"{_MARK}{directory}"
    old = files.read_file(path).decode()
    before, _mark, rest = old.partition(f"{mark}\n")
    after = rest.partition(f"{mark}, end\n")[2]
    text = f"{before}{mark}\n{hosts}{mark}, end\n{after}"
    if text != old:
        files.write_file(path, text, mode=os.stat(path).st_mode & 0o777)
        sys.stdout.write(f"{path}: hosts of the cluster were added\n")
