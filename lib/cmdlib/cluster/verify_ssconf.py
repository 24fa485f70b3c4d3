"""Comparison of the nodes' ssconf files with the configuration."""

import hashlib
import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from ganeti import config
from ganeti.cmdlib.base import Context
from ganeti.constants import nodeverify
from ganeti.ssconf import SimpleStore, writer
from ganeti.verify import Report, node_answer

#: Nodes write the files shortly after the configuration changed: nodes that differ
#: are asked again this often, after so many seconds.
_ATTEMPTS: Final = 10
_PAUSE_S: Final = 0.3


def judge(ctx: Context, report: Report, nodes: Collection[str]) -> None:
    """Report ssconf files that are missing or differ, once per file.

    Args:
        ctx: of the unit.
        report: takes the findings.
        nodes: uuids of nodes to ask; nodes that do not answer are skipped.
    """
    names = ctx.snapshot.nodes
    for path, uuids in sorted(_settled(ctx, nodes).items()):
        where = ", ".join(sorted(names[uuid].name for uuid in uuids))
        report.error_if(
            True,
            "ECLUSTERFILECHECK",
            None,
            f"file {path} differs from the configuration on node(s) {where}",
        )


def _settled(ctx: Context, nodes: Collection[str]) -> Mapping[str, list[str]]:
    """Return file -> nodes where it still differs after repeated checks."""
    never = threading.Event()
    for attempt in range(_ATTEMPTS):
        differing = _differing(ctx, sorted(nodes))
        if not differing or attempt == _ATTEMPTS - 1:
            break
        nodes = {uuid for uuids in differing.values() for uuid in uuids}
        ctx.clock.wait(never, _PAUSE_S)
    return differing


def _differing(ctx: Context, nodes: Sequence[str]) -> dict[str, list[str]]:
    if not nodes:
        return {}
    checksums = _checksums(ctx)
    asked = {nodeverify.NV_FILELIST: [ctx.paths.virtualize(path) for path in checksums]}
    answers = ctx.rpc.call(
        "node_verify", nodes, [asked, ctx.snapshot.cluster.cluster_name, {}]
    )
    differing: dict[str, list[str]] = {}
    for uuid, answer in answers.items():
        good: Mapping[str, Any] = node_answer.clean(answer.payload)[0]
        sums = good.get(nodeverify.NV_FILELIST)
        if sums is None:
            continue
        for path, checksum in checksums.items():
            if sums.get(ctx.paths.virtualize(path)) != checksum:
                plain = path.removeprefix(ctx.paths.root)
                differing.setdefault(plain, []).append(uuid)
    return differing


def _checksums(ctx: Context) -> dict[str, str]:
    """Return the expected files of the master: path -> checksum."""
    store = SimpleStore(ctx.paths)
    return {
        store.path(key): hashlib.sha1(
            writer.encode(key, value), usedforsecurity=False
        ).hexdigest()
        for key, value in config.ssconf_values(ctx.snapshot).items()
    }
