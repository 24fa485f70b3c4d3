"""OP_TAGS_SET and OP_TAGS_DEL: add and remove tags of one object."""

from typing import Any, TypeVar

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.model import opcodes
from ganeti.operations.base import LogicalUnit
from ganeti.operations.tags import target

C = TypeVar("C", opcodes.TagsSet, opcodes.TagsDel)


class _TagsChange(LogicalUnit[C]):
    """Base of both units."""

    def check_arguments(self) -> None:
        """Check name and tags."""
        target.check_name(self.op.kind, self.op.name)
        for tag in self.op.tags:
            target.check_tag(tag)

    def expand_names(self) -> None:
        """Look the object up and lock it."""
        snapshot = self.ctx.snapshot
        self.uuid = target.find_uuid(snapshot, self.op.kind, self.op.name)
        target.declare(self.locks, snapshot, self.op.kind, self.uuid)

    def check_prereq(self) -> None:
        """Check that the object still exists and that the new tags are possible."""
        record = target.record(self.ctx.snapshot, self.op.kind, self.uuid)
        self.changed(record)

    def changed(self, record: target.Tagged) -> tuple[str, ...]:
        """Return the new tags, sorted. Raises TagError or OpPrereqError."""
        raise errors.ProgrammerError(
            f"{type(self).__name__}: {record}: no implementation"
        )

    def execute(self) -> None:
        """Apply the change to the current tags and commit it."""
        with self.ctx.config.edit(self.ctx.owner) as edit:
            record = target.record(edit.snapshot, self.op.kind, self.uuid)
            changed: Any = record.replace(tags=self.changed(record))
            edit.update(changed)


class TagsSet(_TagsChange[opcodes.TagsSet]):
    """Unit that adds tags; existing ones stay."""

    def changed(self, record: target.Tagged) -> tuple[str, ...]:
        """Return old and new tags together."""
        combined = set(record.tags) | set(self.op.tags)
        target.check_count(len(combined))
        return tuple(sorted(combined))


class TagsDel(_TagsChange[opcodes.TagsDel]):
    """Unit that removes tags, all or none."""

    def changed(self, record: target.Tagged) -> tuple[str, ...]:
        """Return the remaining tags."""
        missing = sorted(set(self.op.tags) - set(record.tags))
        if missing:
            names = ", ".join(missing)
            raise errors.OpPrereqError(f"tag(s) not found: {names}", ecodes.ECODE_NOENT)
        return tuple(sorted(set(record.tags) - set(self.op.tags)))
