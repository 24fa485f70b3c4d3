"""``vif-ganeti``: connect the node's end of a NIC of Xen to its network.

xl calls it when a NIC appears or disappears, with ``online``, ``add``, ``offline`` or
``remove`` and the place of the NIC in Xen's store in the environment. The settings of
the NIC are in the file that the node daemon has written; see
`ganeti.node.hypervisor.xen.files`.
"""

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from typing import Final

from ganeti.base import clock, errors, process
from ganeti.base.filesystem import files as file_utils
from ganeti.node.hypervisor import networks
from ganeti.node.hypervisor.base import NodeEffects
from ganeti.node.hypervisor.xen import files, xl
from ganeti.tools import common

NAME: Final = "vif-ganeti"
_PLACE: Final = re.compile(r"backend/vif(?:_ioemu)?/(\d{1,10})/(\d{1,4})", re.ASCII)
_INTERFACE: Final = re.compile(r"[A-Za-z0-9_.-]{1,15}")
_MTU: Final = "/sys/class/net/{}/mtu"
_TIMEOUT_S: Final = 30.0
_MAX_OUTPUT: Final = 4096


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program."""
    parser = common.parser(NAME, "Connects a NIC of a guest of Xen; xl calls it.")
    parser.add_argument(
        "event", choices=("online", "offline", "add", "remove"), help="of the NIC"
    )
    parser.add_argument(
        "settings", nargs=argparse.REMAINDER, help="of xl: type_if=KIND"
    )
    options = parser.parse_args(argv)
    paths = common.own_paths()
    effects = NodeEffects(paths, process.SystemRunner(), clock.SystemClock())
    settings = dict(word.partition("=")[::2] for word in options.settings)
    environment = {**settings, **os.environ}
    return common.run(NAME, lambda: act(effects, options.event, environment))


def act(effects: NodeEffects, event: str, environment: Mapping[str, str]) -> None:
    """Connect or disconnect a NIC.

    Args:
        effects: effect interfaces of this node.
        event: see `main`.
        environment: XENBUS_PATH, the interface as ``vif``, ``INTERFACE`` for the one of
            an emulator, and its kind as ``type_if``.

    Raises:
        HypervisorError: the NIC cannot be connected.
    """
    place = environment.get("XENBUS_PATH", "")
    match = _PLACE.search(place)
    is_emulated = environment.get("type_if") == "tap"
    interface = environment.get("INTERFACE" if is_emulated else "vif", "")
    if match is None or not _INTERFACE.fullmatch(interface):
        raise errors.HypervisorError(
            "wanted the place of a NIC as XENBUS_PATH and an interface as vif, found"
            f" {place!r} and {interface!r}; xl gives them when it calls {NAME}"
        )
    name = _line_of(effects, "xenstore-read", f"/local/domain/{match[1]}/name")
    name = name.removesuffix(xl.INCOMING).removesuffix(xl.DEPARTING)
    env = files.read_nic(effects.paths, name, int(match[2]))
    env |= {"PATH": process.SAFE_PATH, "INTERFACE": interface}
    if event in {"offline", "remove"}:
        if env.get("MODE") == "openvswitch":
            networks.leave_switch(effects, interface)
        return
    _join(effects, env)
    if not is_emulated:
        # The kernel's part of the NIC waits for this.
        _line_of(effects, "xenstore-write", f"{place}/hotplug-status", "connected")


def _join(effects: NodeEffects, env: Mapping[str, str]) -> None:
    """Connect an interface to its network.

    xl gives this program 40 seconds. Most NICs need one call of ``ip``, and not the
    library for netlink, which takes longer to load than all else here.

    Raises:
        HypervisorError: names the interface and the failed step.
    """
    if env.get("MODE") != "bridged" or env.get("VLAN"):
        networks.join_network(effects, env)
        return
    bridge, interface = env.get("BRIDGE", ""), env["INTERFACE"]
    try:
        mtu = file_utils.read_file(_MTU.format(bridge)).decode().strip()
    except OSError as err:
        raise errors.HypervisorError(
            f"{interface}: bridge {bridge!r} does not exist on this node: {err}"
        ) from err
    address = networks.tap_address(env.get("MAC", ""))
    settings = ("address", address, "mtu", mtu, "master", bridge, "up")
    _line_of(effects, "ip", "link", "set", "dev", interface, *settings)


def _line_of(effects: NodeEffects, *argv: str) -> str:
    """Run a program; return the line that it prints."""
    try:
        result = effects.process.run_bounded(
            argv, timeout_s=_TIMEOUT_S, max_output=_MAX_OUTPUT
        )
    except errors.CommandError as err:
        raise errors.HypervisorError(str(err)) from err
    if result.failed:
        raise errors.HypervisorError(
            f"{' '.join(argv[:5])}: {result.reason}: {result.output.strip()}"
        )
    return result.stdout.strip()
