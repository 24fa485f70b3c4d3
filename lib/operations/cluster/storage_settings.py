"""Cluster settings about disks: templates, directories, volume group, policy."""

import os.path
from typing import Any, Final

from ganeti import _buildconf
from ganeti.base.constants import disks, ecodes
from ganeti.base.constants.parameters import ipolicy
from ganeti.base.filesystem import system_directories
from ganeti.model import objects, opcodes
from ganeti.operations.cluster.settings import refuse
from ganeti.operations.parameters import policy

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


def changes(op: opcodes.ClusterSetParams, snapshot: objects.Snapshot) -> dict[str, Any]:
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
    if (system := system_directories.around(path)) is not None:
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
    asked = op.enabled_disk_templates is not None or ipolicy.IPOLICY_DTS in (
        op.ipolicy or {}
    )
    allowed = new.ipolicy.get(ipolicy.IPOLICY_DTS, ())
    if asked and (extra := sorted(set(allowed) - set(enabled))):
        raise refuse(
            f"instance policy: allows disk templates {', '.join(extra)} that are not"
            " enabled"
        )
