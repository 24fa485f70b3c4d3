"""Check whether a machine starts the daemons of its cluster again after a reboot.

The same check runs on this machine and, over SSH, on a machine that joins.
"""

from typing import Final

from ganeti import _buildconf, errors
from ganeti.pathutils import Paths
from ganeti.process import Shell

_UNITS: Final = (
    "ganeti.target",
    "ganeti-noded.service",
    "ganeti-master.target",
    "ganeti-masterd.service",
)
#: Answers of ``systemctl is-enabled`` for a unit that is started at boot.
_STARTED: Final = frozenset({"enabled", "enabled-runtime", "static", "alias"})
#: Other answers; anything else is not shown.
_NOT_STARTED: Final = frozenset({"disabled", "masked", "masked-runtime", "linked"})
_CRON: Final = f"{_buildconf.SYSCONFDIR}/cron.d/ganeti"
_CRON_MARK: Final = "cron-file missing"
#: Without systemd it prints nothing about units.
_SCRIPT: Final = f"""
[ -e '{_CRON}' ] || echo '{_CRON_MARK}'
[ -d /run/systemd/system ] || exit 0
for unit in {" ".join(_UNITS)}; do
  echo "$unit $(systemctl is-enabled "$unit" 2> /dev/null)"
done
"""
_TIMEOUT_S: Final = 30.0


def warnings(paths: Paths, shell: Shell, *, host: str = "") -> list[str]:
    """Return one line for each omission; none for virtual nodes.

    Args:
        paths: of this node.
        shell: runs commands on the machine.
        host: name of the machine, empty for this one.

    Raises:
        SshError: the connection to the machine broke.
    """
    if paths.is_virtual:
        return []
    try:
        result = shell.run(("sh", "-c", _SCRIPT), timeout_s=_TIMEOUT_S)
    except errors.CommandError:
        return []
    where = f"on {host}" if host else "on this machine"
    lines = result.stdout.splitlines()
    problems: list[str] = []
    states = dict(line.split(" ", 1) for line in lines if " " in line)
    wrong = [
        f"{unit} is {_state(states[unit])}"
        for unit in _UNITS
        if unit in states and states[unit].strip() not in _STARTED
    ]
    if wrong:
        problems.append(
            f"Warning: daemons do not start {where} after a reboot: {', '.join(wrong)};"
            " run there: systemctl daemon-reload; systemctl enable ganeti.target"
        )
    if _CRON_MARK in lines:
        problems.append(
            f"Warning: cron does not restart daemons and instances {where}: {_CRON} is"
            f" missing; copy {_buildconf.PREFIX}/share/doc/ganeti/examples/ganeti.cron"
            " there"
        )
    return problems


def _state(text: str) -> str:
    word = text.strip()
    return word if word in _NOT_STARTED else "not installed"
