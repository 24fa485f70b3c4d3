"""Methods of instances: lists, creation, modification, removal and tags."""

from collections.abc import Iterable, Sequence
from typing import Any

from ganeti.protocols.rapi import names
from ganeti.protocols.rapi.base import Base, arguments, changes, given, part
from ganeti.protocols.rapi.failures import GanetiApiError


def path_of(instance: str, rest: str = "") -> str:
    """Return the path of an instance, or of a resource below it."""
    return f"/instances/{part(instance)}{rest}"


class InstanceMethods(Base):
    """Lists, creation, modification, removal and tags."""

    def GetInstances(self, bulk: bool = False, reason: str | None = None) -> list[Any]:
        """Return the names of all instances, or whole objects."""
        answer: list[Any] = self._list("/instances", "id", bulk, reason)
        return answer

    def GetInstance(self, instance: str, reason: str | None = None) -> dict[str, Any]:
        """Return an instance."""
        answer: dict[str, Any] = self._get(path_of(instance), arguments(reason=reason))
        return answer

    def GetInstanceInfo(
        self, instance: str, static: bool | None = None, reason: str | None = None
    ) -> Any:
        """Return the id of a job that collects details of an instance.

        Args:
            instance: its name.
            static: use the configuration only, and do not ask the nodes.
            reason: see the class.
        """
        query = [] if static is None else [("static", static)]
        query += arguments(reason=reason)
        return self._get(path_of(instance, "/info"), query)

    def GetInstanceConsole(
        self, instance: str, reason: str | None = None
    ) -> dict[str, Any]:
        """Return how to reach the console of a running instance."""
        path = path_of(instance, "/console")
        answer: dict[str, Any] = self._get(path, arguments(reason=reason))
        return answer

    def InstanceAllocation(
        self,
        mode: str,
        name: str,
        disk_template: str,
        disks: Sequence[Any],
        nics: Sequence[Any],
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Return one instance for `InstancesMultiAlloc`; see `CreateInstance`."""
        return {
            **kwargs,
            "mode": mode,
            "name": name,
            "disk_template": disk_template,
            "disks": disks,
            "nics": nics,
        }

    def InstancesMultiAlloc(
        self,
        instances: Sequence[dict[str, Any]],
        reason: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Create several instances with one run of an allocator; return the job id.

        Args:
            instances: results of `InstanceAllocation`.
            reason: see the class.
            kwargs: further parameters of the opcode; ``dry_run`` only checks.
        """
        query = changes(kwargs.pop("dry_run", False), reason)
        body = {**kwargs, "instances": list(instances)}
        return self._post("/instances-multi-alloc", query, body)

    def CreateInstance(
        self,
        mode: str,
        name: str,
        disk_template: str,
        disks: Sequence[Any],
        nics: Sequence[Any],
        reason: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Create an instance; return the job id.

        Args:
            mode: ``create``, ``import`` or ``remote-import``.
            name: of the instance.
            disk_template: such as ``drbd``.
            disks: objects with ``size`` in MiB.
            nics: objects with parameters of NICs.
            reason: see the class.
            kwargs: further parameters of the opcode; ``dry_run`` only checks.

        Raises:
            GanetiApiError: the server knows only the first form of requests.
        """
        if names.INST_CREATE_REQV1 not in self.GetFeatures():
            raise GanetiApiError(
                "the server does not support version 1 of requests to create instances"
            )
        query = changes(kwargs.pop("dry_run", False), reason)
        body = {
            **kwargs,
            "__version__": 1,
            "mode": mode,
            "name": name,
            "disk_template": disk_template,
            "disks": disks,
            "nics": nics,
        }
        return self._post("/instances", query, body)

    def ReserveInstance(
        self,
        name: str | None = None,
        dry_run: bool = False,
        reason: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Reserve the resources of an instance; return the job id.

        The result of the job is the uuid of the forthcoming instance.

        Args:
            name: of the instance, if it is known yet.
            dry_run: only check.
            reason: see the class.
            kwargs: parameters of the opcode ``OP_INSTANCE_CREATE``, such as ``disks``,
                ``expires`` (seconds), ``owner`` and ``request_key``.
        """
        body = {**kwargs, "__version__": 1, "forthcoming": True}
        if name is not None:
            body["name"] = name
        return self._post("/instances", changes(dry_run, reason), body)

    def CommitInstance(
        self,
        instance: str,
        dry_run: bool = False,
        reason: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Create a forthcoming instance; return the job id.

        Args:
            instance: its name or uuid.
            dry_run: only check.
            reason: see the class.
            kwargs: parameters of the opcode ``OP_INSTANCE_CREATE`` that take no
                resources, such as ``os`` and ``start``.
        """
        path = path_of(instance, "/create")
        return self._post(path, changes(dry_run, reason), kwargs)

    def DeleteInstance(
        self,
        instance: str,
        dry_run: bool = False,
        reason: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Remove an instance; return the job id."""
        return self._delete(path_of(instance), changes(dry_run, reason), kwargs)

    def ModifyInstance(
        self, instance: str, reason: str | None = None, **kwargs: Any
    ) -> Any:
        """Modify an instance; return the job id.

        Args:
            instance: its name.
            reason: see the class.
            kwargs: parameters of the opcode ``OP_INSTANCE_SET_PARAMS``.
        """
        return self._put(path_of(instance, "/modify"), arguments(reason=reason), kwargs)

    def RenameInstance(
        self,
        instance: str,
        new_name: str,
        ip_check: bool | None = None,
        name_check: bool | None = None,
        reason: str | None = None,
    ) -> Any:
        """Rename an instance; return the job id."""
        body = given(new_name=new_name, ip_check=ip_check, name_check=name_check)
        return self._put(path_of(instance, "/rename"), arguments(reason=reason), body)

    def GetInstanceTags(self, instance: str, reason: str | None = None) -> list[str]:
        """Return the tags of an instance."""
        path = path_of(instance, "/tags")
        tags: list[str] = self._get(path, arguments(reason=reason))
        return tags

    def AddInstanceTags(
        self,
        instance: str,
        tags: Iterable[str],
        dry_run: bool = False,
        reason: str | None = None,
    ) -> Any:
        """Add tags to an instance; return the job id."""
        more = changes(dry_run, reason)
        return self._tags(self._put, path_of(instance), tags, *more)

    def DeleteInstanceTags(
        self,
        instance: str,
        tags: Iterable[str],
        dry_run: bool = False,
        reason: str | None = None,
    ) -> Any:
        """Remove tags of an instance; return the job id."""
        more = changes(dry_run, reason)
        return self._tags(self._delete, path_of(instance), tags, *more)
