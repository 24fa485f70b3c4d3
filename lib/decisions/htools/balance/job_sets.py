"""A plan as jobs: moves that may run at the same time, their commands and opcodes."""

from collections.abc import Callable, Iterable
from typing import Any

from ganeti.decisions.htools.balance.greedy import BalanceStep
from ganeti.decisions.htools.model.cluster import NONE, Instance
from ganeti.decisions.htools.rules.moves import MoveKind

_SCRIPT_HEAD = """\
#!/bin/sh

# Commands of a balancing plan; create the file /tmp/stop-htools to stop between jobs.

set -e

check() {
  if [ -f /tmp/stop-htools ]; then
    echo 'Stopped by /tmp/stop-htools'
    exit 0
  fi
}

"""


def job_sets(steps: Iterable[BalanceStep]) -> list[list[BalanceStep]]:
    """Group moves that share no node, from the last one backwards."""
    sets: list[list[BalanceStep]] = []
    nodes: set[int] = set()
    # From the end, because a move joins the set of its successor only if nothing in
    # that set uses its nodes; sets run one after another, jobs of a set at the same
    # time.
    for step in reversed(list(steps)):
        involved = {*step.before, *step.after} - {NONE}
        if sets and not nodes & involved:
            sets[0].insert(0, step)
            nodes |= involved
        else:
            sets.insert(0, [step])
            nodes = involved
    return sets


def letters(step: BalanceStep, node: Callable[[int], str]) -> str:
    """Return a move as the lines of a plan show it."""
    target = node(step.move.target) if step.move.target != NONE else ""
    return {
        MoveKind.FAILOVER: "f",
        MoveKind.FAILOVER_TO: f"fa:{target}",
        MoveKind.REPLACE_SECONDARY: f"r:{target}",
        MoveKind.REPLACE_FAILOVER: f"r:{target} f",
        MoveKind.REPLACE_PRIMARY: f"f r:{target} f",
        MoveKind.FAILOVER_REPLACE: f"f r:{target}",
    }[step.move.kind]


def commands(
    step: BalanceStep, name: str, node: Callable[[int], str], *, running: bool
) -> list[str]:
    """Return the arguments of ``gnt-instance`` that do a move."""
    verb = "migrate" if running else "failover"
    result = []
    for word in letters(step, node).split():
        letter, _, target = word.partition(":")
        if letter == "f":
            result.append(f"{verb} -f {name}")
        elif letter == "fa":
            result.append(f"{verb} -f -n {target} {name}")
        else:
            result.append(f"replace-disks -n {target} {name}")
    return result


def opcodes(
    step: BalanceStep, inst: Instance, node: Callable[[int], str]
) -> list[dict[str, Any]]:
    """Return the opcodes that do a move, in their wire form.

    Args:
        step: the move.
        inst: the instance.
        node: returns the full name of a node by position.
    """
    result: list[dict[str, Any]] = []
    for word in letters(step, node).split():
        letter, _, target = word.partition(":")
        op: dict[str, Any] = {"instance_name": inst.name}
        if letter == "r":
            op |= {
                "OP_ID": "OP_INSTANCE_REPLACE_DISKS",
                "mode": "replace_new_secondary",
                "remote_node": target,
            }
        elif inst.forthcoming:
            op |= {"OP_ID": "OP_INSTANCE_FAILOVER"}
        else:
            op |= {
                "OP_ID": "OP_INSTANCE_MIGRATE",
                "allow_failover": True,
                "ignore_hvversions": True,
            }
        if letter == "fa":
            op["target_node"] = target
        result.append(op)
    return result


def listing(sets: list[list[list[str]]]) -> list[str]:
    """Yield the lines of a script: ``sets`` has jobs, which have commands."""
    lines = []
    for number, jobs in enumerate(sets, start=1):
        lines += ["", f"echo jobset {number}, {len(jobs)} jobs"]
        for place, job in enumerate(jobs, start=1):
            lines += [f"  echo job {number}/{place}", "  check"]
            lines += [f"  gnt-instance {command}" for command in job]
    return lines


def on_screen(lines: list[str]) -> list[str]:
    """Yield the lines of a script as they are shown: indented, without checks."""
    return [f"  {line}" for line in lines if line != "  check"]


def script(lines: list[str]) -> str:
    """Return a shell script that can be stopped between jobs."""
    return _SCRIPT_HEAD + "".join(f"{line}\n" for line in lines)
