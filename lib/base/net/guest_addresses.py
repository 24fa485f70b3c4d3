"""Addresses that a guest reports of itself: data of the guest, bounded and checked.

A row is ``[interface, MAC or "", [address/prefix]]``. Nodes check the words of guests,
and the master checks those of nodes.
"""

import re
from typing import Any, Final

from ganeti.base.net import ip

MAX_INTERFACES: Final = 32
MAX_ADDRESSES: Final = 32
#: From netdevice(7), IFNAMSIZ; Windows has longer names.
_NAME: Final = re.compile(r"[ -~]{1,64}", re.ASCII)
_MAC: Final = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}", re.ASCII)

Rows = list[tuple[str, str, list[str]]]


def checked(given: Any) -> Rows:
    """Return the good rows and addresses among those given; others are left out."""
    rows: Rows = []
    for row in given if isinstance(given, list | tuple) else ():
        if not isinstance(row, list | tuple) or len(row) != 3:
            continue
        name, mac, addresses = row
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            continue
        is_mac = isinstance(mac, str) and _MAC.fullmatch(mac.lower())
        listed = addresses if isinstance(addresses, list | tuple) else ()
        texts = [text for a in listed[:MAX_ADDRESSES] if (text := _address(a))]
        rows.append((name, mac.lower() if is_mac else "", texts))
        if len(rows) == MAX_INTERFACES:
            break
    return rows


def _address(given: Any) -> str | None:
    try:
        # A zone index, as of link-local addresses, is the guest's own affair.
        return str(ip.interface(re.sub(r"%[^/]*", "", given)))
    except (ValueError, TypeError):
        return None


def from_agent(answer: Any) -> Rows:
    """Return the rows in an answer of the guest agent, loopback left out.

    Args:
        answer: of ``guest-network-get-interfaces``.
    """
    rows = []
    for item in answer if isinstance(answer, list) else ():
        if not isinstance(item, dict):
            continue
        listed = item.get("ip-addresses")
        addresses = [
            f"{each.get('ip-address')}/{each.get('prefix')}"
            for each in (listed if isinstance(listed, list) else ())
            if isinstance(each, dict)
        ]
        rows.append((item.get("name"), item.get("hardware-address"), addresses))
    return [
        (name, mac, addresses)
        for name, mac, addresses in checked(rows)
        if not addresses or not all(ip.interface(a).is_loopback for a in addresses)
    ]
