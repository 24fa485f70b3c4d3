"""The verification request to nodes; `decisions.verify` evaluates the answers."""

from collections.abc import Collection, Sequence
from typing import Any, Final

from ganeti.base import pathutils
from ganeti.base.constants.protocols import nodeverify
from ganeti.decisions.verify import cluster, guest_files
from ganeti.model import objects
from ganeti.model.objects import params
from ganeti.operations import ancillary_files, candidate_role
from ganeti.operations.cluster.verification import verify_ssconf
from ganeti.protocols.rpc import wire

#: Number of nodes of a large group to which each candidate but the master logs in.
SSH_PEERS: Final = 3


def checks(
    snapshot: objects.Snapshot,
    group: str,
    paths: pathutils.Paths,
    *,
    instances: Sequence[objects.Instance],
    clutter: bool,
) -> dict[str, Any]:
    """Return the ``checkdict`` for the nodes of a group.

    Args:
        snapshot: the configuration.
        group: uuid of the group.
        paths: files of the master.
        instances: those whose primary node is in the group.
        clutter: look for stray SSH keys in authorized_keys.
    """
    record = snapshot.cluster
    members = online(snapshot, snapshot.nodes_in_group(group))
    master = snapshot.nodes[record.master_node]
    asked: dict[str, Any] = {
        nodeverify.NV_FILELIST: [
            *shared_files(snapshot, paths),
            *verify_ssconf.files(paths),
        ],
        nodeverify.NV_CLIENT_CERT: None,
        nodeverify.NV_NODELIST: _ssh_checks(snapshot, group, members),
        nodeverify.NV_NODENETTEST: [
            [node.name, node.primary_ip, node.secondary_ip] for node in members
        ],
        nodeverify.NV_MASTERIP: [master.name, record.master_ip],
        nodeverify.NV_HYPERVISOR: list(record.enabled_hypervisors),
        nodeverify.NV_HVPARAMS: [
            [where, name, dict(values)]
            for where, name, values in cluster.hypervisor_sources(snapshot)
        ],
        nodeverify.NV_INSTANCELIST: list(record.enabled_hypervisors),
        nodeverify.NV_HVINFO: record.enabled_hypervisors[0],
        nodeverify.NV_VERSION: None,
        nodeverify.NV_NODESETUP: None,
        nodeverify.NV_TIME: None,
        nodeverify.NV_DAEMON_USERS: None,
        nodeverify.NV_OSLIST: None,
        nodeverify.NV_NONVMNODES: [
            node.name for node in members if not node.vm_capable
        ],
        nodeverify.NV_BRIDGES: _bridges(snapshot, instances),
    }
    if names := guest_files.owners(instances):
        asked[nodeverify.NV_GUEST_FILES] = names
    asked.update(_where_configured(snapshot, paths))
    if clutter:
        asked[nodeverify.NV_SSH_CLUTTER] = True
    return asked


def online(snapshot: objects.Snapshot, uuids: Collection[str]) -> list[objects.Node]:
    """Return online nodes, sorted by name."""
    nodes = (snapshot.nodes[uuid] for uuid in uuids)
    return sorted(
        (node for node in nodes if not node.offline), key=lambda node: node.name
    )


def shared_files(snapshot: objects.Snapshot, paths: pathutils.Paths) -> list[str]:
    """Return the files to compare, as paths that other nodes understand."""
    sets = ancillary_files.file_sets(snapshot, paths)
    everything = (*sets.all_nodes, *sets.vm_nodes, *sets.candidates, paths.server_pem)
    return [paths.virtualize(path) for path in everything]


def _ssh_checks(
    snapshot: objects.Snapshot, group: str, members: Sequence[objects.Node]
) -> wire.PerNode:
    """Return the nodes to log in to: name -> SSH port.

    The master logs in to the whole group and to one node of each other group. Any
    other candidate of a small group logs in to all these; in a large one, to a few
    nodes of the group, different ones with each revision, because logins between all
    pairs of nodes take long. Only candidates can log in to other nodes, so the list of
    any other node is empty. No candidate of a small group logs in to itself if there is
    another one to try its SSH server; the master does if nothing else checks that its
    own key is authorised.
    """
    targets = list(members)
    for other in sorted(snapshot.nodegroups):
        if other != group:
            targets.extend(online(snapshot, snapshot.nodes_in_group(other))[:1])
    ports = {
        node.name: params.fill_ndparams(snapshot, node)["ssh_port"] for node in targets
    }

    is_alone = sum(node.master_candidate for node in members) == 1

    def chosen(place: int, node: objects.Node) -> dict[str, int]:
        if not node.master_candidate:
            return {}
        is_master = node.uuid == snapshot.cluster.master_node
        if len(members) <= SSH_PEERS + 1:
            tries_itself = is_alone or (
                is_master and not snapshot.cluster.modify_ssh_setup
            )
            return {
                name: port
                for name, port in ports.items()
                if tries_itself or name != node.name
            }
        if is_master:
            return ports
        # Steps go from 1 to one less than the size of the group.
        first = snapshot.revision * SSH_PEERS
        steps = ((first + step) % (len(members) - 1) + 1 for step in range(SSH_PEERS))
        peers = [members[(place + step) % len(members)] for step in steps]
        return {peer.name: ports[peer.name] for peer in peers}

    return wire.PerNode(
        {node.uuid: chosen(place, node) for place, node in enumerate(members)}
    )


def _bridges(
    snapshot: objects.Snapshot, instances: Sequence[objects.Instance]
) -> list[str]:
    """Return the bridges that the default and the instances of a group need."""
    defaults = params.nicparams_for(snapshot.cluster, {})
    bridges = {defaults["link"]} if defaults["mode"] == "bridged" else set()
    for instance in instances:
        for nic in instance.nics:
            filled = params.fill_nicparams(snapshot, nic)
            if filled["mode"] == "bridged":
                bridges.add(filled["link"])
    return sorted(bridges)


def _where_configured(
    snapshot: objects.Snapshot, paths: pathutils.Paths
) -> dict[str, Any]:
    record = snapshot.cluster
    asked: dict[str, Any] = {}
    if record.modify_ssh_setup:
        asked[nodeverify.NV_SSH_SETUP] = candidate_role.key_owners(snapshot)
    if record.use_external_mip_script:
        script = f"{paths.conf_dir}/scripts/master-ip-setup"
        asked[nodeverify.NV_USERSCRIPTS] = [paths.virtualize(script)]
    # Each candidate can become the master, which runs the helpers of all nodes.
    helpers = {params.oob_program(snapshot, node) for node in snapshot.nodes.values()}
    if programs := sorted(helpers - {""}):
        asked[nodeverify.NV_OOB_PATHS] = programs
    asked[nodeverify.NV_EXPORTS] = None
    if record.compression_tools:
        asked[nodeverify.NV_COMPRESSION] = list(record.compression_tools)
    return asked | _of_storage(snapshot)


def _of_storage(snapshot: objects.Snapshot) -> dict[str, Any]:
    record = snapshot.cluster
    asked: dict[str, Any] = {}
    enabled = record.enabled_disk_templates
    if {"file", "sharedfile"} & set(enabled):
        asked[nodeverify.NV_ACCEPTED_STORAGE_PATHS] = True
        directories = (record.file_storage_dir, record.shared_file_storage_dir)
        asked[nodeverify.NV_DISK_FILES] = [path for path in directories if path]
    if "file" in enabled:
        asked[nodeverify.NV_FILE_STORAGE_PATH] = record.file_storage_dir
    if "sharedfile" in enabled:
        asked[nodeverify.NV_SHARED_FILE_STORAGE_PATH] = record.shared_file_storage_dir
    if "gluster" in enabled:
        asked[nodeverify.NV_GLUSTER_STORAGE_PATH] = record.gluster_storage_dir
    if record.volume_group_name:
        asked[nodeverify.NV_VGLIST] = None
        asked[nodeverify.NV_LVLIST] = record.volume_group_name
        if any(params.has_exclusive_storage(snapshot, uuid) for uuid in snapshot.nodes):
            asked[nodeverify.NV_PVLIST] = [record.volume_group_name]
            asked[nodeverify.NV_EXCLUSIVEPVS] = True
    if "drbd" in enabled:
        asked[nodeverify.NV_DRBDLIST] = None
        asked[nodeverify.NV_DRBDVERSION] = None
        if record.drbd_usermode_helper:
            asked[nodeverify.NV_DRBDHELPER] = record.drbd_usermode_helper
    return asked
