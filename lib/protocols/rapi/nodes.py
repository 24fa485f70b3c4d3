"""Methods of nodes."""

from collections.abc import Iterable
from typing import Any

from ganeti.protocols.rapi import names
from ganeti.protocols.rapi.base import Base, arguments, changes, given, part
from ganeti.protocols.rapi.failures import GanetiApiError


def path_of(node: str, rest: str = "") -> str:
    """Return the path of a node, or of a resource below it."""
    return f"/nodes/{part(node)}{rest}"


class NodeMethods(Base):
    """Lists, roles, evacuation, storage units and tags."""

    def GetNodes(self, bulk: bool = False, reason: str | None = None) -> list[Any]:
        """Return the names of all nodes, or whole objects."""
        answer: list[Any] = self._list("/nodes", "id", bulk, reason)
        return answer

    def GetNode(self, node: str, reason: str | None = None) -> dict[str, Any]:
        """Return a node."""
        answer: dict[str, Any] = self._get(path_of(node), arguments(reason=reason))
        return answer

    def EvacuateNode(
        self,
        node: str,
        iallocator: str | None = None,
        remote_node: str | None = None,
        dry_run: bool = False,
        early_release: bool | None = None,
        mode: str | None = None,
        accept_old: bool = False,
        reason: str | None = None,
    ) -> Any:
        """Move instances away from a node.

        Args:
            node: its name.
            iallocator: allocator that chooses the other nodes.
            remote_node: new secondary node; give one of the two.
            dry_run: see the class.
            early_release: drop locks before old disks are removed.
            mode: one of the constants ``NODE_EVAC_*``.
            accept_old: accept the result of servers before 2.5.
            reason: see the class.

        Returns:
            the id of a job whose result lists further jobs; of old servers a list of
            job id, instance and new node.

        Raises:
            GanetiApiError: an old server that was not accepted or cannot use ``mode``.
        """
        if iallocator and remote_node:
            raise GanetiApiError("give either an allocator or a node, not both")
        query = changes(dry_run, reason)
        path = path_of(node, "/evacuate")
        if names.NODE_EVAC_RES1 in self.GetFeatures():
            body = given(
                mode=mode,
                iallocator=iallocator,
                remote_node=remote_node,
                early_release=early_release,
            )
            return self._post(path, query, body)
        if not accept_old:
            raise GanetiApiError(
                "the server evacuates nodes in the form before version 2.5, and the"
                " caller does not accept that"
            )
        if mode is not None and mode != names.NODE_EVAC_SEC:
            raise GanetiApiError("the server can only evacuate secondary instances")
        if iallocator:
            query.append(("iallocator", iallocator))
        if remote_node:
            query.append(("remote_node", remote_node))
        if early_release:
            query.append(("early_release", 1))
        return self._post(path, query)

    def MigrateNode(
        self,
        node: str,
        mode: str | None = None,
        dry_run: bool = False,
        iallocator: str | None = None,
        target_node: str | None = None,
        reason: str | None = None,
    ) -> Any:
        """Migrate all primary instances of a node; return the job id.

        Args:
            node: its name.
            mode: ``live`` or ``non-live``.
            dry_run: see the class.
            iallocator: allocator that chooses the other nodes.
            target_node: node of instances whose disks are on shared storage.
            reason: see the class.

        Raises:
            GanetiApiError: the server cannot use ``target_node``.
        """
        query = changes(dry_run, reason)
        path = path_of(node, "/migrate")
        if names.NODE_MIGRATE_REQV1 in self.GetFeatures():
            body = given(mode=mode, iallocator=iallocator, target_node=target_node)
            return self._post(path, query, body)
        if target_node is not None:
            raise GanetiApiError("the server cannot migrate to a chosen node")
        if mode is not None:
            query.append(("mode", mode))
        return self._post(path, query)

    def GetNodeRole(self, node: str, reason: str | None = None) -> str:
        """Return the role of a node, one of the constants ``NODE_ROLE_*``."""
        role: str = self._get(path_of(node, "/role"), arguments(reason=reason))
        return role

    def SetNodeRole(
        self,
        node: str,
        role: str,
        force: bool = False,
        auto_promote: bool | None = None,
        reason: str | None = None,
    ) -> Any:
        """Change the role of a node; return the job id.

        Args:
            node: its name.
            role: one of the constants ``NODE_ROLE_*``, not the master.
            force: skip some safety checks.
            auto_promote: promote other nodes if necessary.
            reason: see the class.
        """
        query = arguments(("force", force), reason=reason)
        if auto_promote is not None:
            query.append(("auto-promote", auto_promote))
        return self._put(path_of(node, "/role"), query, role)

    def PowercycleNode(
        self, node: str, force: bool = False, reason: str | None = None
    ) -> Any:
        """Power-cycle a node; return the job id."""
        query = arguments(("force", force), reason=reason)
        return self._post(path_of(node, "/powercycle"), query)

    def ModifyNode(self, node: str, reason: str | None = None, **kwargs: Any) -> Any:
        """Modify a node; return the job id.

        Args:
            node: its name.
            reason: see the class.
            kwargs: parameters of the opcode ``OP_NODE_SET_PARAMS``.
        """
        return self._post(path_of(node, "/modify"), arguments(reason=reason), kwargs)

    def GetNodeStorageUnits(
        self,
        node: str,
        storage_type: str,
        output_fields: str,
        reason: str | None = None,
    ) -> Any:
        """Return the id of a job that lists storage units of a node.

        Args:
            node: its name.
            storage_type: such as ``lvm-vg``.
            output_fields: names with commas between them.
            reason: see the class.
        """
        query = [
            ("storage_type", storage_type),
            ("output_fields", output_fields),
            *arguments(reason=reason),
        ]
        return self._get(path_of(node, "/storage"), query)

    def ModifyNodeStorageUnits(
        self,
        node: str,
        storage_type: str,
        name: str,
        allocatable: bool | None = None,
        reason: str | None = None,
    ) -> Any:
        """Modify a storage unit of a node; return the job id.

        Args:
            node: its name.
            storage_type: such as ``lvm-pv``.
            name: of the unit.
            allocatable: whether new disks may use it.
            reason: see the class.
        """
        query = [("storage_type", storage_type), ("name", name)]
        if allocatable is not None:
            query.append(("allocatable", str(int(allocatable))))
        query += arguments(reason=reason)
        return self._put(path_of(node, "/storage/modify"), query)

    def RepairNodeStorageUnits(
        self, node: str, storage_type: str, name: str, reason: str | None = None
    ) -> Any:
        """Repair a storage unit of a node; return the job id."""
        query = [("storage_type", storage_type), ("name", name)]
        query += arguments(reason=reason)
        return self._put(path_of(node, "/storage/repair"), query)

    def GetNodeTags(self, node: str, reason: str | None = None) -> list[str]:
        """Return the tags of a node."""
        tags: list[str] = self._get(path_of(node, "/tags"), arguments(reason=reason))
        return tags

    def AddNodeTags(
        self,
        node: str,
        tags: Iterable[str],
        dry_run: bool = False,
        reason: str | None = None,
    ) -> Any:
        """Add tags to a node; return the job id."""
        return self._tags(self._put, path_of(node), tags, *changes(dry_run, reason))

    def DeleteNodeTags(
        self,
        node: str,
        tags: Iterable[str],
        dry_run: bool = False,
        reason: str | None = None,
    ) -> Any:
        """Remove tags of a node; return the job id."""
        return self._tags(self._delete, path_of(node), tags, *changes(dry_run, reason))
