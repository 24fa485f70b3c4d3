"""Addresses, host names and URLs: forms, lookup, local addresses, reachability."""

import contextlib
import re
import socket
from collections.abc import Iterator
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes, misc
from ganeti.base.filesystem import files
from ganeti.base.net import ip
from ganeti.base.pathutils import Paths

_TCP_PING_TIMEOUT: Final = 10

HOSTS_FILE = "/etc/hosts"


def is_address(text: str, *, scope_ok: bool = False) -> bool:
    """Return whether a text is an IPv4 or IPv6 address; see `ip.parse`."""
    try:
        ip.parse(text, scope_ok=scope_ok)
    except ValueError:
        return False
    return True


def is_bind_target(text: str) -> bool:
    """Return whether a text is an address or can be the name of an interface.

    A text of digits and dots, or with a colon, must be an address; an IPv6 address may
    have a scope.
    """
    if ":" in text or text.replace(".", "").isdigit():
        return is_address(text, scope_ok=True)
    return ip.is_interface(text)


def family(address: str) -> socket.AddressFamily:
    """Return the family of an address, which may have a scope.

    Raises:
        IPAddressError: the text is not an address.
    """
    try:
        version = ip.parse(address, scope_ok=True).version
    except ValueError as err:
        raise errors.IPAddressError(f"{address!r} is not an IP address") from err
    return socket.AF_INET if version == 4 else socket.AF_INET6


def is_loopback(address: str) -> bool:
    """Return whether an address is a loopback address."""
    return is_address(address) and ip.parse(address).is_loopback


def lookup(name: str, paths: Paths, *, want: int = socket.AF_UNSPEC) -> str:
    """Return the first address of a host name, see `lookup_host`."""
    if is_address(name):
        return name
    return lookup_host(name, paths, want=want)[1][0]


def lookup_host(
    name: str, paths: Paths, *, want: int = socket.AF_UNSPEC
) -> tuple[str, list[str]]:
    """Return the full name and the addresses of a host.

    A virtual node's own hosts file is asked before the system's resolver.

    Args:
        name: host name as the user wrote it, or an address.
        paths: paths of this node.
        want: family of the addresses.

    Raises:
        ResolverError: has name, number and text of the failure.
    """
    if paths.is_virtual:
        rows = [
            (address, names)
            for address, names in read_hosts(paths.at(HOSTS_FILE))
            if name in names and want in (socket.AF_UNSPEC, family(address))
        ]
        if rows:
            return rows[0][1][0], [address for address, _names in rows]
    try:
        resolved = socket.getaddrinfo(
            name, None, want, socket.SOCK_STREAM, flags=socket.AI_CANONNAME
        )
    except socket.gaierror as err:
        raise errors.ResolverError(name, err.errno, err.strerror) from err
    except UnicodeError as err:  # empty or overlong labels
        raise errors.ResolverError(
            name, socket.EAI_NONAME, "not a valid host name"
        ) from err
    return resolved[0][3] or name, [str(row[4][0]) for row in resolved]


def read_hosts(path: str) -> Iterator[tuple[str, list[str]]]:
    """Yield address and names of each line of a hosts file, if the file exists."""
    with contextlib.suppress(OSError):
        for line in files.read_file(path).decode(errors="replace").splitlines():
            address, *names = line.partition("#")[0].split() or [""]
            if names and is_address(address):
                yield address, names


def tcp_ping(
    address: str,
    port: int,
    *,
    timeout_s: float = _TCP_PING_TIMEOUT,
    source: str | None = None,
    live_port_needed: bool = False,
) -> bool:
    """Return whether a machine answers on a port.

    Args:
        address: address of the machine.
        port: TCP port; a refusal is an answer too, unless ``live_port_needed``.
        timeout_s: time limit.
        source: own address to connect from.
        live_port_needed: only an accepted connection counts.
    """
    with socket.socket(family(address), socket.SOCK_STREAM) as sock:
        sock.settimeout(timeout_s)
        try:
            if source:
                sock.bind((source, 0))
            sock.connect((address, port))
        except ConnectionRefusedError:
            return not live_port_needed
        except OSError:
            return False
    return True


def server_reacts(
    address: str, port: int, *, timeout_s: float, greeting: bytes = b""
) -> bool:
    """Return whether a server sends something, or ends or refuses the connection.

    The kernel of a machine accepts connections for a server that is frozen, so an
    accepted connection alone is no sign of life. A refused one is: a machine without
    power refuses nothing. At a loopback address the own kernel refuses, which says
    nothing about the virtual node there.

    Args:
        address: address of the machine.
        port: TCP port.
        timeout_s: time limit of the connection, and of the answer.
        greeting: bytes to send first, for a server that does not speak first.
    """
    with socket.socket(family(address), socket.SOCK_STREAM) as sock:
        sock.settimeout(timeout_s)
        try:
            sock.connect((address, port))
        except ConnectionRefusedError:
            return not is_loopback(address)
        except OSError:
            return False
        try:
            sock.sendall(greeting)
            sock.recv(1)
        except TimeoutError:
            return False
        except OSError:
            # The connection was reset by a living kernel.
            return True
    return True


#: Of a connection that may be idle for days: seconds until the first probe of its peer,
#: between two of them, their number, and milliseconds for data to be acknowledged.
_PROBES: Final = (
    (socket.TCP_KEEPIDLE, 30),
    (socket.TCP_KEEPINTVL, 10),
    (socket.TCP_KEEPCNT, 3),
    (socket.TCP_USER_TIMEOUT, 60_000),
)


def probe_when_idle(sock: socket.socket) -> None:
    """Have the kernel break an idle connection of TCP whose peer has vanished."""
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _PROBES:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def owns_address(address: str) -> bool:
    """Return whether this machine has an address; it has all of 127.0.0.0/8."""
    if is_loopback(address):
        return True
    wanted = ip.parse(address)
    return any(ip.parse(own) == wanted for _, own, _ in own_addresses())


def own_addresses() -> list[tuple[str, str, int]]:
    """Return interface, address and prefix length of all addresses of this machine."""
    from pyroute2 import IPRoute

    with IPRoute() as route:
        links = {
            link["index"]: link.get_attr("IFLA_IFNAME") for link in route.get_links()
        }
        return [
            (
                links.get(row["index"], ""),
                row.get_attr("IFA_LOCAL") or row.get_attr("IFA_ADDRESS"),
                row["prefixlen"],
            )
            for row in route.get_addr()
        ]


def add_address(
    interface: str, address: str, prefix: int, *, label: str | None = None
) -> None:
    """Add an address to an interface, deprecated as a source address.

    Raises:
        IPAddressError: unknown interface, or the kernel refused.
    """
    _change_address("add", interface, address, prefix, label)


def remove_address(interface: str, address: str, prefix: int) -> None:
    """Remove an address from an interface; errors as `add_address`."""
    _change_address("del", interface, address, prefix, None)


def _change_address(
    action: str, interface: str, address: str, prefix: int, label: str | None
) -> None:
    from pyroute2 import IPRoute
    from pyroute2.netlink.exceptions import NetlinkError

    what = f"{action} {address}/{prefix} on {interface}"
    with IPRoute() as route:
        links = route.link_lookup(ifname=interface)
        if not links:
            raise errors.IPAddressError(f"{what}: no such interface")
        options: dict[str, object] = {}
        if action == "add":
            options["preferred_lft"] = 0
            if label is not None and family(address) == socket.AF_INET:
                options["label"] = label
        try:
            route.addr(
                action, index=links[0], address=address, prefixlen=prefix, **options
            )
        except NetlinkError as err:
            raise errors.IPAddressError(f"{what}: {err}") from err


def interface_address(interface: str, want: int = socket.AF_INET) -> str:
    """Return the first address of a network interface.

    Raises:
        GenericError: unknown interface, or it has no address of that family.
    """
    for name, address, _ in own_addresses():
        if name == interface and family(address) == want:
            return address
    raise errors.GenericError(f"interface {interface}: has no address to bind to")


def service_port(name: str, default: int, protocol: str = "tcp") -> int:
    """Return the port that the services file gives for a name."""
    try:
        return socket.getservbyname(name, protocol)
    except OSError:
        return default


@contextlib.contextmanager
def netlink_route() -> Iterator[Any]:
    """Open a ``pyroute2.IPRoute`` of this network namespace.

    Raises:
        OSError: the kernel refused a request in the body.
    """
    from pyroute2 import IPRoute
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        with IPRoute() as ip:
            yield ip
    except NetlinkError as err:
        raise OSError(err.code, str(err)) from err


_LABEL: Final = re.compile(r"^(?!-)[a-z0-9_-]{1,63}(?<!-)$")
_MAX_LENGTH: Final = 255
#: Characters of a name that is too long in errors.
_SHOWN: Final = 40
_UUID: Final = re.compile(misc.UUID_REGEX)


def normalize_host_name(name: str) -> str:
    """Return a host name in lower case, without a final dot.

    Raises:
        OpPrereqError: the text is not a host name.
    """
    text = name.lower().removesuffix(".")
    if len(text) > _MAX_LENGTH or not all(map(_LABEL.fullmatch, text.split("."))):
        raise errors.OpPrereqError(
            f"wanted a host name such as web1.example.com, found {name!r}",
            ecodes.ECODE_INVAL,
        )
    return text


def check_free_name(name: str, what: str) -> None:
    """Check a name for a new object that need not be a host name.

    Args:
        name: to check.
        what: the kind of object, for the error.

    Raises:
        OpPrereqError: it is longer than any host name, does not fit in a line of a
            file, or has the form of a uuid.
    """
    if len(name) > _MAX_LENGTH:
        raise errors.OpPrereqError(
            f"{what} {name[:_SHOWN]}...: wanted a name of at most {_MAX_LENGTH}"
            f" characters, found {len(name)}",
            ecodes.ECODE_INVAL,
        )
    if not name.isprintable() or name != name.strip():
        raise errors.OpPrereqError(
            f"{what} {name!r}: a name must have printable characters only, and no space"
            " at its ends",
            ecodes.ECODE_INVAL,
        )
    refuse_uuid(name, f"{what} {name}")


def refuse_uuid(name: str, what: str) -> None:
    """Refuse a name for a new object that could be taken for the uuid of another.

    Args:
        name: to check.
        what: the object, for the error.

    Raises:
        OpPrereqError: it has the form of a uuid.
    """
    if _UUID.fullmatch(name):
        raise errors.OpPrereqError(
            f"{what}: a name must not look like a uuid", ecodes.ECODE_INVAL
        )


#: Parts of a URL: scheme, server and path, beginning of query or fragment, the rest.
_PARTS: Final = re.compile(
    r"([a-zA-Z]+:/+)?(?:[^/?#]*@)?([^?#]*)(?:([?#])(.*))?", re.DOTALL
)


def shown_url(url: str) -> str:
    """Return a URL for messages: without user, password, query and fragment.

    Those may be secrets of its server, and messages go to logs and journals. A
    password with a slash, question mark or number sign makes the URL invalid: then the
    text between the first colon and the last "@" may be a password.
    """
    parts = _PARTS.fullmatch(url)
    scheme, place, mark, rest = parts.groups("") if parts else ("", "", "", "")
    before, colon, after = place.partition(":")
    if colon and "@" in after + rest:
        return f"{scheme}{before}..."
    return f"{scheme}{place}{mark}{'...' if mark else ''}"
