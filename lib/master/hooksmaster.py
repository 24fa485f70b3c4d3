"""Hooks: the administrator's scripts around operations, on many nodes.

The logical units define which operation runs which scripts with which variables; this
module runs them. Specified in the hooks table.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ganeti.base import errors, pathutils
from ganeti.base.constants.protocols import hooks
from ganeti.model import objects
from ganeti.protocols import rpc
from ganeti.protocols.rpc import calls

# The environment of hook scripts, as pure functions.

PREFIX: Final = "GANETI_"
POST_PREFIX: Final = "GANETI_POST_"


def common(
    snapshot: objects.Snapshot,
    *,
    op_id: str,
    hook: str,
    phase: str,
    object_type: str | None,
) -> dict[str, str]:
    """Return the variables that every hook script has, with their prefix."""
    cluster = snapshot.cluster
    master = snapshot.nodes.get(cluster.master_node)
    env = {
        "PATH": hooks.HOOKS_PATH,
        "GANETI_HOOKS_VERSION": str(hooks.HOOKS_VERSION),
        "GANETI_OP_CODE": op_id,
        # The same path on every node; a virtual node prepends its own root.
        "GANETI_DATA_DIR": pathutils.Paths().data_dir,
        "GANETI_HOOKS_PHASE": phase,
        "GANETI_HOOKS_PATH": hook,
        "GANETI_CLUSTER": cluster.cluster_name,
        "GANETI_MASTER": master.name if master else "",
    }
    if object_type is not None:
        env["GANETI_OBJECT_TYPE"] = object_type
    return env


def pre_variables(own: Mapping[str, Any]) -> dict[str, str]:
    """Return an operation's variables for the pre phase."""
    return {f"{PREFIX}{name}": text(value) for name, value in own.items()}


def post_variables(own: Mapping[str, Any]) -> dict[str, str]:
    """Return an operation's fresh variables for the post phase."""
    return {f"{POST_PREFIX}{name}": text(value) for name, value in own.items()}


def merge(base: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Return common and own variables together.

    Raises:
        ProgrammerError: an own variable has the name of a common one.
    """
    if clash := sorted(base.keys() & own.keys()):
        raise errors.ProgrammerError(f"hook variables {', '.join(clash)} are reserved")
    return {**base, **own}


def text(value: Any) -> str:
    """Return a value as scripts get it: True, False, None and lists as in Python."""
    return value if isinstance(value, str) else str(value)


@dataclasses.dataclass(frozen=True)
class Operation:
    """The operation that hooks run for.

    Attributes:
        op_id: such as ``OP_NODE_ADD``.
        hook: name of the hook directories, such as ``node-add``.
        object_type: kind of object, or None.
    """

    op_id: str
    hook: str
    object_type: str | None


class ScriptResult(NamedTuple):
    """The result of one script on one node, by the node's name."""

    node: str
    script: str
    status: int
    output: str


def run(
    runner: rpc.Runner,
    hook: str,
    phase: str,
    nodes: Sequence[str],
    env: Mapping[str, str],
) -> tuple[list[ScriptResult], dict[str, str]]:
    """Run scripts on nodes.

    Args:
        runner: node calls.
        hook: name of the hook directories.
        phase: ``pre`` or ``post``.
        nodes: uuids.
        env: the whole environment.

    Returns:
        Results of the scripts in the order of nodes, and node name -> why it did not
        answer; offline nodes are left out of both.
    """
    answers = runner.call_nodes(nodes, calls.hooks_runner(hook, phase, dict(env)))
    results: list[ScriptResult] = []
    silent: dict[str, str] = {}
    for uuid in nodes:
        answer = answers.get(uuid)
        if answer is None or answer.offline:
            continue
        if answer.failed:
            silent[answer.node] = str(answer.fail_msg)
            continue
        results.extend(ScriptResult(answer.node, *row) for row in answer.payload)
    return results, silent


def run_pre(
    runner: rpc.Runner,
    operation: Operation,
    nodes: Sequence[str],
    env: Mapping[str, str],
    *,
    warn: Callable[[str], Any],
) -> None:
    """Run pre hooks; does nothing without nodes.

    Nodes that do not answer are warnings, also if no other node runs hooks.

    Raises:
        HooksAbort: a script failed; lists [node name, script, output].
    """
    if not nodes:
        return
    results, silent = run(runner, operation.hook, hooks.HOOKS_PHASE_PRE, nodes, env)
    for node, reason in silent.items():
        warn(f"hooks {operation.hook}: node {node} did not answer: {reason}")
    failed = [
        [item.node, item.script, item.output]
        for item in results
        if item.status == hooks.HKR_FAIL
    ]
    if failed:
        raise errors.HooksAbort(failed)


def warnings(
    hook: str, results: Sequence[ScriptResult], silent: Mapping[str, str]
) -> list[str]:
    """Return one line per failed script and silent node of the post phase."""
    lines = [
        f"hooks {hook}: node {node} did not answer: {reason}"
        for node, reason in silent.items()
    ]
    for item in results:
        if item.status == hooks.HKR_FAIL:
            # A warning is one line.
            words = " / ".join(item.output.split("\n"))
            output = f": {words}" if words else ""
            lines.append(f"hook {item.script} failed on node {item.node}{output}")
    return lines
