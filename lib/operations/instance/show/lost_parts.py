"""Problems of running guests, as their nodes see them: lost parts, no progress."""

from collections.abc import Sequence
from typing import Any

from ganeti.base.constants.protocols import nodeverify
from ganeti.decisions.verify import guest_files, node_answer
from ganeti.model import objects
from ganeti.operations import base


def problems(
    ctx: base.Context, running: Sequence[objects.Instance]
) -> dict[str, list[dict[str, Any]]]:
    """Return instance name -> problems, of guests that lack something or are stuck.

    A problem has ``state``, ``text`` and ``command``, which is null if no command mends
    it. There is one call per node; a node without a usable answer names none.

    Args:
        ctx: the operation's.
        running: instances that run.
    """
    snapshot = ctx.snapshot
    concerned = set(guest_files.owners(running))
    asked: dict[str, list[str]] = {}
    for each in running:
        if each.name in concerned:
            asked.setdefault(each.primary_node, []).append(each.name)
    if not asked:
        return {}
    answers = ctx.rpc.call(
        "node_verify",
        sorted(asked),
        lambda uuid: (
            {nodeverify.NV_GUEST_FILES: asked[uuid]},
            snapshot.cluster.cluster_name,
            {},
        ),
    )
    lacking: dict[str, list[dict[str, Any]]] = {}
    for uuid, names in asked.items():
        good, _wrong = node_answer.clean(answers[uuid].payload)
        kinds = good.get(nodeverify.NV_GUEST_FILES, {})
        for name in names:
            node = snapshot.nodes[uuid].name
            if lost := guest_files.losses(name, node, kinds.get(name, ())):
                lacking[name] = [
                    {
                        "state": loss.kind,
                        "text": loss.text,
                        "command": loss.command or None,
                    }
                    for loss in lost
                ]
    return lacking
