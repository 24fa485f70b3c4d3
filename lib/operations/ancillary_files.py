"""Files that nodes must have: their list, and sending them from the master.

Verification compares the same files by checksum. The store replicates the
configuration; server.pem is never sent by this module.
"""

import dataclasses
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Final

from ganeti.base import pathutils
from ganeti.base.constants import misc
from ganeti.base.constants.protocols import nodeverify
from ganeti.base.filesystem import shared_files
from ganeti.model import objects
from ganeti.operations.base import Context
from ganeti.operations.trust import host_keys
from ganeti.protocols import rpc
from ganeti.protocols.rpc import calls, wire
from ganeti.protocols.ssh import host_keys as public_keys
from ganeti.store import choice


@dataclasses.dataclass(frozen=True)
class FileSets:
    """Absolute paths on the master.

    Attributes:
        all_nodes: expected on every node.
        vm_nodes: expected on nodes that may host instances.
        candidates: secrets of the cluster, only on master candidates.
        optional: files of these sets that may be missing, but then on all nodes.
        problems: what is wrong with the administrator's own list of files, or with
            files that cannot be shared.
    """

    all_nodes: tuple[str, ...]
    vm_nodes: tuple[str, ...]
    candidates: tuple[str, ...]
    optional: frozenset[str]
    problems: tuple[str, ...] = ()


def file_sets(snapshot: objects.Snapshot, paths: pathutils.Paths) -> FileSets:
    """Return the files that nodes share, and read the administrator's list of them."""
    cluster = snapshot.cluster
    listed = shared_files.read(paths)
    everywhere = [
        paths.data("known_hosts"),
        paths.hmac_key,
        paths.data("spice.pem"),
        paths.data("spice-ca.pem"),
    ]
    optional = [
        paths.data("known_hosts"),
        paths.data("spice.pem"),
        paths.data("spice-ca.pem"),
        paths.data("rapi/users"),
        # Missing in clusters of earlier releases: server.pem has the key there.
        paths.server_key_pem,
        # The store may be in a file, or in etcd without certificates.
        *(paths.data(name) for name in choice.FILES),
        shared_files.list_path(paths),
    ]
    if cluster.modify_etc_hosts:
        everywhere.append(paths.at("/etc/hosts"))
    if cluster.use_external_mip_script:
        everywhere.append(f"{paths.conf_dir}/scripts/master-ip-setup")
    # The list before its files: a node accepts what its own copy names.
    everywhere += [shared_files.list_path(paths), *listed.paths]
    passwords = password_files(snapshot)
    known = {
        path for path in passwords if shared_files.is_password_file(path, paths)
    }.difference(listed.paths)
    hypervisors = known | {
        f"{paths.conf_dir}/{name}"
        for hypervisor in cluster.enabled_hypervisors
        for name in _HYPERVISOR_FILES.get(hypervisor, ())
    }
    if not _XEN.isdisjoint(cluster.enabled_hypervisors):
        hypervisors.add(paths.at(_XL_SETTINGS))
    return FileSets(
        tuple(everywhere),
        tuple(sorted(hypervisors)),
        tuple(paths.data(name) for name in misc.CANDIDATE_FILES),
        frozenset((*optional, *hypervisors)),
        (
            *listed.problems,
            *_unshared(passwords, {*known, *listed.paths}, paths),
            *_unreadable(listed.paths),
        ),
    )


def password_files(snapshot: objects.Snapshot) -> list[str]:
    """Return the VNC password files that hypervisor parameters name, sorted."""
    cluster = snapshot.cluster
    given = [
        values
        for by_hypervisor in (cluster.hvparams, *cluster.os_hvp.values())
        for hypervisor, values in by_hypervisor.items()
        if hypervisor in cluster.enabled_hypervisors
    ]
    given += [instance.hvparams for instance in snapshot.instances.values()]
    return sorted({values[_VNC_FILE] for values in given if values.get(_VNC_FILE)})


_STANDBY: Final = "ganeti-standby"
_VNC_FILE: Final = "vnc_password_file"


def _unshared(
    passwords: Sequence[str], shared: Collection[str], paths: pathutils.Paths
) -> list[str]:
    return [
        f"VNC password file {path} is not sent to other nodes: move it to"
        f" {paths.conf_dir}/vnc-NAME, or add it to {shared_files.list_path(paths)}"
        for path in passwords
        if path not in shared
    ]


def _unreadable(listed: Sequence[str]) -> list[str]:
    return [
        f"{path}, which {shared_files.NAME} names, cannot be sent: {why}"
        for path in listed
        if (why := shared_files.unreadable(path))
    ]


_XEN: Final = frozenset({"xen-pvm", "xen-hvm"})
#: Settings of xl for all guests of a node.
_XL_SETTINGS: Final = "/etc/xen/xl.conf"
#: Files below the configuration directory that an administrator may create.
_HYPERVISOR_FILES: Final = {
    "kvm": ("kvm-vif-bridge", "vnc-cluster-password"),
    "xen-hvm": ("vnc-cluster-password",),
}


def redistribute(ctx: Context, only: Sequence[str] | None = None) -> None:
    """Send the master's copies to online nodes; failures are warnings.

    Args:
        ctx: dependencies of the opcode.
        only: node uuids; all nodes if None.
    """
    snapshot = ctx.snapshot
    targets = [
        node
        for uuid, node in sorted(snapshot.nodes.items())
        if uuid != snapshot.cluster.master_node
        and not node.offline
        and (only is None or uuid in only)
    ]
    if public_keys.are_recorded(snapshot):
        host_keys.write(ctx)
    if not targets:
        return
    sets = file_sets(snapshot, ctx.paths)
    for problem in sets.problems:
        ctx.log.warn(problem)
    everyone = [node.uuid for node in targets]
    hosts = [node.uuid for node in targets if node.vm_capable]
    candidates = [node.uuid for node in targets if node.master_candidate]
    for paths, nodes in (
        (sets.all_nodes, everyone),
        (sets.vm_nodes, hosts),
        (sets.candidates, candidates),
    ):
        for path in paths:
            if nodes and os.path.isfile(path):
                _upload(ctx, path, nodes)
    _start_standbys(ctx, candidates)


def send_secrets(ctx: Context, uuid: str) -> bool:
    """Send the secrets of candidates to a candidate; failures are warnings.

    Returns:
        Whether the node has all that the master has.
    """
    sent = [
        _upload(ctx, path, [uuid]) for path in _present_secrets(ctx.snapshot, ctx.paths)
    ]
    _start_standbys(ctx, [uuid])
    return all(sent)


def lacks_secrets(ctx: Context, uuid: str) -> bool | None:
    """Return whether a candidate lacks a secret that the master has.

    None means that it did not answer.
    """
    asked = [
        ctx.paths.virtualize(path) for path in _present_secrets(ctx.snapshot, ctx.paths)
    ]
    answer = ctx.rpc.call_node(
        uuid,
        calls.node_verify(
            {nodeverify.NV_FILELIST: asked}, ctx.snapshot.cluster.cluster_name, {}
        ),
    )
    if answer.failed:
        return None
    return not set(asked) <= set(answer.payload.get(nodeverify.NV_FILELIST) or ())


def _present_secrets(snapshot: objects.Snapshot, paths: pathutils.Paths) -> list[str]:
    return [
        path for path in file_sets(snapshot, paths).candidates if os.path.exists(path)
    ]


def _start_standbys(ctx: Context, candidates: Sequence[str]) -> None:
    """Start the daemon of candidates that follows a store in etcd."""
    if not candidates or not choice.is_etcd(ctx.paths):
        return
    answers = ctx.rpc.call_nodes(candidates, calls.node_ensure_daemon(_STANDBY, True))
    for answer in answers.values():
        if answer.offline or (not answer.failed and answer.payload):
            continue
        text = f"cannot start {_STANDBY}"
        ctx.log.warn(
            answer.describe(text)
            if answer.failed
            else f"node {answer.node}: {text}; see daemon-util.log there"
        )


def _upload(ctx: Context, path: str, nodes: Sequence[str]) -> bool:
    """Send a file; return whether all nodes have it. Failures are warnings."""
    try:
        upload = wire.upload(path, ctx.paths)
    except OSError as err:
        ctx.log.warn(f"cannot read {path}: {err.strerror}")
        return False
    is_complete = True
    for answer in ctx.rpc.call_nodes(nodes, calls.upload_file(upload)).values():
        is_complete &= not answer.failed
        if answer.failed and not answer.offline:
            ctx.log.warn(answer.describe(f"copy of file {path} failed"))
    return is_complete


def write_ssconf(
    ctx: Context, nodes: Sequence[str], values: Mapping[str, str]
) -> Mapping[str, rpc.Result]:
    """Write ssconf files to nodes at once, for a step that cannot wait for them.

    The master daemon sends all files after each commit, and these ones again: a later
    commit may have been distributed before this call.
    """
    try:
        return ctx.rpc.call_nodes(nodes, calls.write_ssconf_files(values))
    finally:
        ctx.config.on_ssconf(nodes, values.keys())
