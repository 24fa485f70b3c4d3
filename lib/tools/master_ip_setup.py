"""``master-ip-setup``: add the cluster's address to this machine, or remove it.

The node daemon calls it with ``start`` or ``stop`` and four environment variables.
Administrators may replace the program, so the interface is fixed. Loopback addresses,
which virtual clusters use, need no setup and are ignored.
"""

import logging
import os
import socket
import struct
import sys
import time
from collections.abc import Mapping
from typing import Final, NamedTuple

from ganeti.base import errors
from ganeti.base.constants import exitcodes
from ganeti.base.net import netutils
from ganeti.base.process import SAFE_PATH, Runner, SystemRunner

_log = logging.getLogger(__name__)

#: Five echo requests of 200 ms show whether another machine has the address.
_PING: Final = ("fping", "-q", "-c", "5", "-p", "200", "-t", "200")
_PING_TIMEOUT_S: Final = 10.0
#: Number of ARP announcements.
_ANNOUNCEMENTS: Final = 3
_ETHERTYPE_ARP: Final = 0x0806
_ARP_REPLY: Final = 2


class Address(NamedTuple):
    """The address that the variables describe."""

    device: str
    ip: str
    prefix: int
    version: int


def read_environment(environ: Mapping[str, str]) -> Address:
    """Return the address that the variables describe.

    Raises:
        ParameterError: a variable is missing or invalid.
    """
    try:
        address = Address(
            environ["MASTER_NETDEV"],
            environ["MASTER_IP"],
            int(environ["MASTER_NETMASK"]),
            int(environ["CLUSTER_IP_VERSION"]),
        )
    except KeyError as err:
        raise errors.ParameterError(f"variable {err.args[0]} is not set") from err
    except ValueError as err:
        raise errors.ParameterError(
            f"MASTER_NETMASK, CLUSTER_IP_VERSION: {err}"
        ) from err
    wanted = {4: socket.AF_INET, 6: socket.AF_INET6}.get(address.version)
    if wanted is None or netutils.family(address.ip) != wanted:
        raise errors.ParameterError(
            f"{address.ip} is not an address of IP version {address.version}"
        )
    return address


def start(address: Address, runner: Runner) -> None:
    """Add the address, unless this machine has it already.

    Raises:
        OpExecError: another machine answers at the address.
        IPAddressError: the kernel refused.
    """
    if netutils.owns_address(address.ip):
        return
    if _answers(address, runner):
        raise errors.OpExecError(f"{address.ip}: another machine has this address")
    netutils.add_address(
        address.device, address.ip, address.prefix, label=f"{address.device}:0"
    )
    announce(address)


def stop(address: Address) -> None:
    """Remove the address, if this machine has it.

    Raises:
        OpExecError: the address is on another device.
        IPAddressError: the kernel refused.
    """
    if netutils.is_loopback(address.ip):
        return
    rows = [row for row in netutils.own_addresses() if row[1] == address.ip]
    if not rows:
        return
    here = [row for row in rows if row[0] == address.device]
    if not here:
        raise errors.OpExecError(
            f"{address.ip}: wanted on device {address.device}, found on {rows[0][0]}"
        )
    netutils.remove_address(address.device, address.ip, here[0][2])


def _answers(address: Address, runner: Runner) -> bool:
    """Return whether a machine answers echo requests at the address."""
    try:
        result = runner.run([*_PING, address.ip], timeout_s=_PING_TIMEOUT_S)
    except errors.CommandError as err:
        _log.warning("cannot check whether another machine has the address: %s", err)
        return False
    return result.code == 0


def announce(address: Address) -> None:
    """Announce the address to the neighbours by ARP; failures are only logged."""
    if address.version == 6:
        # The kernel announces IPv6 addresses itself when they are added.
        return
    try:
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
            sock.bind((address.device, 0))
            frame = gratuitous_arp(sock.getsockname()[4], address.ip)
            for _ in range(_ANNOUNCEMENTS):
                sock.send(frame)
                time.sleep(0.1)
    except OSError as err:
        _log.warning("cannot announce %s: %s", address.ip, err)


def gratuitous_arp(mac: bytes, ip: str) -> bytes:
    """Return the Ethernet frame of a gratuitous ARP reply for an IPv4 address."""
    broadcast = b"\xff" * 6
    own = mac + socket.inet_aton(ip)
    header = broadcast + mac + struct.pack("!H", _ETHERTYPE_ARP)
    return header + struct.pack("!HHBBH", 1, 0x0800, 6, 4, _ARP_REPLY) + own + own


def main() -> int:
    """Run the tool."""
    if len(sys.argv) != 2 or sys.argv[1] not in ("start", "stop"):
        sys.stderr.write(f"Usage: {os.path.basename(sys.argv[0])} start|stop\n")
        return exitcodes.EXIT_FAILURE
    os.environ["PATH"] = SAFE_PATH
    try:
        address = read_environment(os.environ)
        if sys.argv[1] == "start":
            start(address, SystemRunner())
        else:
            stop(address)
    except errors.GenericError as err:
        sys.stderr.write(f"{sys.argv[1]}: {err}\n")
        return exitcodes.EXIT_FAILURE
    return exitcodes.EXIT_SUCCESS
