"""Check whether packet filters let the nodes reach each other's ports.

A port on which nobody listens is reachable if the machine refuses the connection; a
filter that drops packets leaves the caller without an answer.
"""

import socket
from collections.abc import Mapping
from typing import Final

from ganeti import errors
from ganeti.process import Shell

#: Seconds for one connection: the first packet is repeated after one second.
CONNECT_S: Final = 3.0
_TIMEOUT_S: Final = 30.0
_SILENT: Final = "silent"
#: Prints the ports of an address from which nothing was heard. A connection that is
#: refused ends at once; ``timeout`` exits with 124.
_SCRIPT: Final = f"""
seconds=$1 address=$2; shift 2
for port; do
  timeout "$seconds" bash -c 'exec 3<> /dev/tcp/$0/$1' "$address" "$port" 2> /dev/null
  [ $? -ne 124 ] || echo "$port {_SILENT}"
done
"""


def warnings(
    shell: Shell,
    node: tuple[str, str],
    master: tuple[str, str],
    ports: Mapping[int, str],
    *,
    connect_s: float = CONNECT_S,
) -> list[str]:
    """Return one line for each direction in which ports are filtered.

    Args:
        shell: runs commands on the new node.
        node: name and address of the new node.
        master: name and address of this node.
        ports: TCP ports of a node, and their purposes.
        connect_s: seconds after which a port counts as silent.

    Raises:
        SshError: the connection to the new node broke.
    """
    silent_here = _silent_from_node(shell, master[1], ports, connect_s)
    silent_there = [port for port in ports if _is_silent(node[1], port, connect_s)]
    return [
        _text(source, target, {port: ports[port] for port in silent})
        for source, target, silent in (
            (node[0], master[0], silent_here),
            (master[0], node[0], silent_there),
        )
        if silent
    ]


def _silent_from_node(
    shell: Shell, address: str, ports: Mapping[int, str], connect_s: float
) -> list[int]:
    words = ("sh", "-c", _SCRIPT, "sh", str(connect_s), address, *map(str, ports))
    try:
        lines = shell.run(words, timeout_s=_TIMEOUT_S).stdout.splitlines()
    except errors.CommandError:
        return []
    return [port for port in ports if f"{port} {_SILENT}" in lines]


def _is_silent(address: str, port: int, connect_s: float) -> bool:
    try:
        socket.create_connection((address, port), timeout=connect_s).close()
    except TimeoutError:
        return True
    except OSError:
        return False  # refused: nobody listens, and no filter is in the way
    return False


def _text(source: str, target: str, silent: Mapping[int, str]) -> str:
    listed = ", ".join(f"{port} ({purpose})" for port, purpose in silent.items())
    return (
        f"Warning: {source} gets no answer from {target} on TCP port {listed}; a packet"
        f" filter on one of them drops it: permit it, see 'Firewall' in the page on"
        " installing"
    )
