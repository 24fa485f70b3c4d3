"""The client of the remote API with the documented names of Ganeti's Python client.

Programs import it as ``ganeti.rapi.client`` and work unmodified: module, class,
methods, arguments, errors and constants have the documented names. New programs should
use ``ganeti.rapi.modern``, which has typed results and verifies certificates by
default.
"""

import time
from collections.abc import Sequence
from typing import Any

from ganeti.protocols.rapi import names
from ganeti.protocols.rapi.names import *  # noqa: F403
from ganeti.protocols.rapi.names import GanetiApiError
from ganeti.protocols.rapi.table_methods import TableMethods
from ganeti.protocols.rapi.transport import (
    EpochNano,
    GenericCurlConfig,
    UsesRapiClient,
    changes,
    given,
    part,
)

__all__ = ["EpochNano", "GanetiRapiClient", "GenericCurlConfig", "UsesRapiClient"]


class GanetiRapiClient(TableMethods):
    """A client of the remote API of one cluster.

    Methods that change something return the number of a job, which may not have ended.
    ``dry_run`` only checks; ``reason`` is a text for the reason trail of the job. All
    methods raise `GanetiApiError` if the server refuses a request.
    """

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

    def ReinstallInstance(
        self,
        instance: str,
        os: str | None = None,
        no_startup: bool = False,
        osparams: dict[str, Any] | None = None,
        reason: str | None = None,
    ) -> Any:
        """Stop an instance, install it again, and start it; return the job id.

        Args:
            instance: its name.
            os: operating system; None for the present one.
            no_startup: leave it stopped.
            osparams: OS parameters of this installation only.
            reason: see the class.

        Raises:
            GanetiApiError: the server cannot use ``osparams``.
        """
        query = changes(dry_run=False, reason=reason)
        path = f"/instances/{part(instance)}/reinstall"
        if names.INST_REINSTALL_REQV1 in self.GetFeatures():
            body: dict[str, Any] = {"start": not no_startup}
            if os is not None:
                body["os"] = os
            if osparams is not None:
                body["osparams"] = osparams
            return self._post(path, query, body)
        if osparams:
            raise GanetiApiError(
                "the server does not support OS parameters of one installation"
            )
        if os:
            query.append(("os", os))
        if no_startup:
            query.append(("nostartup", 1))
        return self._post(path, query)

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
        path = f"/nodes/{part(node)}/evacuate"
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
        path = f"/nodes/{part(node)}/migrate"
        if names.NODE_MIGRATE_REQV1 in self.GetFeatures():
            body = given(mode=mode, iallocator=iallocator, target_node=target_node)
            return self._post(path, query, body)
        if target_node is not None:
            raise GanetiApiError("the server cannot migrate to a chosen node")
        if mode is not None:
            query.append(("mode", mode))
        return self._post(path, query)

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
        query = changes(dry_run=False, reason=reason)
        path = f"/2/query/{part(what)}"
        answer: dict[str, Any] = self._SendRequest("PUT", path, query, body)
        return answer

    def WaitForJobCompletion(
        self, job_id: int | str, period: float = 5, retries: int = -1
    ) -> bool:
        """Wait until a job has ended.

        Args:
            job_id: of the job.
            period: seconds between questions.
            retries: number of questions; -1 for no limit.

        Returns:
            whether the job succeeded. False also means that it has not ended after the
            last question.
        """
        while retries != 0:
            status = self.GetJobStatus(job_id)["status"]
            if status == names.JOB_STATUS_SUCCESS:
                return True
            if status in names.JOB_STATUS_FINALIZED:
                return False
            if period:
                time.sleep(period)
            if retries > 0:
                retries -= 1
        return False

    def KillJob(self, job_id: int | str) -> Any:
        """Cancel a job, also one that runs; return whether it was possible, and a text.

        Not in Ganeti. Servers of other releases refuse to cancel a job that runs.
        """
        return self._SendRequest(
            "DELETE", f"/2/jobs/{part(job_id)}", [("kill", 1)], None
        )
