"""OP_CLUSTER_SET_PARAMS: change cluster settings."""

import dataclasses
import os.path
from collections.abc import Mapping, Sequence
from typing import Any, Final

from ganeti import _buildconf
from ganeti.base import errors, pathutils
from ganeti.base.constants import disks, ecodes
from ganeti.base.constants.parameters.params import IPOLICY_DTS
from ganeti.base.constants.protocols import hooks
from ganeti.master.locking import Level
from ganeti.model import objects, opcodes
from ganeti.model.objects import CLUSTER_KEY, Update, cloud_init, params
from ganeti.operations import ancillary_files, candidate_role, master_ip
from ganeti.operations.base import ALL, LogicalUnit
from ganeti.operations.cluster import param_settings, settings
from ganeti.operations.cluster.settings import refuse
from ganeti.operations.instance import checks
from ganeti.operations.instance.devices import combinations
from ganeti.operations.parameters import policy
from ganeti.protocols.rpc import calls

# Cluster settings about disks: templates, directories, volume group, policy.

#: template -> setting with the directory that it needs
_DIRECTORIES: Final = {
    "file": "file_storage_dir",
    "sharedfile": "shared_file_storage_dir",
    "gluster": "gluster_storage_dir",
}
#: template -> directory if it is enabled without one, as at the initialisation
_DEFAULTS: Final = {
    "file": _buildconf.FILE_STORAGE_DIR,
    "sharedfile": _buildconf.SHARED_FILE_STORAGE_DIR,
    "gluster": f"{_buildconf.LOCALSTATEDIR}/run/ganeti/gluster",
}


def storage_changes(
    op: opcodes.ClusterSetParams, snapshot: objects.Snapshot
) -> dict[str, Any]:
    """Return the fields of the cluster record to change.

    Raises:
        OpPrereqError: contains the setting, wanted and found.
    """
    cluster = snapshot.cluster
    out: dict[str, Any] = {}
    if op.enabled_disk_templates is not None:
        out["enabled_disk_templates"] = _templates(op, snapshot)
        for template, path in _DEFAULTS.items():
            name = _DIRECTORIES[template]
            if template in out["enabled_disk_templates"] and not getattr(cluster, name):
                out[name] = path
    for name in _DIRECTORIES.values():
        value = getattr(op, name)
        if value is not None:
            out[name] = _directory(name, value) if value else ""
    if op.vg_name is not None:
        out["volume_group_name"] = op.vg_name or None
    if op.drbd_helper is not None:
        if op.drbd_helper and not os.path.isabs(op.drbd_helper):
            raise refuse(
                f"drbd_helper: wanted an absolute path, found {op.drbd_helper!r}"
            )
        out["drbd_usermode_helper"] = op.drbd_helper or None
    if op.diskparams is not None:
        out["diskparams"] = policy.new_disk_parameters(
            cluster.diskparams, op.diskparams
        )
    if op.ipolicy is not None:
        out["ipolicy"] = policy.new_policy(cluster.ipolicy, op.ipolicy, for_group=False)
    _check_together(op, cluster.replace(**out))
    return out


def _directory(name: str, value: str) -> str:
    """Return the normalised path of a directory for disks."""
    if not os.path.isabs(value) or ".." in value.split("/"):
        raise refuse(f"{name}: wanted an absolute path without .., found {value!r}")
    path = os.path.normpath(value)
    if (system := pathutils.system_directory_around(path)) is not None:
        raise refuse(
            f"{name}: wanted a path outside of the system directory {system}, found"
            f" {value!r}"
        )
    return path


def _templates(
    op: opcodes.ClusterSetParams, snapshot: objects.Snapshot
) -> tuple[str, ...]:
    templates = tuple(dict.fromkeys(op.enabled_disk_templates or ()))
    if not templates:
        raise refuse("enabled_disk_templates: wanted at least one template")
    offered = disks.OFFERED_DISK_TEMPLATES
    if unknown := [name for name in templates if name not in offered]:
        raise refuse(
            f"enabled_disk_templates: {', '.join(unknown)}: not offered by this"
            f" release; offered are {', '.join(offered)}"
        )
    gone = set(snapshot.cluster.enabled_disk_templates) - set(templates)
    users: dict[str, list[str]] = {}
    for instance in snapshot.instances.values() if gone else ():
        template = snapshot.disk_template(instance)
        if template in gone:
            users.setdefault(template, []).append(instance.name)
    for template, names in sorted(users.items()):
        raise refuse(
            f"enabled_disk_templates: {template} is used by instances"
            f" {', '.join(sorted(names))}",
            ecodes.ECODE_STATE,
        )
    return templates


def _check_together(op: opcodes.ClusterSetParams, new: objects.Cluster) -> None:
    enabled = new.enabled_disk_templates
    for template, name in _DIRECTORIES.items():
        if (
            template in enabled
            and not getattr(new, name)
            and (getattr(op, name) is not None or op.enabled_disk_templates)
        ):
            raise refuse(f"{name}: must be set while {template} disks are enabled")
    uses_lvm = sorted(set(enabled) & set(disks.DTS_LVM))
    if op.vg_name == "" and uses_lvm:
        raise refuse(
            f"vg_name: cannot be unset while {', '.join(uses_lvm)} disks are enabled"
        )
    if op.vg_name and not uses_lvm:
        raise refuse(f"vg_name {op.vg_name}: no enabled disk template uses it")
    if op.drbd_helper and "drbd" not in enabled:
        raise refuse(f"drbd_helper {op.drbd_helper}: drbd disks are not enabled")
    asked = op.enabled_disk_templates is not None or IPOLICY_DTS in (op.ipolicy or {})
    allowed = new.ipolicy.get(IPOLICY_DTS, ())
    if asked and (extra := sorted(set(allowed) - set(enabled))):
        raise refuse(
            f"instance policy: allows disk templates {', '.join(extra)} that are not"
            " enabled"
        )


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
            **storage_changes(self.op, snapshot),
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
        old, new = self.plan.old, self.plan.new
        for hypervisor, filled in param_settings.node_checks(self.op, old, new):
            checks.validate_hypervisor(self.ctx, hosts, hypervisor, filled)
        asked = {*(self.op.osparams or {}), *(self.op.osparams_private_cluster or {})}
        for os_name in sorted(asked):
            values = {
                **params.osparams_for(new.osparams, os_name, {}),
                **params.osparams_for(new.osparams_private_cluster, os_name, {}),
            }
            if values:
                self._validate_os(hosts, os_name, values)

    def _validate_os(
        self, hosts: Sequence[str], os_name: str, values: Mapping[str, Any]
    ) -> None:
        answers = self.ctx.rpc.call_nodes(
            hosts,
            calls.os_validate(
                *(False, os_name, ["parameters"]),
                *(cloud_init.without_parameters(values), True),
            ),
        )
        for answer in answers.values():
            if not answer.offline:
                answer.require(f"OS {os_name} parameters", ecodes.ECODE_INVAL)

    def _check_volume_group(self, snapshot: objects.Snapshot) -> None:
        if not self.op.vg_name or self.op.vg_name == self.plan.old.volume_group_name:
            return
        for answer in self.ctx.rpc.call_nodes(
            self._hosts(snapshot), calls.vg_list()
        ).values():
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
        deaths = self.ctx.config.node_deaths
        with deaths.lock:
            also = deaths.given_up() if is_off else ()
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
        self.ctx.warn_failed(
            answer, "cannot deactivate the master IP address, going on because of force"
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
        answer = self.ctx.rpc.call_node(
            new.master_node,
            calls.node_change_master_netmask(
                old.master_netmask, new.master_netmask, new.master_ip, new.master_netdev
            ),
        )
        self.ctx.warn_failed(answer, "cannot change the master netmask")
