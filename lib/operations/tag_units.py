"""OP_TAGS_*: read, search and change the tags of objects."""

import re
from collections.abc import Iterator
from typing import Any, Final, TypeVar

from ganeti.base import errors
from ganeti.base.constants import ecodes, misc
from ganeti.base.errors import refusal
from ganeti.base.text import patterns
from ganeti.master.locking import Level
from ganeti.model import objects, opcodes
from ganeti.model.objects import lookup
from ganeti.operations.base import LockRequest, LogicalUnit

_TAG_CLUSTER: Final = "cluster"
_TAG_NODEGROUP: Final = "nodegroup"
_TAG_NODE: Final = "node"
_TAG_INSTANCE: Final = "instance"
_TAG_NETWORK: Final = "network"

_VALID: Final = re.compile(r"[\w.+*/:@-]+")
#: kind -> table and lock level
_KINDS: Final = {
    _TAG_NODE: ("nodes", Level.NODE),
    _TAG_INSTANCE: ("instances", Level.INSTANCE),
    _TAG_NODEGROUP: ("nodegroups", Level.NODEGROUP),
    _TAG_NETWORK: ("networks", Level.NETWORK),
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
    if kind == _TAG_CLUSTER:
        if name:
            raise refusal(f"tags of the cluster: wanted no name, found {name!r}")
    elif not name:
        raise refusal(f"tags of a {kind}: wanted a name, found none")


def check_tag(tag: str) -> None:
    """Check one tag.

    Raises:
        TagError: it is empty, too long, or has characters that are not allowed.
    """
    if not tag:
        raise errors.TagError("tags cannot be empty")
    if len(tag) > misc.MAX_TAG_LEN:
        raise errors.TagError(
            f"tag too long: at most {misc.MAX_TAG_LEN} characters, found {len(tag)}"
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
    if kind == _TAG_CLUSTER:
        return ""
    find = {
        _TAG_NODE: lookup.expand_node,
        _TAG_INSTANCE: lookup.expand_instance,
        _TAG_NODEGROUP: lookup.expand_group,
        _TAG_NETWORK: lookup.expand_network,
    }[kind]
    return find(snapshot, name or "")


def tagged_object(snapshot: objects.Snapshot, kind: str, uuid: str) -> Tagged:
    """Return the tagged object.

    Raises:
        OpPrereqError: it was removed.
    """
    if kind == _TAG_CLUSTER:
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
    if kind == _TAG_CLUSTER:
        return
    level = _KINDS[kind][1]
    name = snapshot.instances[uuid].name if level is Level.INSTANCE else uuid
    request.names[level] = [name or uuid]


def check_count(count: int) -> None:
    """Refuse too many tags of one object.

    Raises:
        TagError: there are too many.
    """
    if count > misc.MAX_TAGS_PER_OBJ:
        raise errors.TagError(
            f"too many tags: at most {misc.MAX_TAGS_PER_OBJ} per object, wanted {count}"
        )


class TagsSearch(LogicalUnit[opcodes.TagsSearch]):
    """Unit that searches all objects; the expression may match anywhere in a tag."""

    READS_ONLY = True

    def check_arguments(self) -> None:
        """Check the expression."""
        try:
            self.pattern = patterns.compile_(self.op.pattern)
        except errors.ParseError as err:
            raise self.prereq(f"pattern: {err}") from err

    def execute(self) -> list[tuple[str, str]]:
        """Return (object path, tag), sorted."""
        return sorted(
            (path, tag)
            for path, tags in _tagged(self.ctx.snapshot)
            for tag in tags
            if self.pattern.search(tag)
        )


def _tagged(snapshot: objects.Snapshot) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield "/cluster", snapshot.cluster.tags
    for path, rows in (
        ("/instances", snapshot.instances),
        ("/nodes", snapshot.nodes),
        ("/nodegroup", snapshot.nodegroups),
        ("/network", snapshot.networks),
    ):
        for item in rows.values():
            yield f"{path}/{item.name}", item.tags


class TagsGet(LogicalUnit[opcodes.TagsGet]):
    """Unit that lists tags, sorted."""

    READS_ONLY = True

    def check_arguments(self) -> None:
        """Check that a name is given if one is needed."""
        check_name(self.op.kind, self.op.name)

    def expand_names(self) -> None:
        """Look the object up; lock it shared if requested."""
        snapshot = self.ctx.snapshot
        self.uuid = find_uuid(snapshot, self.op.kind, self.op.name)
        if self.op.use_locking:
            declare(self.locks, snapshot, self.op.kind, self.uuid)
            self.locks.shared.update(self.locks.names)

    def check_prereq(self) -> None:
        """Check that the object still exists."""
        self.target = tagged_object(self.ctx.snapshot, self.op.kind, self.uuid)

    def execute(self) -> list[str]:
        """Return the tags."""
        return sorted(self.target.tags)


C = TypeVar("C", opcodes.TagsSet, opcodes.TagsDel)


class _TagsChange(LogicalUnit[C]):
    """Base of both units."""

    def check_arguments(self) -> None:
        """Check name and tags."""
        check_name(self.op.kind, self.op.name)
        for tag in self.op.tags:
            check_tag(tag)

    def expand_names(self) -> None:
        """Look the object up and lock it."""
        snapshot = self.ctx.snapshot
        self.uuid = find_uuid(snapshot, self.op.kind, self.op.name)
        declare(self.locks, snapshot, self.op.kind, self.uuid)

    def check_prereq(self) -> None:
        """Check that the object still exists and that the new tags are possible."""
        record = tagged_object(self.ctx.snapshot, self.op.kind, self.uuid)
        self.changed(record)

    def changed(self, record: Tagged) -> tuple[str, ...]:
        """Return the new tags, sorted. Raises TagError or OpPrereqError."""
        raise errors.ProgrammerError(
            f"{type(self).__name__}: {record}: no implementation"
        )

    def execute(self) -> None:
        """Apply the change to the current tags and commit it."""
        with self.ctx.config.edit(self.ctx.owner) as edit:
            record = tagged_object(edit.snapshot, self.op.kind, self.uuid)
            changed: Any = record.replace(tags=self.changed(record))
            edit.update(changed)


class TagsSet(_TagsChange[opcodes.TagsSet]):
    """Unit that adds tags; existing ones stay."""

    def changed(self, record: Tagged) -> tuple[str, ...]:
        """Return old and new tags together."""
        combined = set(record.tags) | set(self.op.tags)
        check_count(len(combined))
        return tuple(sorted(combined))


class TagsDel(_TagsChange[opcodes.TagsDel]):
    """Unit that removes tags, all or none."""

    def changed(self, record: Tagged) -> tuple[str, ...]:
        """Return the remaining tags."""
        missing = sorted(set(self.op.tags) - set(record.tags))
        if missing:
            names = ", ".join(missing)
            raise errors.OpPrereqError(f"tag(s) not found: {names}", ecodes.ECODE_NOENT)
        return tuple(sorted(set(record.tags) - set(self.op.tags)))
