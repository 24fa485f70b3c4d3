"""OP_CLUSTER_SET_PARAMS: change cluster settings."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ganeti.base import errors
from ganeti.base.constants import ecodes
from ganeti.base.constants.protocols import hooks
from ganeti.master.locking import Level
from ganeti.model import objects, opcodes
from ganeti.model.objects import CLUSTER_KEY, Update, cloud_init, params
from ganeti.operations import ancillary_files, candidate_role, master_ip
from ganeti.operations.base import ALL, LogicalUnit
from ganeti.operations.cluster import param_settings, settings, storage_settings
from ganeti.operations.instance import checks as instance_checks
from ganeti.operations.instance.devices import combinations
from ganeti.operations.parameters import policy

#: Settings that determine which files the nodes share.
_FILES_DEPEND_ON = frozenset(
    {"modify_etc_hosts", "use_external_mip_script", "enabled_hypervisors"}
)


@dataclasses.dataclass(frozen=True)
class _SettingsPlan:
    old: objects.Cluster
    new: objects.Cluster
    changes: Mapping[str, Any]


class ClusterSetParams(LogicalUnit[opcodes.ClusterSetParams]):
    """Unit that changes settings, all or none."""

    HOOKS_PATH = "cluster-modify"
    HOOKS_TYPE = hooks.HTYPE_CLUSTER

    def expand_names(self) -> None:
        """Lock all objects that settings affect, shared."""
        for level in (Level.INSTANCE, Level.NODEGROUP, Level.NODE):
            self.locks.names[level] = ALL
            self.locks.shared.add(level)

    def hooks_env(self) -> Mapping[str, Any]:
        """Return the cluster's name and the requested volume group."""
        return {
            "OP_TARGET": self.ctx.snapshot.cluster.cluster_name,
            "NEW_VG_NAME": self.op.vg_name,
        }

    def hooks_nodes(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return the master, for both phases."""
        master = (self.ctx.snapshot.cluster.master_node,)
        return master, master

    # Checks
    def check_prereq(self) -> None:
        """Compute all changes, then run the checks that need nodes."""
        snapshot = self.ctx.snapshot
        changes = self._work_out(snapshot)
        old = snapshot.cluster
        self.plan = _SettingsPlan(old, old.replace(**changes), changes)
        if {"hvparams", "beparams", "os_hvp"} & changes.keys():
            update = Update("cluster", CLUSTER_KEY, self.plan.new)
            combinations.check_defaults(snapshot, snapshot.apply([update]))
        self._check_on_nodes(snapshot)
        self._check_volume_group(snapshot)
        self._warn_of_violations(snapshot)

    def _work_out(self, snapshot: objects.Snapshot) -> dict[str, Any]:
        return {
            **settings.changes(self.op, snapshot.cluster, self.ctx.paths),
            **storage_settings.changes(self.op, snapshot),
            **param_settings.changes(self.op, snapshot),
        }

    def _hosts(self, snapshot: objects.Snapshot) -> list[str]:
        return sorted(
            uuid
            for uuid, node in snapshot.nodes.items()
            if node.vm_capable and not node.offline
        )

    def _check_on_nodes(self, snapshot: objects.Snapshot) -> None:
        hosts = self._hosts(snapshot)
        for check in param_settings.node_checks(self.op, self.plan.old, self.plan.new):
            instance_checks.validate_hypervisor(
                self.ctx, hosts, check.hypervisor, check.filled
            )
        new = self.plan.new
        asked = {*(self.op.osparams or {}), *(self.op.osparams_private_cluster or {})}
        for os in sorted(asked):
            values = {
                **params.osparams_for(new.osparams, os, {}),
                **params.osparams_for(new.osparams_private_cluster, os, {}),
            }
            if values:
                self._validate_os(hosts, os, values)

    def _validate_os(
        self, hosts: Sequence[str], os: str, values: Mapping[str, Any]
    ) -> None:
        answers = self.ctx.rpc.call(
            "os_validate",
            hosts,
            (False, os, ["parameters"], cloud_init.without_parameters(values), True),
        )
        for answer in answers.values():
            if not answer.offline:
                answer.require(f"OS {os} parameters", ecodes.ECODE_INVAL)

    def _check_volume_group(self, snapshot: objects.Snapshot) -> None:
        if not self.op.vg_name or self.op.vg_name == self.plan.old.volume_group_name:
            return
        for answer in self.ctx.rpc.call("vg_list", self._hosts(snapshot)).values():
            if answer.offline:
                continue
            groups = answer.require("cannot list volume groups", ecodes.ECODE_ENVIRON)
            if self.op.vg_name not in groups:
                raise self.prereq(
                    f"vg_name {self.op.vg_name}: node {answer.node} has"
                    f" {', '.join(sorted(groups)) or 'none'}",
                    ecodes.ECODE_ENVIRON,
                )

    def _warn_of_violations(self, snapshot: objects.Snapshot) -> None:
        if self.op.ipolicy is None:
            return
        after = snapshot.apply([Update("cluster", CLUSTER_KEY, self.plan.new)])
        if broken := policy.new_violations(snapshot, after, list(snapshot.instances)):
            self.ctx.log.warn(
                "After the ipolicy change the following instances violate them: "
                + ", ".join(broken)
            )

    # Execution

    def execute(self) -> None:
        """Commit the settings; move the master IP before and after that."""
        if not self.plan.changes:
            self.ctx.log.info("no setting changes")
            return
        moves = self._changed("master_netdev") or self._changed(
            "use_external_mip_script"
        )
        if moves:
            self._take_address_down()
        try:
            self._store()
        finally:
            if moves:
                self._take_address_up()
        if self._changed("master_netmask") and not moves:
            self._change_netmask()
        if self._changed("candidate_pool_size"):
            candidate_role.fill_pool(self.ctx)
        if any(self._changed(name) for name in _FILES_DEPEND_ON):
            ancillary_files.redistribute(self.ctx)

    def _changed(self, name: str) -> bool:
        return name in self.plan.changes and getattr(self.plan.old, name) != getattr(
            self.plan.new, name
        )

    def _store(self) -> None:
        is_off = self._changed("node_death") and not self.plan.new.node_death
        also = self.ctx.config.node_deaths.given_up() if is_off else ()
        with self.ctx.config.edit(self.ctx.owner, also=also) as edit:
            # The locks are shared: another job may have changed settings since the
            # checks.
            edit.update_cluster(**self._work_out(edit.snapshot))

    def _take_address_down(self) -> None:
        answer = master_ip.turn_down(self.ctx)
        if answer.failed and not self.op.force:
            raise errors.OpExecError(
                answer.describe("cannot deactivate the master IP address")
            )
        if answer.failed:
            self.ctx.log.warn(
                answer.describe(
                    "cannot deactivate the master IP address, going on because of force"
                )
            )

    def _take_address_up(self) -> None:
        answer = master_ip.turn_up(self.ctx)
        if answer.failed:
            self.ctx.log.warn(
                answer.describe("cannot activate the master IP address"),
                hint="run gnt-cluster activate-master-ip",
            )

    def _change_netmask(self) -> None:
        old, new = self.plan.old, self.plan.new
        answer = self.ctx.rpc.call_one(
            "node_change_master_netmask",
            new.master_node,
            old.master_netmask,
            new.master_netmask,
            new.master_ip,
            new.master_netdev,
        )
        if answer.failed:
            self.ctx.log.warn(answer.describe("cannot change the master netmask"))
