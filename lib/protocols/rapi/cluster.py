"""Methods of the cluster: settings, tags, queries and filter rules."""

from collections.abc import Iterable, Sequence
from typing import Any

from ganeti.protocols.rapi.base import Base, arguments, changes, part


class ClusterMethods(Base):
    """Settings, tags, queries and filter rules."""

    def GetVersion(self) -> int:
        """Return the version of the API."""
        version: int = self._SendRequest("GET", "/version", None, None)
        return version

    def GetOperatingSystems(self, reason: str | None = None) -> list[str]:
        """Return the operating systems, one per variant."""
        names: list[str] = self._get("/os", arguments(reason=reason))
        return names

    def GetInfo(self, reason: str | None = None) -> dict[str, Any]:
        """Return the settings of the cluster."""
        info: dict[str, Any] = self._get("/info", arguments(reason=reason))
        return info

    def RedistributeConfig(self, reason: str | None = None) -> Any:
        """Send the configuration to all nodes again; return the job id."""
        return self._put("/redistribute-config", arguments(reason=reason))

    def ModifyCluster(self, reason: str | None = None, **kwargs: Any) -> Any:
        """Modify settings of the cluster; return the job id.

        Args:
            reason: see the class.
            kwargs: parameters of the opcode ``OP_CLUSTER_SET_PARAMS``.
        """
        return self._put("/modify", arguments(reason=reason), kwargs)

    def GetClusterTags(self, reason: str | None = None) -> list[str]:
        """Return the tags of the cluster."""
        tags: list[str] = self._get("/tags", arguments(reason=reason))
        return tags

    def AddClusterTags(
        self, tags: Iterable[str], dry_run: bool = False, reason: str | None = None
    ) -> Any:
        """Add tags to the cluster; return the job id."""
        return self._tags(self._put, "", tags, *changes(dry_run, reason))

    def DeleteClusterTags(
        self, tags: Iterable[str], dry_run: bool = False, reason: str | None = None
    ) -> Any:
        """Remove tags of the cluster; return the job id."""
        return self._tags(self._delete, "", tags, *changes(dry_run, reason))

    def Query(
        self,
        what: str,
        fields: Sequence[str],
        qfilter: Any = None,
        reason: str | None = None,
    ) -> dict[str, Any]:
        """Query objects.

        Args:
            what: kind of object, such as ``instance``.
            fields: their names.
            qfilter: filter in its JSON form; None for all objects.
            reason: see the class.

        Returns:
            ``fields``: their definitions; ``data``: rows of status and value.
        """
        body = {"fields": list(fields)}
        if qfilter is not None:
            # The older name too: earlier servers know only that one.
            body["qfilter"] = body["filter"] = qfilter
        path = f"/query/{part(what)}"
        answer: dict[str, Any] = self._put(path, arguments(reason=reason), body)
        return answer

    def QueryFields(
        self,
        what: str,
        fields: Sequence[str] | None = None,
        reason: str | None = None,
    ) -> dict[str, Any]:
        """Return the definitions of query fields, of all fields by default."""
        query = arguments(reason=reason)
        if fields is not None:
            query.append(("fields", ",".join(fields)))
        answer: dict[str, Any] = self._get(f"/query/{part(what)}/fields", query)
        return answer

    def GetFilters(self, bulk: bool = False) -> list[Any]:
        """Return the UUIDs of the filter rules of the job queue, or the rules."""
        answer: list[Any] = self._list("/filters", "uuid", bulk)
        return answer

    def GetFilter(self, filter_uuid: str) -> dict[str, Any]:
        """Return a filter rule."""
        rule: dict[str, Any] = self._get(f"/filters/{part(filter_uuid)}")
        return rule

    def AddFilter(
        self, priority: int, predicates: Any, action: Any, reason_trail: Any = None
    ) -> str:
        """Add a filter rule; return its UUID.

        Args:
            priority: rules of smaller numbers come first.
            predicates: conditions that must all hold.
            action: ``ACCEPT``, ``PAUSE``, ``REJECT``, ``CONTINUE`` or a rate limit.
            reason_trail: entries of source, text and nanoseconds.
        """
        body = _rule(priority, predicates, action, reason_trail)
        uuid: str = self._post("/filters", [], body)
        return uuid

    def ReplaceFilter(
        self,
        uuid: str,
        priority: int,
        predicates: Any,
        action: Any,
        reason_trail: Any = None,
    ) -> str:
        """Replace or create a filter rule; see `AddFilter`. Return its UUID."""
        body = _rule(priority, predicates, action, reason_trail)
        same: str = self._put(f"/filters/{part(uuid)}", [], body)
        return same

    def DeleteFilter(self, uuid: str) -> None:
        """Remove a filter rule."""
        self._delete(f"/filters/{part(uuid)}", [])


def _rule(
    priority: int, predicates: Any, action: Any, reason_trail: Any
) -> dict[str, Any]:
    """Return the body of a filter rule."""
    return {
        "priority": priority,
        "predicates": predicates,
        "action": action,
        "reason": [] if reason_trail is None else reason_trail,
    }
