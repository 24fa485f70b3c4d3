"""Rules for mode, link and VLAN: of NICs, of connections, and of the cluster."""

import re
from collections.abc import Mapping
from typing import Any, Final

from ganeti.base import errors
from ganeti.base.constants import ecodes, network
from ganeti.base.net import ip
from ganeti.base.text import units

#: The modes that a NIC can have.
MODES: Final = (
    network.NIC_MODE_BRIDGED,
    network.NIC_MODE_ROUTED,
    network.NIC_MODE_OVS,
)
_VLAN: Final = re.compile(r"^(\d+|\.\d+|(\.\d+)?(:\d+)+)$", re.ASCII)
#: Numbers of VLANs that 802.1Q leaves to users.
FIRST_VLAN: Final = 1
LAST_VLAN: Final = 4094
#: Name of a routing table, a switch or an interface.
_TABLE: Final = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,63}", re.ASCII)


def check(given: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return given parameters with the VLAN in its stored form.

    Args:
        given: some of mode, link and vlan; other keys are ignored.
        what: the object in errors.

    Raises:
        OpPrereqError: an unknown mode, a link that is no name, or a malformed VLAN.
    """
    mode = given.get("mode", network.NIC_MODE_BRIDGED)
    if mode not in MODES:
        raise errors.OpPrereqError(
            f"{what}: wanted mode {', '.join(MODES[:-1])} or {MODES[-1]}, found"
            f" {mode!r}",
            ecodes.ECODE_INVAL,
        )
    link = str(given.get("link") or "")
    if link and not _TABLE.fullmatch(link):
        raise errors.OpPrereqError(
            f"{what}: wanted as link a name of letters, digits and . _ -, found"
            f" {link!r:.100}",
            ecodes.ECODE_INVAL,
        )
    checked = dict(given)
    if vlan := given.get("vlan"):
        checked["vlan"] = stored_vlan(str(vlan), what)
    return checked


def stored_vlan(vlan: str, what: str) -> str:
    """Return a VLAN as it is stored: ``.N``, ``:A:B`` or ``.N:A:B``.

    Raises:
        OpPrereqError: it has another form, or a number is not of a VLAN.
    """
    if not _VLAN.fullmatch(vlan):
        raise errors.OpPrereqError(
            f"{what}: wanted vlan as number, .number or :trunk:trunk, found {vlan!r}",
            ecodes.ECODE_INVAL,
        )
    for number in re.findall(r"\d+", vlan):
        if not FIRST_VLAN <= (units.whole_number(number) or 0) <= LAST_VLAN:
            raise errors.OpPrereqError(
                f"{what}: wanted VLANs from {FIRST_VLAN} to {LAST_VLAN}, found"
                f" {number}",
                ecodes.ECODE_INVAL,
            )
    return f".{vlan}" if vlan.isdigit() else vlan


def connection(mode: str, link: str, vlan: str, what: str) -> dict[str, Any]:
    """Return the parameters of a network's connection to a group.

    Raises:
        OpPrereqError: an unknown mode, a malformed link or VLAN, or a VLAN in mode
            routed.
    """
    is_routed = mode == network.NIC_MODE_ROUTED
    if not (_TABLE.fullmatch(link) if is_routed else ip.is_interface(link)):
        kind = "a routing table" if is_routed else "an interface, up to 15 characters"
        raise errors.OpPrereqError(
            f"{what}: wanted as link the name of {kind}, found {link!r}",
            ecodes.ECODE_INVAL,
        )
    checked = check({"mode": mode, "link": link, "vlan": vlan}, what)
    if vlan and is_routed:
        raise errors.OpPrereqError(
            f"{what}: vlan {vlan} has no effect in mode routed", ecodes.ECODE_INVAL
        )
    return checked
