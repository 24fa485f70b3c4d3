"""The first content of a new cluster's configuration."""

from ganeti import errors
from ganeti.config.edit import new_records
from ganeti.objects import Cluster, Node, NodeGroup, Update


def initial_changes(cluster: Cluster, group: NodeGroup, node: Node) -> list[Update]:
    """Return the changes that make a new cluster out of an empty store.

    Args:
        cluster: complete record; serial and times are taken as they are.
        group: the first node group.
        node: the first node, which is the master.

    Raises:
        ConfigurationError: the records do not belong together.
    """
    for what, expected, actual in (
        ("cluster.master_node", node.uuid, cluster.master_node),
        ("node.group", group.uuid, node.group),
        ("node.master_candidate", True, node.master_candidate),
    ):
        if expected != actual:
            raise errors.ConfigurationError(
                f"new cluster: {what} should be {expected}, found {actual}"
            )
    return new_records([cluster, group.replace(members=()), node])
