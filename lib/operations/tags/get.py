"""OP_TAGS_GET: the tags of one object."""

from ganeti.model import opcodes
from ganeti.operations.base import LogicalUnit
from ganeti.operations.tags import target


class TagsGet(LogicalUnit[opcodes.TagsGet]):
    """Unit that lists tags, sorted."""

    READS_ONLY = True

    def check_arguments(self) -> None:
        """Check that a name is given if one is needed."""
        target.check_name(self.op.kind, self.op.name)

    def expand_names(self) -> None:
        """Look the object up; lock it shared if requested."""
        snapshot = self.ctx.snapshot
        self.uuid = target.find_uuid(snapshot, self.op.kind, self.op.name)
        if self.op.use_locking:
            target.declare(self.locks, snapshot, self.op.kind, self.uuid)
            self.locks.shared.update(self.locks.names)

    def check_prereq(self) -> None:
        """Check that the object still exists."""
        self.target = target.record(self.ctx.snapshot, self.op.kind, self.uuid)

    def execute(self) -> list[str]:
        """Return the tags."""
        return sorted(self.target.tags)
