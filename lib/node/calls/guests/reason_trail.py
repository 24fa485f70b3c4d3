"""Reason trails of instances: why each was last started, stopped or rebooted."""

import os

from ganeti.base.filesystem import files
from ganeti.base.pathutils import Paths
from ganeti.model import serializer
from ganeti.node.calls.registry import LocalNode
from ganeti.node.hypervisor.base import check_instance_name

#: First word of the entry that a node adds to the trail.
_SOURCE = "gnt:daemon:noded"


def directory(paths: Paths) -> str:
    """Return the directory of the trails."""
    return f"{paths.run_dir}/instance-reason"


def reason_file(node: LocalNode, instance: str) -> str:
    """Return the path of an instance's reason trail."""
    return f"{directory(node.paths)}/{check_instance_name(instance)}"


def store(
    node: LocalNode, instance: str, action: str, trail: list[tuple[str, str, int]]
) -> None:
    """Write the reason trail of an action, with this node as the last entry."""
    path = reason_file(node, instance)
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    stamp = int(node.clock.time() * 1_000_000_000)
    entries = [*trail, (f"{_SOURCE}:{action}", "", stamp)]
    files.write_file(path, serializer.dump(entries), mode=0o644)
