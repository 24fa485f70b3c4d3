"""The object of a tag operation, and the rules for tags."""

import re
from typing import Final

from ganeti.base import errors
from ganeti.base.constants import ecodes, tags
from ganeti.master.locking import Level
from ganeti.model import objects
from ganeti.model.objects import lookup
from ganeti.operations.base import LockRequest

_VALID: Final = re.compile(r"[\w.+*/:@-]+")
#: kind -> table and lock level
_KINDS: Final = {
    tags.TAG_NODE: ("nodes", Level.NODE),
    tags.TAG_INSTANCE: ("instances", Level.INSTANCE),
    tags.TAG_NODEGROUP: ("nodegroups", Level.NODEGROUP),
    tags.TAG_NETWORK: ("networks", Level.NETWORK),
}
Tagged = (
    objects.Cluster
    | objects.Node
    | objects.Instance
    | objects.NodeGroup
    | objects.Network
)


def check_name(kind: str, name: str | None) -> None:
    """Check that a name is given exactly where there is more than one object.

    Raises:
        OpPrereqError: a name for the cluster, or no name for another object.
    """
    if kind == tags.TAG_CLUSTER:
        if name:
            raise errors.OpPrereqError(
                f"tags of the cluster: wanted no name, found {name!r}",
                ecodes.ECODE_INVAL,
            )
    elif not name:
        raise errors.OpPrereqError(
            f"tags of a {kind}: wanted a name, found none", ecodes.ECODE_INVAL
        )


def check_tag(tag: str) -> None:
    """Check one tag.

    Raises:
        TagError: it is empty, too long, or has characters that are not allowed.
    """
    if not tag:
        raise errors.TagError("tags cannot be empty")
    if len(tag) > tags.MAX_TAG_LEN:
        raise errors.TagError(
            f"tag too long: at most {tags.MAX_TAG_LEN} characters, found {len(tag)}"
        )
    if not _VALID.fullmatch(tag):
        raise errors.TagError(
            f"tag {tag!r} contains invalid characters: wanted letters, digits and"
            " _ . + * / : @ -"
        )


def find_uuid(snapshot: objects.Snapshot, kind: str, name: str | None) -> str:
    """Return the uuid of the object, empty for the cluster.

    Raises:
        OpPrereqError: there is no such object.
    """
    if kind == tags.TAG_CLUSTER:
        return ""
    find = {
        tags.TAG_NODE: lookup.expand_node,
        tags.TAG_INSTANCE: lookup.expand_instance,
        tags.TAG_NODEGROUP: lookup.expand_group,
        tags.TAG_NETWORK: lookup.expand_network,
    }[kind]
    return find(snapshot, name or "")


def record(snapshot: objects.Snapshot, kind: str, uuid: str) -> Tagged:
    """Return the tagged object.

    Raises:
        OpPrereqError: it was removed.
    """
    if kind == tags.TAG_CLUSTER:
        return snapshot.cluster
    tagged: Tagged | None = snapshot.table(_KINDS[kind][0]).get(uuid)
    if tagged is None:
        raise errors.OpPrereqError(
            f"{kind} {uuid}: was removed while the job waited for locks",
            ecodes.ECODE_NOENT,
        )
    return tagged


def declare(
    request: LockRequest, snapshot: objects.Snapshot, kind: str, uuid: str
) -> None:
    """Declare the lock of the object; the cluster has none."""
    if kind == tags.TAG_CLUSTER:
        return
    level = _KINDS[kind][1]
    name = snapshot.instances[uuid].name if level is Level.INSTANCE else uuid
    request.names[level] = [name or uuid]


def check_count(count: int) -> None:
    """Refuse too many tags of one object.

    Raises:
        TagError: there are too many.
    """
    if count > tags.MAX_TAGS_PER_OBJ:
        raise errors.TagError(
            f"too many tags: at most {tags.MAX_TAGS_PER_OBJ} per object, wanted {count}"
        )
