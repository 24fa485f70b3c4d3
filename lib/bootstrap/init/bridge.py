"""A bridge for guests, on this machine or, over SSH, on a machine that joins.

``gnt-cluster init`` and ``gnt-node add`` name a missing bridge and create it with
``--create-bridge``. The bridge has no port: guests on the machine reach each other, and
the administrator connects it to a network card when it suits. It is also written to the
network configuration of the machine, so that it exists after a reboot.
"""

from typing import Final

from ganeti.base import errors
from ganeti.base.errors import refusal
from ganeti.base.process import RunResult, Shell
from ganeti.bootstrap.options import Feedback

_NETWORKD: Final = "/etc/systemd/network"
_IFUPDOWN: Final = "/etc/network/interfaces"
_HEADER: Final = "# Written by Ganeti for --create-bridge.\n"
_TIMEOUT_S: Final = 30.0
#: Arguments of `_STATE`: a name. It prints one of these words.
_BRIDGE, _OTHER, _MISSING = "bridge", "other", "missing"
_STATE: Final = f"""
if [ -d "/sys/class/net/$1/bridge" ]; then echo {_BRIDGE}
elif [ -e "/sys/class/net/$1" ]; then echo {_OTHER}
else echo {_MISSING}
fi
"""
#: Argument: root of the machine's files. It prints what manages the network, if known.
#: ifupdown reads files of ``interfaces.d`` only if the main file names them.
_MANAGER: Final = rf"""
if systemctl is-enabled systemd-networkd.service > /dev/null 2>&1; then echo networkd
elif [ -d "$1{_IFUPDOWN}.d" ] && grep -Eq \
  '^[[:space:]]*source(-directory)?[[:space:]].*interfaces\.d[^[:space:]]*\s*$' \
  "$1{_IFUPDOWN}"
then echo ifupdown
fi
"""
#: Argument: a path; its new content is the standard input.
_WRITE: Final = """umask 022; cat > "$1" """


def create(shell: Shell, name: str) -> None:
    """Create a bridge and set it up.

    Raises:
        OpExecError: the kernel refuses it, or iproute2 is missing.
    """
    for words in (
        ("ip", "link", "add", "name", name, "type", "bridge"),
        ("ip", "link", "set", "dev", name, "up"),
    ):
        try:
            result = shell.run(words, timeout_s=_TIMEOUT_S)
        except errors.CommandError as err:
            raise errors.OpExecError(f"bridge {name}: {err}") from err
        if result.failed:
            raise errors.OpExecError(
                f"bridge {name}: cannot be created: {result.output.strip()}"
            )


def remove(shell: Shell, name: str) -> None:
    """Remove a bridge that `create` made."""
    shell.run(("ip", "link", "del", "dev", name), timeout_s=_TIMEOUT_S)


def configuration(shell: Shell, root: str, name: str) -> dict[str, str]:
    """Return file -> text that creates the bridge at the next boot.

    It is empty if neither systemd-networkd nor ifupdown manages the network.

    Args:
        shell: runs commands on the machine.
        root: directory of the machine's files, empty except for virtual nodes.
        name: of the bridge.
    """
    manager = _script(shell, _MANAGER, root).stdout.strip()
    if manager == "networkd":
        prefix = f"{root}{_NETWORKD}/60-ganeti-{name}"
        return {
            f"{prefix}.netdev": f"{_HEADER}[NetDev]\nName={name}\nKind=bridge\n",
            f"{prefix}.network": (
                f"{_HEADER}[Match]\nName={name}\n\n[Network]\n"
                # A bridge without ports has no carrier, for which networkd would wait.
                "LinkLocalAddressing=no\nConfigureWithoutCarrier=yes\n"
            ),
        }
    if manager == "ifupdown":
        return {
            f"{root}{_IFUPDOWN}.d/ganeti-{name}": (
                f"{_HEADER}auto {name}\niface {name} inet manual\n"
                # `create` has made the bridge already when ifup is run before the next
                # boot.
                f"    pre-up ip link show dev {name} > /dev/null 2>&1"
                f" || ip link add name {name} type bridge\n"
                f"    up ip link set dev {name} up\n"
                f"    post-down ip link del dev {name}\n"
            )
        }
    return {}


def write(shell: Shell, name: str, configured: dict[str, str]) -> None:
    """Write the files of `configuration`.

    Raises:
        OpExecError: a file cannot be written.
    """
    for path, text in configured.items():
        result = _script(shell, _WRITE, path, stdin=text)
        if result.failed:
            raise errors.OpExecError(
                f"bridge {name}: {path} cannot be written: {result.output.strip()}"
            )


def not_permanent(name: str) -> str:
    """Return a warning about a bridge that no configuration file could be made for."""
    return (
        f"Warning: bridge {name} is gone after a reboot, because neither"
        " systemd-networkd nor ifupdown manages the network there; add it to the"
        " network configuration"
    )


def prepare_node(
    shell: Shell, node: str, root: str, name: str, *, wanted: bool, feedback: Feedback
) -> None:
    """Name a bridge that a joining machine lacks, or create it.

    Args:
        shell: runs commands on the machine.
        node: name of the machine, for messages.
        root: directory of the machine's files, empty except for virtual nodes.
        name: of the bridge that guests use by default.
        wanted: create it if it is missing.
        feedback: called with each step and warning.

    Raises:
        OpPrereqError: another kind of network interface has the name.
        OpExecError: the bridge cannot be created.
        SshError: the connection to the machine broke.
    """
    state = _script(shell, _STATE, name).stdout.strip()
    if state not in {_OTHER, _MISSING}:
        return
    if not wanted:
        feedback(
            f"Warning: {node} has no bridge {name}, so instances with network"
            " interfaces cannot start there; create it, with a port to your network or"
            " with --create-bridge without one"
        )
        return
    if state == _OTHER:
        raise refusal(
            f"--create-bridge: {name} is a network interface of {node}, but not a"
            " bridge"
        )
    feedback(f"Creating the bridge {name} on {node}, without ports")
    create(shell, name)
    configured = configuration(shell, root, name)
    write(shell, name, configured)
    if not configured:
        feedback(not_permanent(name))


def _script(
    shell: Shell, text: str, *words: str, stdin: str | None = None
) -> RunResult:
    return shell.run(
        ("sh", "-c", text, "sh", *words), stdin=stdin, timeout_s=_TIMEOUT_S
    )
