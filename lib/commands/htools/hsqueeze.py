"""``hsqueeze``: compute which nodes may be switched off, or must be switched on."""

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ganeti.commands.htools import execute, loading, output, sources
from ganeti.commands.htools.loading import ProgramError
from ganeti.commands.htools.options import ParsedOptions
from ganeti.decisions.htools import squeeze
from ganeti.decisions.htools.balance import greedy
from ganeti.decisions.htools.model import query
from ganeti.decisions.htools.model.cluster import Cluster
from ganeti.decisions.htools.squeeze import PowerAction

#: Most seconds that a node may take from power on to its first answer.
_BOOT_S: Final = 900
#: Seconds between two attempts.
_PAUSE_S: Final = 15
#: Values of the parameter of nodes without an out-of-band helper.
_NO_HELPER: Final = ("", "!", None)
_FIELDS: Final = ("name", "powered", "ndp/oob_program")

Jobs = list[execute.Job]


def carry_out(
    program: str, parsed: ParsedOptions, cluster: Cluster, plan: squeeze.SqueezePlan
) -> int:
    """Execute the plan; return the exit code.

    Raises:
        ProgramError: a node cannot be switched (then nothing was done), or a job
            failed.
        GenericError: the master daemon stopped answering.
    """
    names = [cluster.nodes[n].name for n in plan.nodes]
    _require_helpers(parsed, names)
    moves = _moves(cluster, plan)
    comment = f"condensing by {len(names)} nodes"
    if plan.action == PowerAction.SWITCH_ON:
        comment = f"expanding by {len(names)} nodes"
        code = _switch_on(program, parsed, names, comment)
        return code or execute.run(program, parsed, moves, comment=comment)
    if plan.action == PowerAction.NOTHING:
        return 0
    last = [[_tag(name) for name in names], [_off(name) for name in names]]
    code = execute.run(program, parsed, [*moves, *last], comment=comment)
    if code == 0:
        _require_off(parsed, names)
    return code


def _moves(cluster: Cluster, plan: squeeze.SqueezePlan) -> list[Jobs]:
    names = [node.name for node in cluster.nodes]
    return [
        [
            execute.Job(
                cluster.instances[step.inst].name,
                greedy.opcodes(step, cluster.instances[step.inst], names.__getitem__),
            )
            for step in members
        ]
        for members in greedy.job_sets(plan.steps)
    ]


def _node(name: str, *ops: Mapping[str, Any]) -> execute.Job:
    return execute.Job(name, [dict(op) for op in ops], "nodes")


def _tag(name: str) -> execute.Job:
    tags = [squeeze.STANDBY_TAG]
    return _node(
        name, {"OP_ID": "OP_TAGS_SET", "kind": "node", "name": name, "tags": tags}
    )


def _power(name: str, command: str) -> dict[str, Any]:
    return {"OP_ID": "OP_OOB_COMMAND", "node_names": [name], "command": command}


def _online(name: str) -> dict[str, Any]:
    return {"OP_ID": "OP_NODE_SET_PARAMS", "node_name": name, "offline": False}


def _off(name: str) -> execute.Job:
    # Another node becomes master candidate if this one was.
    marks = {"mark_offline": True, "auto_promote": True}
    return _node(name, _power(name, "power-off") | marks)


def _switch_on(
    program: str, parsed: ParsedOptions, names: Sequence[str], comment: str
) -> int:
    """Switch nodes on and wait until each is usable."""
    if not names:
        return 0
    sets = [[_node(name, _power(name, "power-on")) for name in names]]
    code = execute.run(program, parsed, sets, comment=comment)
    end = time.monotonic() + _BOOT_S
    left = list(names)
    while left and code == 0:
        try:
            online = [[_node(left[0], _online(left[0]))]]
            code = execute.run(program, parsed, online, comment=comment)
            del left[0]
        except ProgramError:
            if time.monotonic() >= end:
                raise
            time.sleep(_PAUSE_S)
    return code


def _query_nodes(parsed: ParsedOptions) -> dict[str, Mapping[str, Any]]:
    with sources.connect(parsed["L"]) as client:
        answer = client.call("Query", ["node", list(_FIELDS), None])
        rows = query.objects(answer, _FIELDS, f"LUXI {client.path}")
    return {row["name"]: row for row in rows}


def _require_helpers(parsed: ParsedOptions, names: Sequence[str]) -> None:
    if not names:
        return
    reports = _query_nodes(parsed)
    lacking = [name for name in names if reports[name]["ndp/oob_program"] in _NO_HELPER]
    if lacking:
        raise ProgramError(
            f"Nodes without an out-of-band helper: {', '.join(lacking)}; they cannot be"
            " switched on or off; nothing was done (set the node parameter oob_program)"
        )


def _require_off(parsed: ParsedOptions, names: Sequence[str]) -> None:
    reports = _query_nodes(parsed)
    still = [name for name in names if reports.get(name, {}).get("powered")]
    if still:
        raise ProgramError(
            "Nodes could not be switched off, they are still online:"
            f" {', '.join(still)}"
        )


NAME: Final = "hsqueeze"


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
    return loading.main(NAME, _run, sys.argv[1:])


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
    return carry_out(NAME, parsed, cluster, plan)


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
        output.save_text(path, greedy.script(lines))
        print(f"The commands have been written to file '{path}'")
        return
    print("\nCommands to run:")
    print("\n".join(greedy.on_screen(lines)))


def script(cluster: Cluster, plan: squeeze.SqueezePlan) -> list[str]:
    """Return the lines of a script that executes the plan."""
    suffix = cluster.common_suffix()
    names = [node.name.removesuffix(suffix) for node in cluster.nodes]
    sets = [
        [
            greedy.commands(
                step,
                cluster.instances[step.inst].name,
                names.__getitem__,
                running=cluster.instances[step.inst].running,
            )
            for step in members
        ]
        for members in greedy.job_sets(plan.steps)
    ]
    moves = greedy.listing(sets)
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
