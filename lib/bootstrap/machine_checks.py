"""Check whether a machine is reachable, and starts its daemons after a reboot.

A port on which nobody listens is reachable if the machine refuses the connection. A
filter that drops packets leaves the caller without an answer; one that rejects them has
the caller see an unreachable host, or a refusal where a daemon listens. The same check
of the daemons runs on this machine and, over SSH, on a machine that joins.
"""

import errno
import os
import re
import socket
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ganeti import _buildconf
from ganeti.base import errors
from ganeti.base.constants import daemons
from ganeti.base.constants.parameters import hvparams
from ganeti.base.pathutils import Paths
from ganeti.base.process import Shell

#: Seconds for one connection: the first packet is repeated after one second.
CONNECT_S: Final = 3.0
_TIMEOUT_S: Final = 30.0
_OPEN: Final = "open"
_REFUSED: Final = "refused"
_SILENT: Final = "silent"
_REJECTED: Final = "rejected"
#: Text of bash for a refusal.
#: The script sets the locale C, so bash prints the same words as this program.
_REFUSAL: Final = os.strerror(errno.ECONNREFUSED)
#: Prints each port of an address with its state. ``timeout`` exits with 124.
#: Bash itself opens ``/dev/tcp``, so the machine needs no program for connections.
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


def migration_ports(
    hypervisors: Collection[str], parameters: Mapping[str, Mapping[str, Any]]
) -> list[int]:
    """Return the ports of live migration in a cluster, sorted.

    Args:
        hypervisors: those that are enabled.
        parameters: of the cluster by hypervisor.
    """
    defaults = {
        name: hvparams.HYPERVISOR[name]["migration_port"].default
        for name in hypervisors
        if "migration_port" in hvparams.HYPERVISOR[name]
    }
    ports = (
        parameters.get(name, {}).get("migration_port", port)
        for name, port in defaults.items()
    )
    return sorted({int(port) for port in ports})


def of_nodes(ssh_port: int, migration: Collection[int]) -> Ports:
    """Return the ports on which nodes reach each other."""
    node_daemon = daemons.DAEMONS["ganeti-noded"].port or 0
    confd = daemons.DAEMONS["ganeti-confd"].port or 0
    tcp = {node_daemon: "node daemon", ssh_port: "SSH"}
    tcp |= dict.fromkeys(migration, "live migration")
    return Ports(tcp, {confd: "confd"}, listening={node_daemon})


def port_warnings(
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
    # Nobody has to listen on the new node yet, so a refusal there comes from no filter.
    return lines + _lines(master, node, ports.tcp, there, ())


def filter_notes(shell: Shell, ports: Ports) -> list[str]:
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
    # No line at all would read as if nothing were filtered.
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


_UNITS: Final = (
    "ganeti.target",
    "ganeti.service",
    "ganeti-noded.service",
    "ganeti-confd.service",
    "ganeti-mond.service",
    "ganeti-master.target",
    "ganeti-masterd.service",
    "ganeti-rapi.service",
)
#: Answers of ``systemctl is-enabled`` for a unit that is started at boot.
_STARTED: Final = frozenset({"enabled", "enabled-runtime", "static", "alias"})
#: Other answers; anything else is not shown.
_NOT_STARTED: Final = frozenset({"disabled", "masked", "masked-runtime", "linked"})
#: Files of other programs: the name of the example, and what is missing without it.
_FILES: Final = {
    f"{_buildconf.SYSCONFDIR}/cron.d/ganeti": (
        "ganeti.cron",
        "cron does not restart daemons and instances",
    ),
    f"{_buildconf.SYSCONFDIR}/logrotate.d/ganeti": (
        "ganeti.logrotate",
        "logrotate does not rotate the logs of the daemons",
    ),
}
_MISSING: Final = "missing"
_END: Final = "end of the check"
#: Without systemd it prints nothing about units. Only a complete run prints the end.
_BOOT_SCRIPT: Final = f"""
for file in {" ".join(_FILES)}; do
  [ -e "$file" ] || echo "$file {_MISSING}"
done
if [ -d /run/systemd/system ]; then
  command -v systemctl > /dev/null || exit 1
  for unit in {" ".join(_UNITS)}; do
    echo "$unit $(systemctl is-enabled "$unit" 2> /dev/null)"
  done
fi
echo '{_END}'
"""


def boot_warnings(paths: Paths, shell: Shell, *, host: str = "") -> list[str]:
    """Return one line for each omission; none for virtual nodes.

    Args:
        paths: of this node.
        shell: runs commands on the machine.
        host: name of the machine, empty for this one.

    Raises:
        SshError: the connection to the machine broke.
    """
    if paths.is_virtual:
        return []
    where = f"on {host}" if host else "on this machine"
    try:
        result = shell.run(("sh", "-c", _BOOT_SCRIPT), timeout_s=_TIMEOUT_S)
    except errors.CommandError as err:
        return [_not_checked(where, str(err))]
    lines = result.stdout.splitlines()
    if result.failed:
        return [_not_checked(where, f"the check {result.reason}")]
    if _END not in lines:
        return [_not_checked(where, "the check printed no end")]
    return [*_of_units(where, lines), *_of_files(where, lines)]


def _not_checked(where: str, reason: str) -> str:
    return (
        f"Warning: it was not checked whether daemons start {where} after a reboot,"
        f" nor the files {' and '.join(_FILES)}: {reason}; see 'Ganeti' in the page on"
        " installing"
    )


def _of_units(where: str, lines: Sequence[str]) -> list[str]:
    states = dict(line.split(" ", 1) for line in lines if " " in line)
    wrong = [
        f"{unit} is {_unit_state(states[unit])}"
        for unit in _UNITS
        if unit in states and states[unit].strip() not in _STARTED
    ]
    if not wrong:
        return []
    text = (
        f"Warning: daemons do not start {where} after a reboot: {', '.join(wrong)};"
        " run there: systemctl daemon-reload; systemctl enable ganeti.target"
    )
    return [text]


def _of_files(where: str, lines: Sequence[str]) -> list[str]:
    examples = f"{_buildconf.PREFIX}/share/doc/ganeti/examples"
    return [
        f"Warning: {effect} {where}: {path} is missing; copy {examples}/{example} there"
        for path, (example, effect) in _FILES.items()
        if f"{path} {_MISSING}" in lines
    ]


def _unit_state(text: str) -> str:
    word = text.strip()
    return word if word in _NOT_STARTED else "not installed"
