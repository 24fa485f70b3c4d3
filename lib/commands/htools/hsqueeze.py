"""``hsqueeze``: compute which nodes may be switched off, or must be switched on."""

import sys
from typing import Final

from ganeti.commands.htools import loading, node_power
from ganeti.commands.htools.loading import ProgramError
from ganeti.commands.htools.options import ParsedOptions
from ganeti.commands.htools.output import file_output
from ganeti.decisions.htools.balance import job_sets
from ganeti.decisions.htools.maintenance import squeeze
from ganeti.decisions.htools.maintenance.squeeze import PowerAction
from ganeti.decisions.htools.model.cluster import Cluster

NAME: Final = "hsqueeze"
_OPTIONS: Final = "L t X minr tgtr S C v nh skm"


_HEADERS: Final = {
    PowerAction.NOTHING: "'No action'",
    PowerAction.SWITCH_ON: "'Nodes to online'",
    PowerAction.SWITCH_OFF: "'Nodes to offline'",
}
_SAVED: Final = {
    PowerAction.NOTHING: "doing nothing",
    PowerAction.SWITCH_ON: "expansion",
    PowerAction.SWITCH_OFF: "run",
}


def main() -> int:
    """Run the program."""
    return loading.main(NAME, _OPTIONS.split(), _run, sys.argv[1:])


def _run(parsed: ParsedOptions) -> int:
    cluster = loading.load(parsed)
    loading.save(parsed, cluster, "original", "before hsqueeze run")
    least = squeeze.size(cluster, parsed["minr"])
    wanted = squeeze.size(cluster, parsed["tgtr"])
    if parsed.verbosity > 1:
        _candidates("Offline", cluster, squeeze.removable(cluster))
        _candidates("Online", cluster, squeeze.standby(cluster))
    plan = squeeze.plan(cluster, least, wanted)
    _print(cluster, parsed, plan)
    _commands(cluster, parsed, plan)
    loading.save(
        parsed, plan.cluster, "squeezed", f"after hsqueeze {_SAVED[plan.action]}"
    )
    if not parsed["X"]:
        return 0
    if parsed["L"] is None:
        raise ProgramError(f"{NAME}: Execution of commands possible only on LUXI")
    return node_power.run(NAME, parsed, cluster, plan)


def _candidates(what: str, cluster: Cluster, nodes: list[int]) -> None:
    names = ",".join(cluster.nodes[n].name for n in nodes)
    print(f"{what} candidates: {names}")


def _print(cluster: Cluster, parsed: ParsedOptions, plan: squeeze.SqueezePlan) -> None:
    if not parsed["nh"]:
        print(_HEADERS[plan.action])
    for node in plan.nodes:
        print(cluster.nodes[node].name)
    if not plan.enough and parsed.verbosity > 1:
        print("Onlining all nodes will not yield enough capacity")


def _commands(
    cluster: Cluster, parsed: ParsedOptions, plan: squeeze.SqueezePlan
) -> None:
    """Print or write the commands of the plan."""
    path = parsed["C"]
    if path is None:
        return
    lines = script(cluster, plan)
    if path:
        file_output.text(path, job_sets.script(lines))
        print(f"The commands have been written to file '{path}'")
        return
    print("\nCommands to run:")
    print("\n".join(job_sets.on_screen(lines)))


def script(cluster: Cluster, plan: squeeze.SqueezePlan) -> list[str]:
    """Return the lines of a script that executes the plan."""
    suffix = cluster.common_suffix()
    names = [node.name.removesuffix(suffix) for node in cluster.nodes]
    sets = [
        [
            job_sets.commands(
                step,
                cluster.instances[step.inst].name,
                names.__getitem__,
                running=cluster.instances[step.inst].running,
            )
            for step in members
        ]
        for members in job_sets.job_sets(plan.steps)
    ]
    moves = job_sets.listing(sets)
    if plan.action == PowerAction.NOTHING:
        return ["echo Nothing to do"]
    if plan.action == PowerAction.SWITCH_ON:
        power = [f"power -f on {names[n]}" for n in plan.nodes]
        return [*_section("Power", power)[1:], *moves]
    tags = [f"add-tags {names[n]} {squeeze.STANDBY_TAG}" for n in plan.nodes]
    power = [f"power -f off {names[n]}" for n in plan.nodes]
    return [*moves, *_section("Tagging", tags), *_section("Power", power)]


def _section(what: str, commands: list[str]) -> list[str]:
    lines = [f"  gnt-node {command}" for command in commands]
    return ["", f"echo {what} Commands", *lines]


if __name__ == "__main__":
    sys.exit(main())
