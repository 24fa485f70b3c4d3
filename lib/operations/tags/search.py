"""OP_TAGS_SEARCH: all objects with a tag that matches."""

from collections.abc import Iterator

from ganeti.base import errors
from ganeti.base.text import patterns
from ganeti.model import objects, opcodes
from ganeti.operations.base import LogicalUnit


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
