"""The permitted callers: digests of the certificates of master candidates.

Each candidate has an entry under its UUID. While its certificate is renewed it has a
second one, with the suffix `ssh.CRYPTO_NEXT`: nodes accept both.
"""

from collections.abc import Collection, Mapping
from typing import Final

from ganeti.master import config
from ganeti.operations import ancillary_files
from ganeti.operations.base import Context

_LISTED: Final = "master_candidates_certs"


def record(
    ctx: Context, digests: Mapping[str, str], drop: Collection[str] = ()
) -> None:
    """Add entries to the configuration, and remove others, in one commit.

    Args:
        ctx: dependencies of the opcode.
        digests: digest by key, which is a node's UUID with or without the suffix.
        drop: keys to remove; missing ones are ignored.
    """

    def changed(present: Mapping[str, str]) -> dict[str, str]:
        return {k: v for k, v in {**present, **digests}.items() if k not in drop}

    present = ctx.snapshot.cluster.candidate_certs
    if changed(present) == present:
        return
    with ctx.config.edit(ctx.owner) as edit:
        certs = changed(edit.snapshot.cluster.candidate_certs)
        edit.update_cluster(candidate_certs=certs)


def send(ctx: Context) -> dict[str, str]:
    """Write the list to all online nodes; return node name -> problem."""
    snapshot = ctx.snapshot
    online = sorted(uuid for uuid, node in snapshot.nodes.items() if not node.offline)
    listed = config.ssconf_values(snapshot)[_LISTED]
    answers = ancillary_files.write_ssconf(ctx, online, {_LISTED: listed})
    return {
        snapshot.nodes[uuid].name: str(answer.fail_msg)
        for uuid, answer in answers.items()
        if answer.failed
    }
