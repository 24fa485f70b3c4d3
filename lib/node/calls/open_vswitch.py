"""The procedure that creates the Open vSwitch of this node."""

import os
import re
from typing import Final

from ganeti.base import errors
from ganeti.node.calls.registry import LocalNode, procedure

_INTERFACES: Final = "/sys/class/net"
#: Names of interfaces; one that begins with a dash would be an option.
_NAME: Final = re.compile(r"[A-Za-z0-9_.][A-Za-z0-9_.-]{0,14}")
#: Seconds that the switch's daemon gets for a change; without limit the tool waits for
#: a daemon that does not run.
_TIMEOUT_S: Final = 60


@procedure("node_configure_ovs")
def node_configure_ovs(node: LocalNode, ovs_name: str, ovs_link: str | None) -> None:
    """Create a switch if it does not exist, and add a physical port if it has none.

    Raises:
        GenericError: a malformed name, no such interface, or no Open vSwitch here.
    """
    if not _NAME.fullmatch(ovs_name):
        raise errors.GenericError(
            f"Open vSwitch: wanted the name of a switch, found {ovs_name!r}"
        )
    argv = [f"--timeout={_TIMEOUT_S}", "--", "--may-exist", "add-br", ovs_name]
    if ovs_link:
        if not _NAME.fullmatch(ovs_link) or not os.path.isdir(
            f"{_INTERFACES}/{ovs_link}"
        ):
            raise errors.GenericError(
                f"Open vSwitch: wanted an interface of this node as link of {ovs_name},"
                f" found {ovs_link!r}"
            )
        argv += ["--", "--may-exist", "add-port", ovs_name, ovs_link]
    try:
        result = node.process.run(["ovs-vsctl", *argv])
    except errors.CommandError as err:
        raise errors.GenericError(
            f"Open vSwitch: {err}; install the package openvswitch-switch"
        ) from err
    if result.failed:
        raise errors.GenericError(
            f"Open vSwitch: ovs-vsctl {result.reason}: {result.output.strip()}"
        )
