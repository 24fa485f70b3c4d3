"""``config.data`` of another implementation of Ganeti, read and checked.

`read` returns what a new store gets; each kind of bad input has one error. Writing the
file, and replacing a store, is in `ganeti.migration.cfgupgrade`.
"""

import logging
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final

import simplejson

from ganeti.base import errors
from ganeti.base.constants import versions
from ganeti.base.constants.misc import COMMIT_POLICY_MAJORITY
from ganeti.base.constants.parameters.forms import is_added
from ganeti.base.constants.parameters.hvparams import HYPERVISOR
from ganeti.base.constants.parameters.params import DISK
from ganeti.base.constants.protocols.confd import CONFD_HMAC_SHA1
from ganeti.base.filesystem import files
from ganeti.master import config
from ganeti.migration import ganeti2_config
from ganeti.model.objects import CLUSTER_KEY, Snapshot, Update, allocators
from ganeti.store import Change

_log = logging.getLogger(__name__)
#: Parts of the version number of a file: 2160000 is of Ganeti 2.16.
_MAJOR: Final = 1000000
_MINOR: Final = 10000
#: Value of the KVM parameter disk_discard that release 3.0 has by default. It leaves
#: the choice to QEMU, which ignores requests to discard.
_OLD_DISCARD: Final = "default"
_DISCARD: Final = "ignore"


def read(
    path: str, *, check: bool, cluster_name: str = "", convert: bool = False
) -> list[Change]:
    """Return the changes that write a configuration into an empty store.

    Args:
        path: the file ``config.data``.
        check: refuse an inconsistent configuration.
        cluster_name: the cluster of this node; empty accepts every cluster.
        convert: also read files of Ganeti 2.

    Raises:
        ConfigurationError: the file is missing, damaged, of another version, of another
            cluster, or inconsistent.
    """
    changes = parse(load(path), path, check=check, convert=convert)
    actual = snapshot_of(changes).cluster.cluster_name
    if cluster_name and actual != cluster_name:
        raise errors.ConfigurationError(
            f"{path}: is of the cluster {actual}, but this node belongs to"
            f" {cluster_name}"
        )
    return changes


def parse(data: Any, path: str, *, check: bool, convert: bool = False) -> list[Change]:
    """Return the changes for the decoded JSON of a file, which is changed in place.

    Raises:
        ConfigurationError: see `read`.
    """
    version = data.get("version") if isinstance(data, dict) else None
    if convert and ganeti2_config.is_convertible(version):
        _log.info("%s: converted from %s", path, release(version))
        ganeti2_config.convert(data)
        data["version"] = versions.CONFIG_VERSION
    _name_children(data)
    for where in convert_hvparams(data):
        _log.info("%s: disk_discard: %s becomes %s", where, _OLD_DISCARD, _DISCARD)
    try:
        changes = config.import_config(data, accept=config.UPGRADABLE)
    except errors.ConfigVersionMismatch as err:
        text = _other_version(path, err.args[1], convert=convert)
        raise errors.ConfigurationError(text) from err
    except errors.ConfigurationError as err:
        reason = str(err.args[0]).removeprefix("config.data: ")
        raise errors.ConfigurationError(f"{path}: {reason}") from err
    if check:
        verify(path, snapshot_of(changes))
    return changes


def snapshot_of(changes: list[Change]) -> Snapshot:
    """Return the configuration that a list of changes makes."""
    return Snapshot().apply(item for item in changes if isinstance(item, Update))


def verify(where: str, snapshot: Snapshot) -> None:
    """Refuse an inconsistent configuration.

    The error names the first problem; the log gets a line for each further one.

    Raises:
        ConfigurationError: the configuration is inconsistent.
    """
    problems = config.verify(snapshot)
    if not problems:
        return
    for problem in problems[1:]:
        _log.error("%s", problem)
    more = f" (the first of {len(problems)} problems)" if len(problems) > 1 else ""
    raise errors.ConfigurationError(
        f"{where}: {problems[0]}{more}; --no-verify accepts this"
    )


def load(path: str) -> Any:
    """Return the decoded JSON of a file.

    Raises:
        ConfigurationError: the file is missing or damaged.
    """
    try:
        return simplejson.loads(files.read_file(path, max_size=files.WHOLE_STATE))
    except FileNotFoundError as err:
        raise errors.ConfigurationError(f"{path}: no such file") from err
    except (ValueError, RecursionError) as err:
        raise errors.ConfigurationError(
            f"{path}: truncated or damaged, not valid JSON: {err}"
        ) from err


def _name_children(data: Any) -> None:
    """Give the parts of disks uuids, which files of Ganeti 3.0 and 3.1 may lack."""
    disks = data.get("disks") if isinstance(data, dict) else None
    left = list(disks.values()) if isinstance(disks, dict) else []
    while left:
        disk = left.pop()
        children = disk.get("children") if isinstance(disk, dict) else None
        for child in children if isinstance(children, list) else ():
            if isinstance(child, dict):
                child.setdefault("uuid", str(uuid.uuid4()))
                left.append(child)


def convert_hvparams(data: Any) -> list[str]:
    """Replace values that 3.1 does not have by equal ones; return where they were."""
    changed = []
    for where, params in _kvm_parameters(data):
        if isinstance(params, dict) and params.get("disk_discard") == _OLD_DISCARD:
            params["disk_discard"] = _DISCARD
            changed.append(where)
    return changed


def _kvm_parameters(data: Any) -> Iterator[tuple[str, Any]]:
    """Yield all sets of KVM parameters of a file, of any form."""

    def inner(value: Any, key: str) -> Any:
        return value.get(key) if isinstance(value, dict) else None

    cluster = inner(data, "cluster")
    yield "cluster", inner(inner(cluster, "hvparams"), "kvm")
    os_params = inner(cluster, "os_hvp")
    for name in os_params if isinstance(os_params, dict) else ():
        yield f"OS {name}", inner(os_params[name], "kvm")
    instances = inner(data, "instances")
    for key in instances if isinstance(instances, dict) else ():
        if inner(instances[key], "hypervisor") == "kvm":
            yield f"instance {key}", inner(instances[key], "hvparams")


def release(version: object) -> str:
    """Return the name of the release that writes a version number."""
    if isinstance(version, int) and version >= _MAJOR:
        return f"Ganeti {version // _MAJOR}.{version // _MINOR % 100}"
    return "no known release"


def _other_version(path: str, version: object, *, convert: bool) -> str:
    """Return the error about a file of a release that cannot be imported."""
    known, hint = "3.0 and 3.1", ""
    if convert:
        known = "2.0 to 2.16, 3.0 and 3.1"
    elif ganeti2_config.is_convertible(version):
        hint = (
            ". Upgrade the cluster to Ganeti 3.0 with its own tools first, or stop its"
            " daemons and run cfgupgrade"
        )
    if isinstance(version, int) and version > versions.CONFIG_VERSION:
        hint = ". It is newer than this release: install a newer one"
    return (
        f"{path}: is of {release(version)} (version {version!r}); files of Ganeti"
        f" {known} can be imported{hint}"
    )


def without_extensions(snapshot: Snapshot) -> tuple[Snapshot, list[str]]:
    """Return a configuration without the settings that only this implementation has.

    Returns:
        The configuration, and a line for each setting that was left out.
    """
    lost = []
    cluster = snapshot.cluster
    if cluster.commit_policy != COMMIT_POLICY_MAJORITY:
        lost.append(f"cluster: commit_policy = {cluster.commit_policy}")
        cluster = cluster.replace(commit_policy=COMMIT_POLICY_MAJORITY)
    if cluster.confd_hmac != CONFD_HMAC_SHA1:
        lost.append(f"cluster: confd_hmac = {cluster.confd_hmac}")
        cluster = cluster.replace(confd_hmac=CONFD_HMAC_SHA1)
    if cluster.confd_detect_replays:
        lost.append("cluster: confd_detect_replays = True")
        cluster = cluster.replace(confd_detect_replays=False)
    setting = cluster.default_iallocator
    names = [name for _kind, names in allocators.parse(setting) for name in names]
    if setting and names != [setting]:
        # Ganeti has one name for all requests.
        lost.append(f"cluster: default_iallocator = {setting}, but for its first name")
        cluster = cluster.replace(default_iallocator="".join(names[:1]))
    if cluster.automation_limits:
        lost.append(f"cluster: automation_limits = {cluster.automation_limits}")
        cluster = cluster.replace(automation_limits={})
    if cluster.automation_freeze:
        lost.append(f"cluster: automation_freeze = {cluster.automation_freeze}")
        cluster = cluster.replace(automation_freeze={})
    if cluster.node_death:
        lost.append("cluster: node_death = True")
        cluster = cluster.replace(node_death=False)
    if cluster.rapi_require_authentication:
        lost.append(
            "cluster: rapi_require_authentication = True (RAPI_ARGS in"
            " /etc/default/ganeti has --require-authentication for that)"
        )
        cluster = cluster.replace(rapi_require_authentication=False)
    if cluster.maintenance:
        lost.append(f"cluster: maintenance = {cluster.maintenance}")
        cluster = cluster.replace(maintenance={})
    if cluster is not snapshot.cluster:
        snapshot = snapshot.apply([Update("cluster", CLUSTER_KEY, cluster)])
    snapshot = _without_stripe_sizes(snapshot, lost)
    known = [node for node in snapshot.nodes.values() if node.ssh_host_keys]
    expected = f"ssh-rsa {cluster.rsahostkeypub}"
    lost += [
        f"node {node.name}: SSH host keys of its own"
        for node in known
        if expected not in node.ssh_host_keys
    ]
    snapshot = snapshot.apply(
        Update("nodes", node.uuid, node.replace(ssh_host_keys=())) for node in known
    )
    lost += [
        f"instance {instance.name}: a script of its OS was interrupted"
        for instance in snapshot.instances.values()
        if instance.creation
    ]
    return snapshot, lost + _lost_parameters(snapshot)


def _without_stripe_sizes(snapshot: Snapshot, lost: list[str]) -> Snapshot:
    """Return a configuration without disk parameters that Ganeti does not know."""
    cluster = snapshot.cluster
    params, more = _unsized("cluster", cluster.diskparams)
    changes = [Update("cluster", CLUSTER_KEY, cluster.replace(diskparams=params))]
    lost += more
    for group in sorted(snapshot.nodegroups.values(), key=lambda group: group.name):
        params, more = _unsized(f"group {group.name}", group.diskparams)
        new = group.replace(diskparams=params)
        changes.append(Update("nodegroups", group.uuid, new))
        lost += more
    return snapshot.apply(changes)


def _unsized(
    owner: str, by_template: Mapping[str, Mapping[str, Any]]
) -> tuple[dict[str, Any], list[str]]:
    """Return disk parameters without sizes of stripes, and a line for each size."""
    rows = [(t, n, v) for t, values in by_template.items() for n, v in values.items()]
    kept: dict[str, Any] = {template: {} for template in by_template}
    lost = []
    for template, name, value in rows:
        if not is_added(DISK.get(template, {}), name):
            kept[template][name] = value
        elif value:
            lost.append(f"{owner}: disk parameter {template}: {name} = {value}")
    return kept, lost


def _lost_parameters(snapshot: Snapshot) -> list[str]:
    """Return a line for each hypervisor parameter that an export leaves out.

    Those with the built-in default are not named: guests start as before without them.
    """
    cluster = snapshot.cluster
    owners: list[tuple[str, str, Mapping[str, Any]]] = [
        ("cluster", name, values) for name, values in sorted(cluster.hvparams.items())
    ]
    for os_name, by_name in sorted(cluster.os_hvp.items()):
        owners += [
            (f"os {os_name}", name, values) for name, values in sorted(by_name.items())
        ]
    instances = sorted(snapshot.instances.values(), key=lambda item: item.name)
    owners += [(f"instance {i.name}", i.hypervisor, i.hvparams) for i in instances]
    lost = [
        f"{owner}: hypervisor {name}: {key} = {values[key]}"
        for owner, name, values in owners
        for key in sorted(values)
        if is_added(HYPERVISOR.get(name, {}), key)
        and values[key] != HYPERVISOR[name][key].default
    ]
    lost += [
        f"instance {i.name}: the copies of its UEFI variables and TPM"
        for i in instances
        if i.firmware_state or i.tpm_state
    ]
    return lost
