"""``hcheck``: check the health of a cluster, before and after a simulated balancing."""

import sys
from collections.abc import Iterable, Sequence
from typing import Final

from ganeti.commands.htools import loading
from ganeti.commands.htools.options import ParsedOptions
from ganeti.decisions.htools import tables
from ganeti.decisions.htools.balance import greedy
from ganeti.decisions.htools.model import formatting
from ganeti.decisions.htools.score import components
from ganeti.decisions.htools.state import node_state
from ganeti.decisions.htools.tables import ClusterHealth, GroupHealth

NAME: Final = "hcheck"
_LABELS: Final = {
    "n1_fail": "Nodes not N+1 happy",
    "conflict_tags": "Nodes with conflicting instances",
    "offline_pri": "Instances having the primary node offline",
    "offline_sec": "Instances having a secondary node offline",
    "gn1_fail": "Nodes not directly evacuateable",
}


def main() -> int:
    """Run the program."""
    return loading.main(NAME, _run, sys.argv[1:])


def _run(parsed: ParsedOptions) -> int:
    cluster = loading.load(parsed)
    limits, checks = loading.limits(parsed), not parsed["nocap"]
    states = [
        node_state.derive(cluster.only_group(number), limits, parsed["ext"])
        for number in range(len(cluster.groups))
    ]
    before = [tables.group_health(now, capacity_checks=checks) for now in states]
    is_bad = _sum(before).bad
    printer = (
        _MachineOutput() if parsed["mr"] else _TextOutput(quiet=parsed.verbosity < 1)
    )
    printer.verdict(is_bad, simulate=not parsed["nosim"])
    if parsed["mr"]:
        _print_uuids(before)
    printer.block("init", "initially", before, is_bad)
    after = before
    if is_bad and not parsed["nosim"]:
        for now in states:
            _balance(now, parsed)
        after = [tables.group_health(now, capacity_checks=checks) for now in states]
    if parsed["mr"] or after is not before:
        printer.block("final", "after rebalancing", after, is_bad)
    if parsed["mr"]:
        print("HCHECK_OK=1")
    return 1 if is_bad and not parsed["nosim"] else 0


def _sum(groups: Sequence[GroupHealth]) -> ClusterHealth:
    """Add up the numbers of the groups; a cluster without groups is healthy."""
    total = ClusterHealth(0, 0, 0, 0, 0)
    for group in groups:
        total += group.health
    return total


def _balance(now: node_state.ClusterState, parsed: ParsedOptions) -> None:
    """Balance a group within the limits of the options; the state changes."""
    goal, lowest = loading.goal(parsed), components.ideal(now)
    if now.pri and components.value(now) - lowest >= goal.min_score:
        for _step in greedy.plan(now, goal, loading.moves(parsed), lowest):
            pass


def _print_uuids(groups: Sequence[GroupHealth]) -> None:
    for number, group in enumerate(groups):
        _print_key(f"GROUP_UUID_{number}", group.uuid)


def _print_key(key: str, value: str) -> None:
    print(f"HCHECK_{key}={formatting.quoted(value)}")


def _counts(result: ClusterHealth) -> Iterable[tuple[str, int]]:
    """Yield the computed numbers, in their order."""
    for name in _LABELS:
        value = getattr(result, name)
        if value is not None:
            yield name, value


class _MachineOutput:
    """Output as KEY=VALUE."""

    def verdict(self, _is_bad: bool, *, simulate: bool) -> None:
        """Print nothing: the values contain the verdict."""

    def block(
        self, key: str, _title: str, groups: Sequence[GroupHealth], bad: bool
    ) -> None:
        """Print the numbers of groups and cluster."""
        for number, group in enumerate(groups):
            prefix = f"{key}_GROUP_{number}".upper()
            for name, value in _counts(group.health):
                _print_key(f"{prefix}_{name.upper()}", str(value))
            _print_key(f"{prefix}_SCORE", formatting.fixed(group.score, 8))
        prefix = f"{key}_CLUSTER".upper()
        for name, value in _counts(_sum(groups)):
            _print_key(f"{prefix}_{name.upper()}", str(value))
        _print_key(f"{prefix}_NEED_REBALANCE", str(int(bad)))


class _TextOutput:
    """Output as text; none in quiet mode."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet

    def _out(self, line: str) -> None:
        if not self._quiet:
            print(line)

    def verdict(self, is_bad: bool, *, simulate: bool) -> None:
        """Print the verdict."""
        if not simulate:
            self._out("Running in no-simulation mode.")
        elif is_bad:
            self._out("Cluster needs rebalancing.")
        else:
            self._out("No need to rebalance cluster, no problems found.")

    def block(
        self, _key: str, title: str, groups: Sequence[GroupHealth], bad: bool
    ) -> None:
        """Print the numbers of groups and cluster."""
        for group in groups:
            self._out(f"\nStatistics for group {group.name} {title}")
            self._numbers(group.health)
            self._out(f"    Group score: {formatting.fixed(group.score, 8)}")
        self._out(f"\nCluster statistics {title}")
        self._numbers(_sum(groups))
        self._out(f"    Cluster is not healthy: {bad}")

    def _numbers(self, result: ClusterHealth) -> None:
        for name, value in _counts(result):
            self._out(f"    {_LABELS[name]}: {value}")


if __name__ == "__main__":
    sys.exit(main())
