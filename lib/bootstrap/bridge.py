"""A bridge for guests, created by ``gnt-cluster init --create-bridge``.

The bridge has no port: guests on this machine reach each other, and the administrator
connects it to a network card when it suits. It is also written to the network
configuration of the machine, so that it exists after a reboot.
"""

import os
from typing import Final

from ganeti import errors
from ganeti.pathutils import Paths
from ganeti.process import Runner
from ganeti.utils import files

_NETWORKD: Final = "/etc/systemd/network"
_IFUPDOWN: Final = "/etc/network/interfaces"
_HEADER: Final = "# Written by gnt-cluster init --create-bridge.\n"
_MODE: Final = 0o644
_TIMEOUT_S: Final = 30.0


def create(process: Runner, name: str) -> None:
    """Create a bridge and set it up.

    Raises:
        OpExecError: the kernel refuses it, or iproute2 is missing.
    """
    for words in (
        ("ip", "link", "add", "name", name, "type", "bridge"),
        ("ip", "link", "set", "dev", name, "up"),
    ):
        try:
            result = process.run(words, timeout_s=_TIMEOUT_S)
        except errors.CommandError as err:
            raise errors.OpExecError(f"bridge {name}: {err}") from err
        if result.failed:
            raise errors.OpExecError(
                f"bridge {name}: cannot be created: {result.output.strip()}"
            )


def remove(process: Runner, name: str) -> None:
    """Remove a bridge that `create` made."""
    process.run(("ip", "link", "del", "dev", name), timeout_s=_TIMEOUT_S)


def configuration(paths: Paths, process: Runner, name: str) -> dict[str, str]:
    """Return file -> text that creates the bridge at the next boot.

    It is empty if neither systemd-networkd nor ifupdown manages the network.
    """
    if _is_networkd_enabled(process):
        prefix = paths.at(f"{_NETWORKD}/60-ganeti-{name}")
        return {
            f"{prefix}.netdev": f"{_HEADER}[NetDev]\nName={name}\nKind=bridge\n",
            f"{prefix}.network": (
                f"{_HEADER}[Match]\nName={name}\n\n[Network]\n"
                "LinkLocalAddressing=no\nConfigureWithoutCarrier=yes\n"
            ),
        }
    if _reads_directory(paths.at(_IFUPDOWN)):
        return {
            paths.at(f"{_IFUPDOWN}.d/ganeti-{name}"): (
                f"{_HEADER}auto {name}\niface {name} inet manual\n"
                f"    pre-up ip link show dev {name} > /dev/null 2>&1"
                f" || ip link add name {name} type bridge\n"
                f"    up ip link set dev {name} up\n"
                f"    post-down ip link del dev {name}\n"
            )
        }
    return {}


def _is_networkd_enabled(process: Runner) -> bool:
    try:
        result = process.run(
            ("systemctl", "is-enabled", "systemd-networkd.service"),
            timeout_s=_TIMEOUT_S,
        )
    except errors.CommandError:
        return False  # no systemd on this machine
    return not result.failed


def _reads_directory(path: str) -> bool:
    """Return whether an ``interfaces`` file includes the directory beside it."""
    try:
        lines = files.read_file(path).decode(errors="replace").splitlines()
    except FileNotFoundError:
        return False
    words = [line.split() for line in lines]
    return os.path.isdir(f"{path}.d") and any(
        row[:1] in (["source"], ["source-directory"]) and "interfaces.d" in row[-1]
        for row in words
    )


def write(configured: dict[str, str]) -> None:
    """Write the files of `configuration`."""
    for path, text in configured.items():
        files.write_file(path, text, mode=_MODE)
