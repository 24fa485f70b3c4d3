"""Cluster settings that are tables of typed parameters."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from ganeti.base.constants import ecodes
from ganeti.base.constants.parameters import hvparams, params
from ganeti.base.text import messages
from ganeti.model import objects, opcodes
from ganeti.model.objects import params as object_params
from ganeti.operations.cluster.settings import refuse
from ganeti.operations.parameters import (
    cloud_init,
    device_params,
    state_params,
    typed_params,
)

_NIC_MODES: Final = ("bridged", "openvswitch", "routed")


def changes(op: opcodes.ClusterSetParams, snapshot: objects.Snapshot) -> dict[str, Any]:
    """Return the fields of the cluster record to change.

    Raises:
        OpPrereqError: contains the parameter, wanted and found.
    """
    cluster = snapshot.cluster
    out: dict[str, Any] = {}
    if op.enabled_hypervisors is not None:
        out["enabled_hypervisors"] = _hypervisors(op, snapshot)
    if op.beparams is not None:
        out["beparams"] = _backend(op, cluster)
    if op.nicparams is not None:
        out["nicparams"] = _nics(op, snapshot)
    if op.ndparams is not None:
        given = typed_params.node(op.ndparams)
        out["ndparams"] = {**cluster.ndparams, **given}
    enabled = out.get("enabled_hypervisors", cluster.enabled_hypervisors)
    if op.hvparams is not None or not cluster.hvparams.keys() >= set(enabled):
        out["hvparams"] = _hvparams(op.hvparams or {}, cluster, enabled)
    if op.os_hvp is not None:
        out["os_hvp"] = _os_hvp(op.os_hvp, cluster)
    for name in ("osparams", "osparams_private_cluster"):
        given_os = getattr(op, name)
        if given_os is not None:
            out[name] = _osparams(getattr(cluster, name), given_os)
    if op.hv_state is not None:
        out["hv_state_static"] = state_params.new_hv_state(
            cluster.hv_state_static, op.hv_state
        )
    if op.disk_state is not None:
        out["disk_state_static"] = state_params.new_disk_state(
            cluster.disk_state_static, op.disk_state
        )
    return out


def _hypervisors(
    op: opcodes.ClusterSetParams, snapshot: objects.Snapshot
) -> tuple[str, ...]:
    enabled = tuple(dict.fromkeys(op.enabled_hypervisors or ()))
    if not enabled:
        raise refuse("enabled_hypervisors: wanted at least one hypervisor")
    gone = set(snapshot.cluster.enabled_hypervisors) - set(enabled)
    users = [
        instance.name
        for instance in snapshot.instances.values()
        if instance.hypervisor in gone
    ]
    if users:
        raise refuse(
            f"enabled_hypervisors: {', '.join(sorted(gone))} is used by instances"
            f" {messages.some(users)}",
            ecodes.ECODE_STATE,
        )
    return enabled


def _backend(op: opcodes.ClusterSetParams, cluster: objects.Cluster) -> dict[str, Any]:
    given = typed_params.backend(op.beparams or {})
    default = {**cluster.beparams.get("default", {}), **given}
    typed_params.check_memory_order(
        object_params.beparams_for(cluster, default), "default backend parameters"
    )
    return {**cluster.beparams, "default": default}


def _nics(op: opcodes.ClusterSetParams, snapshot: objects.Snapshot) -> dict[str, Any]:
    cluster = snapshot.cluster
    asked: Mapping[Any, Any] = op.nicparams or {}
    given = typed_params.typed(asked, params.NIC, "NIC parameter")
    if given.get("mode", _NIC_MODES[0]) in _NIC_MODES:
        given = device_params.check_nic(given, "NIC parameters")
    default = {**cluster.nicparams.get("default", {}), **given}
    new = {**cluster.nicparams, "default": default}
    mode = default.get("mode", _NIC_MODES[0])
    if mode not in _NIC_MODES:
        raise refuse(
            f"NIC parameter mode: wanted one of {', '.join(_NIC_MODES)}, found {mode}"
        )
    if mode in ("bridged", "openvswitch") and not default.get("link"):
        raise refuse(f"NIC parameter link: must be set in mode {mode}")
    changed = cluster.replace(nicparams=new)
    broken = sorted(
        f"{instance.name}/{index}"
        for instance in snapshot.instances.values()
        for index, nic in enumerate(instance.nics)
        if object_params.nicparams_for(changed, nic.nicparams)["mode"] == "routed"
        and not nic.ip
    )
    if broken:
        raise refuse(
            "NIC parameter mode: routed NICs need an address; NICs without one:"
            f" {', '.join(broken)}"
        )
    return new


def _known(name: str, what: str) -> None:
    if name not in hvparams.HYPER_TYPES:
        raise refuse(
            f"{what}: {name} is not a hypervisor; known are"
            f" {', '.join(hvparams.HYPER_TYPES)}"
        )


def _hvparams(
    given: Mapping[str, Mapping[str, Any]],
    cluster: objects.Cluster,
    enabled: Collection[str],
) -> dict[str, Any]:
    # Imported configurations may lack parameters of hypervisors not enabled there.
    out = {
        name: {key: row.default for key, row in hvparams.HYPERVISOR[name].items()}
        for name in enabled
    }
    out |= {name: dict(values) for name, values in cluster.hvparams.items()}
    for name, values in given.items():
        _known(name, "hypervisor parameters")
        changes_ = typed_params.hypervisor(
            name, values, allow_default=True, allow_cluster_only=True
        )
        out[name] = typed_params.merge(out.get(name, {}), changes_)
    return out


def _os_hvp(
    given: Mapping[str, Mapping[str, Any]], cluster: objects.Cluster
) -> dict[str, Any]:
    out = {
        os: {name: dict(values) for name, values in by_name.items()}
        for os, by_name in cluster.os_hvp.items()
    }
    for os, by_name in given.items():
        mine = out.setdefault(os, {})
        for name, values in by_name.items():
            _known(name, f"hypervisor parameters of OS {os}")
            if values is None:
                mine.pop(name, None)
                continue
            changes_ = typed_params.hypervisor(name, values, allow_default=True)
            mine[name] = typed_params.merge(mine.get(name, {}), changes_)
        out[os] = {name: values for name, values in mine.items() if values}
    return {os: by_name for os, by_name in out.items() if by_name}


def _osparams(
    old: Mapping[str, Mapping[str, Any]], given: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    out = {os: dict(values) for os, values in old.items()}
    for os, values in given.items():
        typed_params.check_osparams(f"OS {os}", values)
        cloud_init.check(values, f"OS {os}")
        out[os] = typed_params.merge(out.get(os, {}), values or {}, none_removes=True)
    return {os: values for os, values in out.items() if values}


def node_checks(
    op: opcodes.ClusterSetParams, old: objects.Cluster, new: objects.Cluster
) -> list[tuple[str, dict[str, Any]]]:
    """Return hypervisors, and their parameters that nodes have to check."""
    if op.hvparams is None and op.enabled_hypervisors is None and op.os_hvp is None:
        return []
    touched = set(op.hvparams or {}) | (
        set(new.enabled_hypervisors) - set(old.enabled_hypervisors)
    )
    checks = [
        (name, object_params.hvparams_for(new, name, "", {}))
        for name in new.enabled_hypervisors
        if name in touched
    ]
    checks.extend(
        (name, object_params.hvparams_for(new, name, os, {}))
        for os, by_name in new.os_hvp.items()
        for name in by_name
        if name in new.enabled_hypervisors
        and (name in touched or os in (op.os_hvp or {}))
    )
    return checks
