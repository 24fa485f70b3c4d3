"""The machines' network: a bridge in a namespace of the lab, one port per machine.

A cut drops frames between ports, so both sides keep their link and see only silence.
"""

import os
import pathlib
import subprocess

from lab.product import LabError, check

BRIDGE = "lab0"
NETWORK = "10.77.0"
#: This side's own address in the namespace.
HOST = f"{NETWORK}.254"
#: Of a cut: what is dropped, seen from the machine.
DIRECTIONS = ("in", "out", "both")


def address(number):
    """Return the address of a machine."""
    return f"{NETWORK}.{number}"


def hardware_address(number):
    """Return the MAC address of a machine's card."""
    return f"52:54:00:77:00:{number:02x}"


def port(number):
    """Return the name of a machine's port on the bridge."""
    return f"port{number}"


def exists(namespace):
    """Return whether the namespace is there."""
    return pathlib.Path("/run/netns", namespace).exists()


def inside(namespace, *argv):
    """Return the command line that runs a command in the namespace."""
    return ["nsenter", f"--net=/run/netns/{namespace}", *argv]


def up(namespace, count):
    """Create namespace, bridge and ports.

    Raises:
        LabError: not as root.
    """
    if os.getuid() != 0:
        raise LabError("the machines' network needs root: run this as root")
    down(namespace)
    check("ip", "netns", "add", namespace)
    lines = [
        "link set lo up",
        f"link add {BRIDGE} type bridge forward_delay 0",
        f"addr add {HOST}/24 dev {BRIDGE}",
        f"link set {BRIDGE} up",
    ]
    for number in range(1, count + 1):
        lines.append(f"tuntap add {port(number)} mode tap")
        lines.append(f"link set {port(number)} master {BRIDGE} up")
    batch = "\n".join(lines) + "\n"
    check(*inside(namespace, "ip", "-batch", "-"), input=batch)


def down(namespace):
    """Remove the namespace with all that is in it."""
    if exists(namespace):
        check("ip", "netns", "del", namespace)


def apply_cuts(namespace, cuts):
    """Drop what the cuts say, and nothing else.

    Args:
        namespace: the lab's.
        cuts: ``(machine, peer or None, direction)`` each, machines by number.
    """
    rules = []
    for number, peer, direction in cuts:
        here, there = f'"{port(number)}"', f'"{port(peer)}"' if peer else None
        if direction in {"out", "both"}:
            rules.append(f"iifname {here}" + (f" oifname {there}" if there else ""))
        if direction in {"in", "both"}:
            rules.append(f"oifname {here}" + (f" iifname {there}" if there else ""))
    chain = "".join(f"    {rule} drop\n" for rule in rules)
    text = (
        "table bridge lab {}\ndelete table bridge lab\ntable bridge lab {\n"
        "  chain forward {\n    type filter hook forward priority 0; policy accept;\n"
        f"{chain}  }}\n}}\n"
    )
    done = subprocess.run(
        inside(namespace, "nft", "-f", "-"),
        input=text,
        text=True,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise LabError(f"nft: {done.stderr.strip()}")
