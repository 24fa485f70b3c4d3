"""Methods of node groups."""

from collections.abc import Iterable, Sequence
from typing import Any

from ganeti.protocols.rapi.base import Base, arguments, changes, part


def path_of(group: str, rest: str = "") -> str:
    """Return the path of a node group, or of a resource below it."""
    return f"/groups/{part(group)}{rest}"


class GroupMethods(Base):
    """Lists, creation, modification, removal and tags."""

    def GetGroups(self, bulk: bool = False, reason: str | None = None) -> list[Any]:
        """Return the names of all node groups, or whole objects."""
        answer: list[Any] = self._list("/groups", "name", bulk, reason)
        return answer

    def GetGroup(self, group: str, reason: str | None = None) -> dict[str, Any]:
        """Return a node group."""
        answer: dict[str, Any] = self._get(path_of(group), arguments(reason=reason))
        return answer

    def CreateGroup(
        self,
        name: str,
        alloc_policy: str | None = None,
        dry_run: bool = False,
        reason: str | None = None,
    ) -> Any:
        """Create a node group; return the job id.

        Args:
            name: of the group.
            alloc_policy: ``preferred``, ``last_resort`` or ``unallocable``.
            dry_run: see the class.
            reason: see the class.
        """
        body = {"name": name, "alloc_policy": alloc_policy}
        return self._post("/groups", changes(dry_run, reason), body)

    def ModifyGroup(self, group: str, reason: str | None = None, **kwargs: Any) -> Any:
        """Modify a node group; return the job id.

        Args:
            group: its name.
            reason: see the class.
            kwargs: parameters of the opcode ``OP_GROUP_SET_PARAMS``.
        """
        return self._put(path_of(group, "/modify"), arguments(reason=reason), kwargs)

    def DeleteGroup(
        self, group: str, dry_run: bool = False, reason: str | None = None
    ) -> Any:
        """Remove a node group; return the job id."""
        return self._delete(path_of(group), changes(dry_run, reason))

    def RenameGroup(self, group: str, new_name: str, reason: str | None = None) -> Any:
        """Rename a node group; return the job id."""
        body = {"new_name": new_name}
        return self._put(path_of(group, "/rename"), arguments(reason=reason), body)

    def AssignGroupNodes(
        self,
        group: str,
        nodes: Sequence[str],
        force: bool = False,
        dry_run: bool = False,
        reason: str | None = None,
    ) -> Any:
        """Assign nodes to a node group; return the job id.

        Args:
            group: its name.
            nodes: their names.
            force: assign even if instances become split between groups.
            dry_run: see the class.
            reason: see the class.
        """
        query = arguments(("force", force), ("dry-run", dry_run), reason=reason)
        return self._put(path_of(group, "/assign-nodes"), query, {"nodes": nodes})

    def GetGroupTags(self, group: str, reason: str | None = None) -> list[str]:
        """Return the tags of a node group."""
        tags: list[str] = self._get(path_of(group, "/tags"), arguments(reason=reason))
        return tags

    def AddGroupTags(
        self,
        group: str,
        tags: Iterable[str],
        dry_run: bool = False,
        reason: str | None = None,
    ) -> Any:
        """Add tags to a node group; return the job id."""
        return self._tags(self._put, path_of(group), tags, *changes(dry_run, reason))

    def DeleteGroupTags(
        self,
        group: str,
        tags: Iterable[str],
        dry_run: bool = False,
        reason: str | None = None,
    ) -> Any:
        """Remove tags of a node group; return the job id."""
        more = changes(dry_run, reason)
        return self._tags(self._delete, path_of(group), tags, *more)
