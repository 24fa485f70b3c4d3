"""Execution of the hook scripts of one operation on nodes."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ganeti.base import errors
from ganeti.base.constants.protocols import hooks
from ganeti.protocols import rpc


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
    answers = runner.call("hooks_runner", nodes, (hook, phase, dict(env)))
    results: list[ScriptResult] = []
    silent: dict[str, str] = {}
    for uuid in nodes:
        answer = answers.get(uuid)
        if answer is None or answer.offline:
            continue
        if answer.failed or not isinstance(answer.payload, (list, tuple)):
            silent[answer.node] = (
                answer.fail_msg or f"malformed answer {answer.payload!r}"
            )
            continue
        results.extend(
            ScriptResult(answer.node, str(script), int(status), str(output))
            for script, status, output in answer.payload
        )
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
