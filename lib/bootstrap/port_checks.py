"""Check whether packet filters let the nodes reach each other's ports.

A port on which nobody listens is reachable if the machine refuses the connection. A
filter that drops packets leaves the caller without an answer; one that rejects them has
the caller see an unreachable host, or a refusal where a daemon listens.
"""

import errno
import os
import re
import socket
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from ganeti.base import errors
from ganeti.base.constants import daemons
from ganeti.base.constants.parameters import hvparams
from ganeti.base.process import Shell

#: Seconds for one connection: the first packet is repeated after one second.
CONNECT_S: Final = 3.0
_TIMEOUT_S: Final = 30.0
_OPEN: Final = "open"
_REFUSED: Final = "refused"
_SILENT: Final = "silent"
_REJECTED: Final = "rejected"
#: Text of bash for a refusal.
_REFUSAL: Final = os.strerror(errno.ECONNREFUSED)
#: Prints each port of an address with its state. ``timeout`` exits with 124.
_SCRIPT: Final = f"""
export LC_ALL=C
seconds=$1 address=$2; shift 2
command -v bash > /dev/null && command -v timeout > /dev/null || exit 1
for port; do
  text=$(timeout "$seconds" bash -c 'exec 3<> /dev/tcp/$0/$1' "$address" "$port" 2>&1)
  case "$?:$text" in
    0:*) echo "$port {_OPEN}";;
    124:*) echo "$port {_SILENT}";;
    *"{_REFUSAL}"*) echo "$port {_REFUSED}";;
    *) echo "$port {_REJECTED}";;
  esac
done
"""
_SEEN: Final = re.compile(
    rf"(\d+) ({_OPEN}|{_SILENT}|{_REFUSED}|{_REJECTED})", re.ASCII
)
_HINT: Final = "see 'Firewall' in the page on installing"
#: A chain of nftables, as ``nft list chains`` prints it.
_TABLE: Final = re.compile(r"table (\w+) (\S+) \{")
_CHAIN: Final = re.compile(r"chain (\S+) \{")
_DROPS_INPUT: Final = re.compile(r"hook input .*policy drop;")


class Ports(NamedTuple):
    """Ports of a node.

    Attributes:
        tcp: TCP ports with their purposes.
        udp: UDP ports with their purposes; only named, never tried.
        listening: those on which a daemon of the master listens: a refusal there comes
            from a filter.
    """

    tcp: Mapping[int, str]
    udp: Mapping[int, str]
    listening: Collection[int] = ()


class Machine(NamedTuple):
    """A node: name and IP address."""

    name: str
    address: str


def of_nodes(ssh_port: int) -> Ports:
    """Return the ports on which nodes reach each other."""
    node_daemon = daemons.DAEMONS["ganeti-noded"].port or 0
    confd = daemons.DAEMONS["ganeti-confd"].port or 0
    migration = int(hvparams.HYPERVISOR["kvm"]["migration_port"].default)
    tcp = {node_daemon: "node daemon", ssh_port: "SSH", migration: "live migration"}
    return Ports(tcp, {confd: "confd"}, listening={node_daemon})


def warnings(
    shell: Shell,
    node: Machine,
    master: Machine,
    ports: Ports,
    *,
    connect_s: float = CONNECT_S,
) -> list[str]:
    """Return one line for each direction in which ports are filtered.

    Args:
        shell: runs commands on the new node.
        node: the new node.
        master: this node.
        ports: of a node.
        connect_s: seconds after which a port counts as silent.

    Raises:
        SshError: the connection to the new node broke.
    """
    there = {port: _state(node.address, port, connect_s) for port in ports.tcp}
    lines = []
    here = _states_from_node(shell, master.address, ports.tcp, connect_s)
    if here is None:
        lines.append(
            f"Warning: it was not checked whether {node.name} reaches {master.name}:"
            f" {node.name} has no bash or no timeout"
        )
    else:
        lines += _lines(node, master, ports.tcp, here, ports.listening)
    return lines + _lines(master, node, ports.tcp, there, ())


def notes(shell: Shell, ports: Ports) -> list[str]:
    """Return one line for each filter of this machine that drops what nobody permits.

    Filters of nftables with the policy ``drop`` are known; rules at the end of a chain
    are not looked at. Without ``nft`` there is nothing to return; where it fails, the
    line says so.

    Args:
        shell: runs commands on this machine.
        ports: which the other nodes need.
    """
    try:
        listed = shell.run(("nft", "list", "chains"), timeout_s=_TIMEOUT_S)
    except errors.CommandError:
        return []
    if listed.failed:
        text = (
            "Note: it was not checked whether the packet filter of this machine drops"
            f" what no rule permits: 'nft list chains' {listed.reason}. {_HINT}"
        )
        return [text]
    tcp, udp = _listed(ports.tcp), _listed(ports.udp)
    lines, table, chain = [], "", ""
    for line in listed.stdout.splitlines():
        if match := _TABLE.search(line):
            table = f"{match[1]} {match[2]}"
        elif match := _CHAIN.search(line):
            chain = match[1]
        elif _DROPS_INPUT.search(line):
            lines.append(
                f"Note: the packet filter of this machine (nftables: {table}, chain"
                f" {chain}) drops what no rule permits. Other nodes need TCP {tcp} and"
                f" UDP {udp}: {_HINT}. 'gnt-node add' tries the connections"
            )
    return lines


def _states_from_node(
    shell: Shell, address: str, ports: Mapping[int, str], connect_s: float
) -> dict[int, str] | None:
    """Return the state of each port as the node sees it, None if it cannot look."""
    words = ("sh", "-c", _SCRIPT, "sh", str(connect_s), address, *map(str, ports))
    try:
        text = shell.run(words, timeout_s=_TIMEOUT_S).stdout
    except errors.CommandError:
        return None
    seen = {int(port): state for port, state in _SEEN.findall(text)}
    return seen if seen.keys() >= ports.keys() else None


def _state(address: str, port: int, connect_s: float) -> str:
    try:
        socket.create_connection((address, port), timeout=connect_s).close()
    except TimeoutError:
        return _SILENT
    except ConnectionRefusedError:
        return _REFUSED
    except OSError:
        return _REJECTED
    return _OPEN


def _lines(
    source: Machine,
    target: Machine,
    purposes: Mapping[int, str],
    states: Mapping[int, str],
    listening: Collection[int],
) -> list[str]:
    lines = []
    for problem, done in (
        (_SILENT, "gets no answer from"),
        (_REJECTED, "is rejected by"),
        (_REFUSED, "is refused by"),
    ):
        ports = [port for port in purposes if states[port] == problem]
        if problem == _REFUSED:
            ports = [port for port in ports if port in listening]
        if ports:
            named = ", ".join(f"{port} ({purposes[port]})" for port in ports)
            lines.append(
                f"Warning: {source.name} {done} {target.name} on TCP port {named}."
                f" A packet filter is in the way: permit it on {target.name}, with"
                f" nftables for example by 'nft insert rule inet filter input"
                f" {_family(source.address)} saddr {source.address} tcp dport"
                f" {_listed(ports)} accept'; {_HINT}"
            )
    return lines


def _family(address: str) -> str:
    return "ip6" if ":" in address else "ip"


def _listed(ports: Collection[int]) -> str:
    """Return ports as nftables wants them."""
    text = ", ".join(map(str, ports))
    return f"{{ {text} }}" if len(ports) > 1 else text
