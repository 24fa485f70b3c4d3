"""Check whether a machine starts the daemons of its cluster again after a reboot.

The same check runs on this machine and, over SSH, on a machine that joins.
"""

from collections.abc import Sequence
from typing import Final

from ganeti import _buildconf
from ganeti.base import errors
from ganeti.base.pathutils import Paths
from ganeti.base.process import Shell

_UNITS: Final = (
    "ganeti.target",
    "ganeti.service",
    "ganeti-noded.service",
    "ganeti-confd.service",
    "ganeti-mond.service",
    "ganeti-master.target",
    "ganeti-masterd.service",
    "ganeti-rapi.service",
)
#: Answers of ``systemctl is-enabled`` for a unit that is started at boot.
_STARTED: Final = frozenset({"enabled", "enabled-runtime", "static", "alias"})
#: Other answers; anything else is not shown.
_NOT_STARTED: Final = frozenset({"disabled", "masked", "masked-runtime", "linked"})
#: Files of other programs: the name of the example, and what is missing without it.
_FILES: Final = {
    f"{_buildconf.SYSCONFDIR}/cron.d/ganeti": (
        "ganeti.cron",
        "cron does not restart daemons and instances",
    ),
    f"{_buildconf.SYSCONFDIR}/logrotate.d/ganeti": (
        "ganeti.logrotate",
        "logrotate does not rotate the logs of the daemons",
    ),
}
_MISSING: Final = "missing"
_END: Final = "end of the check"
#: Without systemd it prints nothing about units. Only a complete run prints the end.
_SCRIPT: Final = f"""
for file in {" ".join(_FILES)}; do
  [ -e "$file" ] || echo "$file {_MISSING}"
done
if [ -d /run/systemd/system ]; then
  command -v systemctl > /dev/null || exit 1
  for unit in {" ".join(_UNITS)}; do
    echo "$unit $(systemctl is-enabled "$unit" 2> /dev/null)"
  done
fi
echo '{_END}'
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
    where = f"on {host}" if host else "on this machine"
    try:
        result = shell.run(("sh", "-c", _SCRIPT), timeout_s=_TIMEOUT_S)
    except errors.CommandError as err:
        return [_not_checked(where, str(err))]
    lines = result.stdout.splitlines()
    if result.failed:
        return [_not_checked(where, f"the check {result.reason}")]
    if _END not in lines:
        return [_not_checked(where, "the check printed no end")]
    return [*_of_units(where, lines), *_of_files(where, lines)]


def _not_checked(where: str, reason: str) -> str:
    return (
        f"Warning: it was not checked whether daemons start {where} after a reboot,"
        f" nor the files {' and '.join(_FILES)}: {reason}; see 'Ganeti' in the page on"
        " installing"
    )


def _of_units(where: str, lines: Sequence[str]) -> list[str]:
    states = dict(line.split(" ", 1) for line in lines if " " in line)
    wrong = [
        f"{unit} is {_state(states[unit])}"
        for unit in _UNITS
        if unit in states and states[unit].strip() not in _STARTED
    ]
    if not wrong:
        return []
    text = (
        f"Warning: daemons do not start {where} after a reboot: {', '.join(wrong)};"
        " run there: systemctl daemon-reload; systemctl enable ganeti.target"
    )
    return [text]


def _of_files(where: str, lines: Sequence[str]) -> list[str]:
    examples = f"{_buildconf.PREFIX}/share/doc/ganeti/examples"
    return [
        f"Warning: {effect} {where}: {path} is missing; copy {examples}/{example} there"
        for path, (example, effect) in _FILES.items()
        if f"{path} {_MISSING}" in lines
    ]


def _state(text: str) -> str:
    word = text.strip()
    return word if word in _NOT_STARTED else "not installed"
