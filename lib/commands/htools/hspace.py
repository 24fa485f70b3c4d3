"""``hspace``: compute how many further instances a cluster takes, and the limit."""

import sys
from typing import Final

from ganeti.commands.htools import loading, output, space_report
from ganeti.commands.htools.loading import ProgramError
from ganeti.commands.htools.options import ParsedOptions
from ganeti.decisions.htools.capacity import search as capacity_search
from ganeti.decisions.htools.capacity import totals
from ganeti.decisions.htools.capacity.tiers import InstanceSize
from ganeti.decisions.htools.model.cluster import Cluster
from ganeti.decisions.htools.state import node_state

NAME: Final = "hspace"


def main() -> int:
    """Run the program."""
    return loading.main(NAME, _run, sys.argv[1:])


def _run(parsed: ParsedOptions) -> int:
    cluster = loading.load(parsed)
    if not cluster.nodes:
        print("Cluster is empty, exiting.")
        return 0
    limits = loading.limits(parsed)
    if parsed.verbosity > 1 and (suffix := cluster.common_suffix()):
        sys.stderr.write(f"Note: Stripping common suffix of '{suffix}' from names\n")
    now = node_state.ClusterState(
        cluster, min_disk=limits.min_disk, max_cpu=limits.max_cpu
    )
    output.nodes_asked(now, parsed, "Initial cluster status")
    if parsed.verbosity > 2:
        first = space_report.eight(totals.totals(now).score)
        from ganeti.decisions.htools import tables

        table = "\n".join(tables.metrics(now))
        sys.stderr.write(f"Initial coefficients: overall {first}\n{table}\n")
    report = _report(now, parsed)
    report.begin()
    try:
        search = capacity_search.CapacitySearch(now, report.how)
    except capacity_search.NoRoomError as err:
        sys.stdout.flush()
        raise ProgramError(f"failure during allocation: {err}") from err
    tiered, fixed = _sizes(cluster, parsed)
    outcome = search.tiered(tiered)
    _keep(parsed, outcome, "Tiered")
    report.tiered(outcome, tiered[0])
    _explain(parsed, report, search, outcome)
    outcome = search.standard(fixed)
    _keep(parsed, outcome, "Standard")
    report.standard(outcome, fixed)
    _explain(parsed, report, search, outcome)
    report.end()
    return 0


def _report(now: node_state.ClusterState, parsed: ParsedOptions) -> space_report.Report:
    policy = now.cluster.policy
    template = parsed["dt"] or (policy.templates[0] if policy.templates else "drbd")
    use = parsed["su"]
    how = capacity_search.CapacityOptions(
        template=template,
        spindle_use=policy.std.spindles if use is None else use,
        limit=parsed["l"] if parsed["l"] >= 0 else None,
        capacity_checks=not parsed["nocap"],
        accept_errors=bool(parsed["acc"]),
        independent=bool(parsed["indep"]),
    )
    if parsed["json"]:
        return space_report.Document(now, how)
    kind = space_report.KeyValueReport if parsed["mr"] else space_report.TextReport
    return kind(now, how)


def _sizes(
    cluster: Cluster, parsed: ParsedOptions
) -> tuple[tuple[InstanceSize, ...], InstanceSize]:
    """Return the initial sizes of tiered allocation, and the fixed size."""
    tiered = capacity_search.sizes_of(cluster.policy)
    fixed = capacity_search.size_of(cluster.policy.std)
    if parsed["tier"] is not None:
        tiered = (_size(parsed["tier"]),)
    if parsed["std"] is not None:
        fixed = _size(parsed["std"])
    return tiered, fixed


def _size(given: tuple[int, int, int, int]) -> InstanceSize:
    disk, memory, vcpus, spindles = given
    return InstanceSize(memory, disk, vcpus, spindles)


def _keep(
    parsed: ParsedOptions, outcome: capacity_search.CapacityOutcome, word: str
) -> None:
    """Print the placements on stderr and save the state, as the options request."""
    if parsed.verbosity > 1:
        lines = "".join(f"{line}\n" for line in space_report.placements(outcome))
        sys.stderr.write(f"{word} allocation map\n{lines}")
    output.nodes_asked(outcome.after, parsed, f"{word} allocation status")
    if parsed["S"] is not None:
        what = f"after {word.lower()} allocation"
        loading.save(parsed, outcome.cluster(), word.lower(), what)


def _explain(
    parsed: ParsedOptions,
    report: space_report.Report,
    search: capacity_search.CapacitySearch,
    outcome: capacity_search.CapacityOutcome,
) -> None:
    """Report why no further instance fits, as the options request."""
    if parsed["explain"] or parsed["json"]:
        report.explain(search, outcome)


if __name__ == "__main__":
    sys.exit(main())
