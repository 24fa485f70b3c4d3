"""Problems of running guests, as their nodes see them: lost parts, no progress."""

from collections.abc import Mapping, Sequence
from typing import Any

from ganeti import objects
from ganeti.cmdlib import base
from ganeti.constants import nodeverify
from ganeti.verify import guest_files, node_answer


def problems(
    ctx: base.Context,
    running: Sequence[objects.Instance],
    live: Mapping[str, Mapping[str, Any] | None],
) -> dict[str, list[dict[str, Any]]]:
    """Return instance name -> problems, of guests that lack something or are stuck.

    A problem has ``state``, ``text`` and ``command``, which is null if no command mends
    it. There is one call per node; a node without a usable answer names none.

    Args:
        ctx: the operation's.
        running: instances that run.
        live: node uuid -> instance name -> report, None of a node without an answer.
    """
    snapshot = ctx.snapshot
    concerned = set(guest_files.owners(running))
    asked: dict[str, list[str]] = {}
    for each in running:
        if each.name in concerned:
            asked.setdefault(each.primary_node, []).append(each.name)
    lacking = {
        each.name: [_stuck(each.name, seconds)]
        for each in running
        if (seconds := (live.get(each.primary_node) or {})[each.name].get("stuck"))
    }
    if not asked:
        return lacking
    answers = ctx.rpc.call(
        "node_verify",
        sorted(asked),
        lambda uuid: (
            {nodeverify.NV_GUEST_FILES: asked[uuid]},
            snapshot.cluster.cluster_name,
            {},
        ),
    )
    for uuid, names in asked.items():
        good, _wrong = node_answer.clean(answers[uuid].payload)
        kinds = good.get(nodeverify.NV_GUEST_FILES, {})
        for name in names:
            node = snapshot.nodes[uuid].name
            if lost := guest_files.losses(name, node, kinds.get(name, ())):
                lacking[name] = lacking.get(name, []) + [
                    {
                        "state": loss.kind,
                        "text": loss.text,
                        "command": loss.command or None,
                    }
                    for loss in lost
                ]
    return lacking


def _stuck(name: str, seconds: float) -> dict[str, Any]:
    """Return the problem of a guest that makes no progress."""
    text = (
        f"for {int(seconds)} seconds since its live migration its processors have been"
        " busy without any input or output; if its console does not answer either, it"
        f" is stuck, and 'gnt-instance reboot {name}' helps"
    )
    return {"state": "stuck", "text": text, "command": None}
