"""Comparison of the nodes' ssconf files with the configuration."""

import hashlib
import threading
from collections.abc import Mapping, Sequence
from typing import Final

from ganeti.base import errors, pathutils
from ganeti.base.constants.protocols import nodeverify, ssconf
from ganeti.decisions.verify import Report, node_answer
from ganeti.master import config
from ganeti.operations.base import Context
from ganeti.protocols.ssconf import SimpleStore, writer

#: Nodes write the files shortly after the configuration changed: nodes that differ
#: are asked again this often, after so many seconds.
_ATTEMPTS: Final = 10
_PAUSE_S: Final = 0.3
#: File -> checksum; None if a node returned none.
Sums = Mapping[str, str] | None


def files(paths: pathutils.Paths) -> list[str]:
    """Return all ssconf files, as paths that other nodes understand."""
    store = SimpleStore(paths)
    return [paths.virtualize(store.path(key)) for key in ssconf.KEYS]


def judge(ctx: Context, report: Report, sums: Mapping[str, Sums]) -> None:
    """Report ssconf files that are missing or differ, once per file.

    Args:
        ctx: of the unit.
        report: takes the findings.
        sums: node uuid -> checksums of its `files`, None if it returned none; such
            nodes are skipped.
    """
    names = ctx.snapshot.nodes
    for problem in _encoded(ctx)[1]:
        report.error_if(True, "ECLUSTERFILECHECK", None, f"no node gets it: {problem}")
    for path, uuids in sorted(_settled(ctx, sums).items()):
        where = ", ".join(sorted(names[uuid].name for uuid in uuids))
        report.error_if(
            True,
            "ECLUSTERFILECHECK",
            None,
            f"file {path} differs from the configuration on node(s) {where}",
        )


def _settled(ctx: Context, sums: Mapping[str, Sums]) -> Mapping[str, list[str]]:
    """Return file -> nodes where it still differs after repeated checks."""
    never = threading.Event()
    differing = _differing(ctx, sums)
    for attempt in range(_ATTEMPTS):
        if not differing:
            break
        if attempt:
            ctx.clock.wait(never, _PAUSE_S)
        nodes = sorted({uuid for uuids in differing.values() for uuid in uuids})
        differing = _differing(ctx, _ask(ctx, nodes))
    return differing


def _ask(ctx: Context, nodes: Sequence[str]) -> dict[str, Sums]:
    asked = {nodeverify.NV_FILELIST: files(ctx.paths)}
    answers = ctx.rpc.call(
        "node_verify", nodes, [asked, ctx.snapshot.cluster.cluster_name, {}]
    )
    return {
        uuid: node_answer.clean(answer.payload)[0].get(nodeverify.NV_FILELIST)
        for uuid, answer in answers.items()
    }


def _differing(ctx: Context, sums: Mapping[str, Sums]) -> dict[str, list[str]]:
    checksums = _checksums(ctx) if sums else {}
    differing: dict[str, list[str]] = {}
    for uuid, actual in sums.items():
        if actual is None:
            continue
        for path, checksum in checksums.items():
            if actual.get(ctx.paths.virtualize(path)) != checksum:
                plain = path.removeprefix(ctx.paths.root)
                differing.setdefault(plain, []).append(uuid)
    return differing


def _checksums(ctx: Context) -> dict[str, str]:
    """Return the expected files of the master: path -> checksum."""
    store = SimpleStore(ctx.paths)
    return {
        store.path(key): hashlib.sha1(data, usedforsecurity=False).hexdigest()
        for key, data in _encoded(ctx)[0].items()
    }


def _encoded(ctx: Context) -> tuple[dict[str, bytes], list[str]]:
    """Return the content of each file, and why others can have none."""
    contents, problems = {}, []
    for key, value in config.ssconf_values(ctx.snapshot).items():
        try:
            contents[key] = writer.encode(key, value)
        except errors.ConfigurationError as err:
            problems.append(str(err))
    return contents, problems
