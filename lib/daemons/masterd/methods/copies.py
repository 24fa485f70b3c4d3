"""LUXI method about the copies on master candidates; not in Ganeti."""

from typing import Any

from ganeti.daemons.masterd.deps import MasterDeps
from ganeti.daemons.masterd.methods.calls import Later, method
from ganeti.store import choice


@method("QueryCopies")
def query_copies(deps: MasterDeps) -> dict[str, Any] | Later:
    """Return how the master acknowledges changes, and which candidates have them.

    Keys: ``policy``, ``revision`` (of the master), ``term``, ``warning`` (empty while
    a majority has the newest changes), ``copies``: a list by name of ``name``,
    ``is_current``, ``revision`` (-1 if none is known), ``lag`` (in revisions),
    ``trouble`` and ``wants_restart`` (it refuses the master's term, and a restart of
    the master daemon takes one that it accepts); ``confd``: how candidates answer
    queries of their copies, ``hmac`` and ``detect_replays``; and ``store``: ``file``,
    or the address of a store in etcd. Its servers have the copies that count; the list
    shows the files that follow them.
    """
    if choice.is_etcd(deps.paths):
        return Later(deps.slow.submit(_describe, deps))
    return _describe(deps)


def _describe(deps: MasterDeps) -> dict[str, Any]:
    snapshot = deps.config.snapshot()
    copies = [
        {
            "name": snapshot.nodes[uuid].name,
            "is_current": copy.is_current,
            "revision": copy.revision,
            "lag": max(0, snapshot.revision - max(copy.revision, 0)),
            "trouble": copy.trouble,
            "wants_restart": copy.wants_restart,
        }
        for uuid, copy in deps.copies().items()
        if uuid in snapshot.nodes
    ]
    return {
        "policy": snapshot.cluster.commit_policy,
        "revision": snapshot.revision,
        "term": str(deps.store.term),
        "warning": deps.store.exposure(),
        "store": choice.describe(deps.paths),
        "confd": {
            "hmac": snapshot.cluster.confd_hmac,
            "detect_replays": snapshot.cluster.confd_detect_replays,
        },
        "copies": sorted(copies, key=lambda row: str(row["name"])),
    }
