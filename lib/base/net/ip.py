"""Addresses and their ranges as texts: the only place that parses them.

The standard library accepts any text as the scope of an IPv6 address, as in
``fe80::1%TEXT``, with commas, line breaks and shell syntax. Addresses go into command
lines, scripts and files of other programs, so here a scope is refused, or names an
interface where the caller wants one. All functions raise ValueError with the given
text.
"""

import ipaddress
import re
from typing import Any, Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Interface = ipaddress.IPv4Interface | ipaddress.IPv6Interface
IPv4Range = ipaddress.IPv4Network
IPv6Range = ipaddress.IPv6Network

#: Name of an interface; Linux has at most 15 characters (IFNAMSIZ without its end). The
#: kernel allows others, but no program makes such names, and commands misread them.
_INTERFACE: Final = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,14}", re.ASCII)
_SCOPE: Final = re.compile(r"[A-Za-z0-9_.-]{1,15}", re.ASCII)


def is_interface(text: str) -> bool:
    """Return whether a text can be the name of a network interface."""
    return bool(_INTERFACE.fullmatch(text)) and text not in (".", "..")


def parse(text: Any, *, scope_ok: bool = False) -> Address:
    """Return an address; ``scope_ok`` permits the name of an interface after ``%``."""
    return ipaddress.ip_address(_plain(text, scope_ok=scope_ok))


def ipv4(text: Any) -> ipaddress.IPv4Address:
    """Return an IPv4 address."""
    return ipaddress.IPv4Address(_plain(text))


def ipv6(text: Any) -> ipaddress.IPv6Address:
    """Return an IPv6 address."""
    return ipaddress.IPv6Address(_plain(text))


def interface(text: Any) -> Interface:
    """Return an address with the length of its prefix, such as ``192.0.2.1/24``."""
    return ipaddress.ip_interface(_plain(text))


def ipv4_range(text: Any, *, strict: bool = True) -> IPv4Range:
    """Return a range; without ``strict`` the text may be any address in it."""
    return ipaddress.IPv4Network(_plain(text), strict=strict)


def ipv6_range(text: Any) -> IPv6Range:
    """Return a range."""
    return ipaddress.IPv6Network(_plain(text))


def from_bytes(raw: bytes) -> Address:
    """Return the address in its 4 or 16 bytes, the first of the network first."""
    return ipaddress.ip_address(raw)


def _plain(text: Any, *, scope_ok: bool = False) -> str:
    if not isinstance(text, str):
        # The standard library takes numbers and bytes for addresses.
        raise ValueError(f"{text!r:.100} is not a text")  # noqa: TRY004
    _address, percent, scope = text.partition("%")
    if percent and not (scope_ok and _SCOPE.fullmatch(scope)):
        wanted = "the name of an interface" if scope_ok else "no scope"
        raise ValueError(f"wanted {wanted} after the address, found {text!r:.100}")
    return text
